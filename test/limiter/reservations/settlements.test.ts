/** The messages that settle and renew reservations, with a store that checks them as the script does. */
import { afterEach, describe, expect, it, vi } from 'vitest'
import type { Timer } from '../../../src/clock.ts'
import type { Rule } from '../../../src/config/compile-rule.ts'
import { GatewayError } from '../../../src/errors.ts'
import type { Reservation } from '../../../src/limiter/reservations/reservation.ts'
import { createSettlements, type SettlementsOptions } from '../../../src/limiter/reservations/settlements.ts'
import type { RuleSet } from '../../../src/script/rule-set-shape.ts'
import { consumerStateKey } from '../../../src/store/keys.ts'
import type { ScriptCall, Store, StoreCall } from '../../../src/store/store.ts'
import { rulesOf } from '../../support/engines.ts'
import { Timers } from '../../support/isolates.ts'
import { UNBOUNDED_LOG } from '../../support/log.ts'
import { ruleSetOf } from '../../support/rule-set.ts'
import { tripsOn } from '../../support/trips.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

const TTL = 60_000
const RULE: Rule = {
  ...rulesOf({ name: 'tokens', by: 'consumer', algorithm: 'fixed-window', limit: 1000, period: '1h' })[0]!,
  settlement: { ttlMs: TTL, onUnsettled: 'keep', aboveLimit: 'clamp' },
}
const TEXT = { source: 'settle', sha1: 'settle' }
const RULE_SET: RuleSet = Object.create(ruleSetOf([{ rule: RULE, key: 'any' }]), {
  settle: { value: { plain: TEXT, keyLocking: TEXT } },
})
const DECISION: StoreCall = { command: 'GET', key: 'decision' }

type Fault = 'not-sent' | 'answered' | 'may-have-run'

/** Settles reservations as the script does. */
class ReservingStore implements Store {
  /** When each reservation ends (ms), by state key and id. */
  readonly reserved = new Map<string, number>()
  readonly settled = new Map<string, number>()
  /** The calls of each HTTP request. */
  readonly trips: StoreCall[][] = []
  /** What happens to the next trips, in their order. */
  faults: (Fault | undefined)[] = []
  isAway = false
  /** Answers settlements with errors. */
  refuses = false
  /** When each trip was made (ms). */
  readonly times: number[] = []
  /** The debt after each settlement. */
  debt = 0
  readonly #time: { readonly nowMs: number }

  constructor(time: { readonly nowMs: number }) {
    this.#time = time
  }

  ping = async () => {}

  async run(calls: readonly StoreCall[]): Promise<unknown[]> {
    this.trips.push([...calls])
    this.times.push(this.#time.nowMs)
    const fault = this.isAway ? 'not-sent' : this.faults.shift()
    const lost = fault && new GatewayError('ERR_STORE_UNREACHABLE', fault, { fate: fault })
    if (fault === 'not-sent') throw lost!
    if (fault === 'answered') return calls.map(() => lost)
    const refusal = new GatewayError('ERR_STORE_REFUSED', 'The store answered WRONGTYPE.')
    if (this.refuses && calls.length === 1) throw refusal
    const settle = (call: ScriptCall) => (this.refuses ? refusal : this.#settle(call))
    const replies = calls.map(call => ('script' in call ? settle(call) : null))
    if (lost) throw lost
    return replies
  }

  #settle({ keys, args }: ScriptCall): unknown {
    const [key] = keys
    let applied = 0
    for (let i = 6; i < args.length; i += 5) {
      const [id, , verb, , actual] = args.slice(i, i + 5)
      const name = `${key} ${id}`
      if (!((this.reserved.get(name) ?? 0) > this.#time.nowMs)) continue
      applied += 1
      if (verb === 'renew') this.reserved.set(name, this.#time.nowMs + TTL)
      else {
        this.reserved.delete(name)
        this.settled.set(name, Number(actual))
      }
    }
    return [this.#time.nowMs * 1e3, applied, 0, 0, this.debt]
  }

  get calls(): ScriptCall[] {
    return this.trips.flat().filter(call => 'script' in call)
  }
}

/** What the statistics get of the rule `tokens`. `counts` returns it, and begins again. */
function createCounts() {
  let sums: Record<string, number> = {}
  return {
    count(what: string, { name }: Rule, by: number) {
      expect(name).toBe('tokens')
      sums[what] = (sums[what] ?? 0) + by
    },
    counts() {
      const counted = sums
      sums = {}
      return counted
    },
  }
}

const createWorld = (options: Partial<SettlementsOptions> = {}) => worldOn(new Timers(), options)

/** A clock with an event queue, for many requests. */
class Events extends VirtualClock {
  timer: Timer = (ms, run) => this.after(Math.trunc(ms), run)
}

function worldOn<T extends Timers | Events>(time: T, options: Partial<SettlementsOptions> = {}) {
  const store = new ReservingStore(time)
  const now = () => time.nowMs
  /** Whether the platform ends the requests that begin now. None of their code runs any more. */
  const platform = { endsRequests: false }
  const timer: Timer = (ms, run) => {
    const isEnded = platform.endsRequests
    return time.timer(ms, () => isEnded || run())
  }
  const settlements = createSettlements({ now, wallClock: now, timer, log: UNBOUNDED_LOG, ...options })
  const trips = tripsOn(store, [settlements.rider], { now, timer })
  let count = 0
  const background = (task: Promise<unknown>) => void task.catch(() => {})
  return {
    ...{ time, store, settlements, trips, platform },

    /** A request that has reserved 100 units. */
    reserve(consumer = 'acme') {
      const id = `id${String(count++).padStart(10, '0')}`
      const key = consumerStateKey(consumer)
      const name = `${key} ${id}`
      store.reserved.set(name, time.nowMs + TTL)
      const reservation: Reservation = {
        ...{ id, ruleSet: RULE_SET, spentAt: time.nowMs * 1e3 },
        rules: [{ rule: RULE, key, mode: 'enforce', reserved: 100 }],
      }
      const settle = settlements.keep(reservation, trips, background)
      return { name, reservation, settle }
    },
    decide: () => trips.store.run([DECISION]).catch(() => {}),
  }
}

afterEach(() => void vi.restoreAllMocks())

describe('a settlement', () => {
  it('travels with the next trip, before its decisions', async () => {
    const { time, store, reserve, decide } = createWorld()
    const { name, settle } = reserve()
    settle(() => 40)
    await time.pass(100)
    await decide()
    expect(store.settled.get(name)).toBe(40)
    expect(store.trips).toEqual([[expect.objectContaining({ args: expect.any(Array) }), DECISION]])
    await time.pass(10_000)
    expect(store.trips).toHaveLength(1)
    expect(time.waiting).toBe(0)
  })

  it('makes a trip of its own after 250 ms without another', async () => {
    const { time, store, reserve } = createWorld()
    const { name, settle } = reserve()
    settle(() => 40)
    await time.pass(249)
    expect(store.trips).toHaveLength(0)
    await time.pass(1)
    expect(store.settled.get(name)).toBe(40)
  })

  it.each<Fault>(['not-sent', 'answered', 'may-have-run'])(
    'is repeated without other requests until the store has answered it: %s',
    async fault => {
      const { time, store, settlements, reserve } = createWorld()
      store.faults = [fault, fault, fault]
      const { name, settle } = reserve()
      settle(() => 40)
      await time.pass(10_000)
      expect(store.settled).toEqual(new Map([[name, 40]]))
      expect(store.trips).toHaveLength(4)
      expect(settlements.backlog.waiting).toBe(0)
      await time.pass(TTL)
      expect(store.trips).toHaveLength(4)
    },
  )

  it('is repeated by a later request if the platform has ended its own', async () => {
    const { time, store, settlements, reserve, decide } = createWorld()
    const { name, settle } = reserve()
    const run = store.run.bind(store)
    store.run = () => new Promise(() => {})
    settle(() => 40)
    void decide()
    store.run = run
    await time.pass(1000)
    await decide()
    expect(settlements.backlog.waiting).toBe(1)
    await time.pass(1000)
    await decide()
    expect(store.settled.get(name)).toBe(40)
  })

  it('is given up when the reservation has ended', async () => {
    const { time, store, settlements, reserve, decide } = createWorld()
    store.isAway = true
    reserve().settle(() => 40)
    await time.pass(TTL)
    store.isAway = false
    const before = store.trips.length
    await decide()
    await decide()
    expect(store.trips.slice(before)).toEqual([[DECISION], [DECISION]])
    expect(settlements.backlog.waiting).toBe(0)
  })

  it('is neither repeated nor given up before the deadline of its trip', async () => {
    const counted: string[] = []
    const { time, store, settlements, reserve, decide } = createWorld({
      deadlineMs: 60_000,
      count: what => counted.push(what),
    })
    const { name, settle } = reserve()
    await time.pass(25_000)
    const run = store.run.bind(store)
    // The store executes the call before the reservation ends, and answers after that.
    store.run = async calls => {
      const replies = await run(calls)
      await new Promise<void>(resolve => time.timer(40_000, resolve))
      return replies
    }
    settle(() => 40)
    void decide()
    store.run = run
    await time.pass(37_000)
    await decide()
    expect(store.trips.map(calls => calls.length)).toEqual([2, 1])
    await time.pass(4000)
    expect(store.settled.get(name)).toBe(40)
    expect(settlements.backlog.waiting).toBe(0)
    expect(counted).toEqual(['units cost', 'reservation settled'])
  })

  it.each([
    ['has no answer yet', 20_000, () => new Promise<never>(() => {})],
    [
      'is answered with an error again and again',
      1000,
      async (calls: readonly StoreCall[]) =>
        calls.map(() => new GatewayError('ERR_STORE_REFUSED', 'The store answered WRONGTYPE.')),
    ],
  ])('does not wait for another one that %s', async (_, deadlineMs, answer) => {
    vi.spyOn(console, 'warn').mockImplementation(() => {})
    const { time, store, reserve, decide } = createWorld({ deadlineMs })
    const run = store.run.bind(store)
    store.run = answer
    reserve('other').settle(() => 40)
    void decide()
    // Its next repetition is due in eight seconds, or after the deadline.
    await time.pass(7000)
    store.run = run
    const { name, settle } = reserve()
    settle(() => 40)
    await time.pass(250)
    expect(store.settled.get(name)).toBe(40)
    expect(store.trips).toHaveLength(1)
  })

  it('is repeated 2 s after a trip that fails, whatever the deadline is', async () => {
    const { time, store, settlements, reserve } = createWorld({ deadlineMs: 60_000 })
    const { name, settle } = reserve()
    store.faults = ['not-sent', 'answered']
    settle(() => 40)
    await time.pass(250 + 2000)
    expect(store.trips.length).toBe(2)
    await time.pass(2000)
    expect(store.settled.get(name)).toBe(40)
    expect(settlements.backlog.waiting).toBe(0)
  })

  it('is repeated less and less often while the store answers it with an error, which is logged once', async () => {
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const { time, store, settlements, reserve } = createWorld()
    store.refuses = true
    for (const consumer of ['acme', 'other']) reserve(consumer).settle(() => 40)
    await time.pass(20_000)
    expect(store.times.map(ms => (ms - store.times[0]!) / 1000)).toEqual([0, 4, 12])
    expect(warn).toHaveBeenCalledOnce()
    expect(JSON.parse(warn.mock.calls[0]![0] as string)).toMatchObject({
      event: 'settlement-refused',
      detail: expect.stringContaining('WRONGTYPE'),
    })
    await time.pass(TTL)
    reserve('third').settle(() => 40)
    await time.pass(250)
    expect(settlements.backlog.waiting).toBe(1)
  })

  it('is settled when the store no longer answers it with an error', async () => {
    vi.spyOn(console, 'warn').mockImplementation(() => {})
    const { time, store, settlements, reserve } = createWorld()
    store.refuses = true
    const { name, settle } = reserve()
    settle(() => 40)
    await time.pass(5000)
    store.refuses = false
    await time.pass(8000)
    expect(store.settled).toEqual(new Map([[name, 40]]))
    expect(settlements.backlog.waiting).toBe(0)
  })

  it('does not load a store that fails beside decisions', async () => {
    const { time, store, reserve, decide } = createWorld()
    store.isAway = true
    await decide()
    reserve().settle(() => 40)
    await decide()
    expect(store.trips).toEqual([[DECISION], [DECISION]])
    store.isAway = false
    await time.pass(250)
    expect(store.settled.size).toBe(1)
  })

  it('shares a call with others of its identity, and a trip with those of other identities', async () => {
    const { time, store, reserve } = createWorld()
    for (let i = 0; i < 120; i++) reserve('acme').settle(() => i)
    for (let i = 0; i < 10; i++) reserve(`other-${i}`).settle(() => i)
    await time.pass(250)
    expect(store.trips.map(calls => calls.length)).toEqual([13])
    expect(store.settled.size).toBe(130)
  })

  it('waits if too many travel with one trip', async () => {
    const { time, store, reserve, decide } = createWorld()
    for (let i = 0; i < 250; i++) reserve(`caller-${i}`).settle(() => i)
    await decide()
    expect(store.trips[0]).toHaveLength(21)
    await time.pass(250)
    expect(store.trips.map(calls => calls.length)).toEqual([21, 120, 110])
    expect(store.settled.size).toBe(250)
  })

  it.each<[string, number | undefined, number]>([
    ['is unknown', undefined, 100],
    ['is no number', Number.NaN, 100],
    ['is negative', -1, 100],
    ['is a fraction', 0.2, 1],
    ['is infinite', Number.POSITIVE_INFINITY, 1e9],
    ['is 0', 0, 0],
  ])('has an amount that the store accepts, if the cost %s', async (_, actual, expected) => {
    const { time, store, reserve } = createWorld()
    const { name, settle } = reserve()
    settle(() => actual)
    await time.pass(250)
    expect(store.settled.get(name)).toBe(expected)
  })

  it('is sent without another request, also behind 6,000 of other identities', async () => {
    const { time, store, settlements, reserve } = worldOn(new Events())
    for (const consumer of Array.from({ length: 6000 }, (_, i) => `caller-${i}`))
      reserve(consumer).settle(() => 40)
    await time.run(time.nowMs + 5000)
    expect([store.settled.size, settlements.backlog.waiting]).toEqual([6000, 0])
  })

  it('is not sent for a request that ends unsettled', async () => {
    const { time, store, reserve } = createWorld()
    reserve().settle('unsettled')
    await time.pass(2 * TTL)
    expect(store.trips).toEqual([])
    expect(time.waiting).toBe(0)
  })

  it('is dropped if 10,000 others wait, which is logged once', async () => {
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const { store, settlements, reserve } = createWorld()
    store.isAway = true
    for (let i = 0; i < 10_010; i++) reserve(`caller-${i % 100}`).settle(() => i)
    expect(settlements.backlog).toEqual({ waiting: 10_000, dropped: 10 })
    expect(warn.mock.calls).toEqual([[expect.stringContaining('"event":"settlements-dropped"')]])
  })

  it('is kept, and sent first, however many renewals wait, whose loss is logged as theirs', async () => {
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const { time, store, settlements, reserve } = worldOn(new Events())
    const ended = Array.from({ length: 500 }, (_, i) => reserve(`caller-${i % 50}`))
    for (let i = 0; i < 10_100; i++) reserve(`caller-${i % 50}`)
    await time.run(time.nowMs + TTL / 2 - 1000)
    store.isAway = true
    await time.run(time.nowMs + 10_000)
    for (const { settle } of ended) settle(() => 0)
    expect(settlements.backlog).toEqual({ waiting: 10_500, dropped: 0 })
    const [[line]] = warn.mock.calls as [[string]]
    expect(warn).toHaveBeenCalledOnce()
    expect(JSON.parse(line)).toMatchObject({
      event: 'renewals-dropped',
      detail: expect.stringMatching(/^More than 10000 renewals /),
    })
    const before = store.trips.length
    store.isAway = false
    await time.run(time.nowMs + 10_000)
    const verbs = store.trips.slice(before).flatMap(calls => calls.map(call => (call as ScriptCall).args[8]))
    expect(verbs.slice(0, 50)).toEqual(Array(50).fill('settle'))
    expect(store.settled.size).toBe(500)
    expect([...store.reserved.values()].every(endsAt => endsAt > time.nowMs)).toBe(true)
  })

  it('replaces the renewal of its reservation that waits', async () => {
    const { time, store, settlements, reserve } = createWorld()
    const { settle } = reserve()
    reserve('other')
    store.isAway = true
    await time.pass(TTL / 2 + 100)
    expect(settlements.backlog.waiting).toBe(2)
    settle(() => 40)
    expect(settlements.backlog.waiting).toBe(2)
    store.isAway = false
    await time.pass(5000)
    expect(store.calls.filter(({ args }) => args[8] === 'settle')).toHaveLength(1)
  })

  it('is counted for each of its rules if its reservation ends before the store confirms it, but a renewal is not', async () => {
    const { counts, count } = createCounts()
    const { time, store, reserve } = createWorld({ count })
    reserve().settle(() => 5)
    await time.pass(250)
    store.isAway = true
    reserve()
    for (let i = 0; i < 3; i++) reserve('acme').settle(() => 5)
    await time.pass(2 * TTL)
    expect(counts()).toEqual({ 'reservation settled': 1, unsettled: 3, 'units cost': 20 })
  })

  it('is counted with what the request has cost, and with the debt that it has made', async () => {
    const { counts, count } = createCounts()
    const { time, store, settlements, trips, reserve } = createWorld({ count })
    for (const cost of [40, 130]) reserve().settle(() => cost)
    await time.pass(250)
    expect(counts()).toEqual({ 'reservation settled': 2, 'units cost': 170 })
    store.debt = 50
    reserve().settle(() => 120)
    await time.pass(250)
    reserve().settle(() => 300)
    await time.pass(250)
    expect(counts()).toEqual({ 'reservation settled': 2, 'units cost': 420, 'units debt': 20 + 50 })
    const on = { trips, answers: undefined }
    const { reservation } = reserve()
    for (let i = 0; i < 2; i++)
      await settlements.settleNow(
        on,
        reservation,
        () => 90,
        () => {},
      )
    expect(counts()).toEqual({ 'reservation settled': 1, 'reservation late': 1, 'units cost': 90 })
  })

  it('is counted as late if its reservation has ended, but not if a message that was lost may have settled it', async () => {
    const { counts, count } = createCounts()
    const { time, store, reserve } = createWorld({ count })
    const late = reserve()
    store.reserved.clear()
    late.settle(() => 5)
    reserve().settle(() => 5)
    await time.pass(250)
    expect(counts()).toMatchObject({ 'reservation settled': 1, 'reservation late': 1 })
    store.faults = ['may-have-run']
    reserve().settle(() => 5)
    await time.pass(5000)
    expect(counts()).toEqual({ 'reservation settled': 1, 'units cost': 5 })
  })

  it('is sent before a process stops, also if a trip is lost', async () => {
    const { time, store, settlements, trips, reserve } = createWorld()
    store.faults = ['may-have-run', 'not-sent']
    for (let i = 0; i < 120; i++) reserve(`caller-${i}`).settle(() => i)
    const stopped = settlements.flush(trips.sendAlone)
    await time.pass(1000)
    await stopped
    expect(store.settled.size).toBe(120)
  })

  it('does not keep a process from stopping if the store is away', async () => {
    const { time, store, settlements, trips, reserve } = createWorld()
    store.isAway = true
    reserve().settle(() => 1)
    const stopped = settlements.flush(trips.sendAlone)
    await time.pass(2000)
    await stopped
    expect(store.trips.length).toBeLessThan(15)
    await time.pass(2000)
    expect(time.waiting).toBe(0)
  })
})

describe('a reservation', () => {
  it('is renewed at half of its ttl, as long as its request runs', async () => {
    const { time, store, reserve } = createWorld()
    const { name, settle } = reserve()
    await time.pass(TTL / 2 + 249)
    expect(store.trips).toHaveLength(0)
    await time.pass(10 * TTL)
    expect(store.reserved.has(name)).toBe(true)
    expect(store.trips.length).toBeLessThanOrEqual(21)
    settle(() => 40)
    await time.pass(250)
    expect(store.settled.get(name)).toBe(40)
    expect(time.waiting).toBe(0)
  })

  it('is not renewed again after another process has settled it, whose own process may not know', async () => {
    const { time, store, reserve } = createWorld()
    const { name, settle } = reserve('acme')
    const other = reserve('other')
    await time.pass(TTL / 4)
    store.reserved.delete(name)
    await time.pass(TTL / 2)
    other.settle(() => 40)
    await time.pass(TTL / 2)
    const calls = store.calls.length
    expect(time.waiting).toBe(0)
    await time.pass(10 * TTL)
    expect(store.calls.length).toBe(calls)
    settle(() => 40)
    expect(store.settled.has(name)).toBe(false)
  })

  it('is renewed although trips are lost', async () => {
    const { time, store, reserve } = createWorld()
    const { name } = reserve()
    await time.pass(TTL / 2)
    store.isAway = true
    await time.pass(TTL / 4)
    store.isAway = false
    await time.pass(TTL / 4 + 1)
    expect(store.reserved.get(name)).toBeGreaterThan(time.nowMs + TTL / 2)
  })

  it('is not renewed by other requests if the platform has ended its own', async () => {
    const { time, store, platform, reserve } = createWorld()
    platform.endsRequests = true
    const ended = reserve()
    platform.endsRequests = false
    const alive = reserve()
    await time.pass(TTL)
    expect(store.reserved.get(ended.name)).toBeLessThanOrEqual(time.nowMs)
    expect(store.reserved.get(alive.name)).toBeGreaterThan(time.nowMs)
  })

  it('is renewed together with those of other requests: 2,000 streams', async () => {
    const { time, store, reserve } = worldOn(new Events())
    const streams: { name: string }[] = []
    for (let i = 0; i < 2000; i++) time.after(i * 10, () => streams.push(reserve(`caller-${i % 1000}`)))
    await time.run(time.nowMs + 2 * TTL)
    const messages = store.calls.reduce((sum, { args }) => sum + (args.length - 5) / 5, 0)
    // Each is renewed twice within a ttl.
    expect(messages).toBeLessThanOrEqual(4 * 2000)
    expect(store.trips.length / ((2 * TTL) / 1e3)).toBeLessThan(4)
    for (const { name } of streams) expect(store.reserved.get(name)).toBeGreaterThan(time.nowMs)
  })

  it('that was renewed is settled, whatever order the messages arrive in', async () => {
    const { time, store, reserve, decide } = createWorld()
    const { name, settle } = reserve()
    await time.pass(TTL / 2)
    // The renewal waits for a trip.
    settle(() => 40)
    await decide()
    await time.pass(TTL)
    expect(store.settled.get(name)).toBe(40)
    expect(store.reserved.has(name)).toBe(false)
  })
})
