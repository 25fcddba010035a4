/** The holdings of an isolate, without a store. interleavings.test.ts and concurrency.test.ts test them together with the store. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, it, vi } from 'vitest'
import type { Holding } from '../../../src/algorithms/algorithm.ts'
import { MAX_UNITS } from '../../../src/algorithms/concurrency.ts'
import { detached } from '../../../src/background.ts'
import { GatewayError } from '../../../src/errors.ts'
import { Holdings } from '../../../src/limiter/units/holdings.ts'
import { createHoldingsKeeper } from '../../../src/limiter/units/keep-holdings.ts'
import { consumerStateKey } from '../../../src/store/keys.ts'
import type { Store } from '../../../src/store/store.ts'
import type { Trips } from '../../../src/trips/trips.ts'
import { SELECTION, sized } from '../../selection.ts'
import { bound } from '../../support/bound.ts'
import { rulesOf } from '../../support/engines.ts'
import { UNBOUNDED_LOG } from '../../support/log.ts'
import { NOON } from '../../support/traffic.ts'
import { tripsOn } from '../../support/trips.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

const [rule] = rulesOf({ name: 'a', by: 'consumer', algorithm: 'concurrency', limit: 5 })
const ofConsumer = (consumer = 'acme') => bound(rule!, consumerStateKey(consumer), 1, NOON / 1e3)

const unitsOf = ({ started, ended }: Pick<Holding, 'started' | 'ended'>) => started - ended

describe('the holdings of an isolate', () => {
  it('never repeat an epoch under one name: when all are used up, the isolate gets another name', () => {
    let names = 0
    const holdings = new Holdings(
      () => NOON / 1e3,
      () => `isolate${names++}`,
      3,
    )
    const texts = Array.from({ length: 9 }, (_, i) => {
      const { holder, epoch } = holdings.takePermit(ofConsumer(`caller-${i}`)).holding
      return `${holder} ${epoch}`
    })
    expect(new Set(texts).size).toBe(9)
    expect(texts.map(text => Number(text.at(-1)))).toEqual([1, 2, 3, 1, 2, 3, 1, 2, 3])
  })

  it('move to the new name with all units', () => {
    let names = 0
    const holdings = new Holdings(
      () => NOON / 1e3,
      () => `isolate${names++}`,
      1,
    )
    const one = holdings.takePermit(ofConsumer())
    holdings.resolve(one, 'admitted')
    const lost = holdings.takePermit(ofConsumer())
    holdings.resolve(lost, 'lost')
    expect(holdings.unconfirmed()).toEqual([
      expect.objectContaining({ holding: { holder: 'isolate1', epoch: 1, started: 1, ended: 0 } }),
    ])
  })

  it('count a unit that was admitted without the store in addition to one whose reply has not arrived', () => {
    const holdings = new Holdings(() => NOON / 1e3)
    const pending = holdings.takePermit(ofConsumer())
    const own = holdings.takePermit(ofConsumer())
    holdings.resolve(own, 'refused')
    holdings.hold(own)
    const next = holdings.takePermit(ofConsumer())
    // The new epoch contains both units, so the store no longer adds the first one.
    expect(next.holding.epoch).toBeGreaterThan(pending.holding.epoch)
    expect(next.holding.started - next.holding.ended).toBe(2)
    holdings.resolve(pending, 'admitted')
    expect(holdings.takePermit(ofConsumer()).holding).toMatchObject({ started: 2, ended: 0 })
  })

  it('do not confuse a permit under the old name with one of the same epoch under the new name', () => {
    let names = 0
    const holdings = new Holdings(
      () => NOON / 1e3,
      () => `isolate${names++}`,
      1,
    )
    const [one, lost] = [holdings.takePermit(ofConsumer()), holdings.takePermit(ofConsumer())]
    holdings.resolve(lost, 'lost')
    // The holding has epoch 1 again, but under the new name, and already counts the first permit as admitted.
    holdings.resolve(one, 'admitted')
    expect(holdings.takePermit(ofConsumer()).holding).toMatchObject({
      holder: 'isolate1',
      started: 1,
      ended: 0,
    })
  })

  it('count nothing while a request is pending that the store refuses for sure', () => {
    let nowMs = NOON / 1e3
    const holdings = new Holdings(() => nowMs)
    const held = holdings.takePermit(ofConsumer())
    holdings.resolve(held, 'admitted')
    const refused = holdings.takePermit({ ...ofConsumer(), cost: MAX_UNITS }, 5)
    nowMs += 5000
    const next = () => {
      const permit = holdings.takePermit(ofConsumer(), 5)
      holdings.resolve(permit, 'refused')
      return permit.holding
    }
    expect(next()).toMatchObject({ started: 1, ended: 0 })
    // It takes its units if the isolate admits it without the store.
    holdings.resolve(refused, 'lost')
    holdings.hold(refused)
    expect(next()).toMatchObject({ started: MAX_UNITS, ended: 0 })
    holdings.release(refused)
    expect(unitsOf(next())).toBe(1)
  })

  it('count no more units than a record has room for, and no fewer than may be in flight', () => {
    let nowMs = NOON / 1e3
    const holdings = new Holdings(() => nowMs)
    const held = holdings.takePermit(ofConsumer())
    holdings.resolve(held, 'admitted')
    const pending = Array.from({ length: 20 }, () => holdings.takePermit({ ...ofConsumer(), cost: 1e6 }))
    nowMs += 5000
    const later = holdings.takePermit(ofConsumer())
    expect(later.holding).toMatchObject({ started: MAX_UNITS, ended: 0 })
    const counted = pending.map(permit => {
      holdings.resolve(permit, 'refused')
      return unitsOf(holdings.heldUnits[0]!)
    })
    expect(counted.slice(0, 3)).toEqual([MAX_UNITS, MAX_UNITS, MAX_UNITS])
    expect(counted.slice(-2)).toEqual([1e6 + 1, 1])
  })

  it('resolve a permit once, and release it once', () => {
    const holdings = new Holdings(() => NOON / 1e3)
    const permit = holdings.takePermit(ofConsumer())
    holdings.resolve(permit, 'admitted')
    holdings.resolve(permit, 'lost')
    holdings.release(permit)
    holdings.release(permit)
    expect(holdings.takePermit(ofConsumer()).holding).toMatchObject({ started: 1, ended: 1 })
  })
})

describe('the messages of an isolate that holds units of many identities', () => {
  const TTL_MS = 15_000
  const [held] = rulesOf({ name: 'held', by: 'consumer', algorithm: 'concurrency', limit: 1, ttl: '15s' })

  /** An isolate whose trips take a while, and get no answer while the store is down. */
  class Isolate {
    readonly clock = new VirtualClock()
    /** Truncated, as on real platforms. */
    readonly timer = (ms: number, run: () => void) => this.clock.after(Math.trunc(ms), run)
    readonly pass = (ms: number) => this.clock.run(this.clock.nowMs + ms)
    readonly keeper = createHoldingsKeeper({
      now: () => this.clock.nowMs,
      timer: this.timer,
      log: UNBOUNDED_LOG,
      script: () => NO_SCRIPT,
    })
    tripMs = 10
    isDown = false
    /** The number of messages in each HTTP request. */
    readonly sent: number[] = []
    /** When the store has received the last message about each key (ms), and the longest time between two. */
    readonly receivedAt = new Map<string, number>()
    longestMs = 0

    readonly store: Store = {
      ping: async () => {},
      run: async calls => {
        const keys = calls.flatMap(call => ('keys' in call ? [...call.keys] : []))
        this.sent.push(keys.length)
        await new Promise<void>(resolve => this.timer(this.tripMs, resolve))
        if (this.isDown) throw new GatewayError('ERR_STORE_TIMEOUT', 'The store did not answer in time.')
        for (const key of keys) {
          const before = this.receivedAt.get(key)
          if (before !== undefined) this.longestMs = Math.max(this.longestMs, this.clock.nowMs - before)
          this.receivedAt.set(key, this.clock.nowMs)
        }
        return calls.map(() => [0, 0])
      },
    }

    readonly tripsOn = (store: Store) =>
      tripsOn(store, [this.keeper.rider], { now: () => this.clock.nowMs, timer: this.timer })
    readonly trips = this.tripsOn(this.store)

    /** Begins requests, one each `pauseMs`. @returns functions that end them */
    async begin(count: number, pauseMs: number) {
      const ends: (() => void)[] = []
      for (let i = 0; i < count; i++) {
        const key = consumerStateKey(`caller-${i}`)
        const rules = [bound(held!, key, 1, NOON / 1e3)]
        const permits = this.keeper.stakeOf({ evaluation: { rules } })!
        permits.resolve({ status: 'admitted', verdicts: [ADMITTED], at: 0 } as never)
        ends.push(permits.keep(this.trips, detached)!)
        await this.pass(pauseMs)
      }
      return ends
    }
  }
  /** Far from the limit, so that no end is reported at once. */
  const ADMITTED = { rule: held!, allowed: true, remaining: 1 }
  const NO_SCRIPT = { plain: { source: '', sha1: '' }, keyLocking: { source: '', sha1: '' } }
  setFlagsFromString('--expose-gc')
  const collectGarbage = runInNewContext('gc') as () => void
  const sum = (counts: readonly number[]) => counts.reduce((sum, count) => sum + count, 0)

  it.each<readonly [streams: number, tripMs: number]>([
    [10, 10],
    [100, 250],
    [1000, 10],
    ...(SELECTION === 'all' ? ([[3000, 400]] as const) : []),
  ])(
    '%d in flight, with trips of %d ms: at most 1.2 times the needed messages, in requests of bounded size',
    async (streams, tripMs) => {
      const isolate = new Isolate()
      isolate.tripMs = tripMs
      await isolate.begin(streams, 5000 / streams)
      await isolate.pass(2 * TTL_MS)
      isolate.sent.length = 0
      await isolate.pass(4 * TTL_MS)
      // One message for each identity and third of the ttl.
      expect(sum(isolate.sent)).toBeGreaterThanOrEqual(11 * streams)
      expect(sum(isolate.sent)).toBeLessThanOrEqual(1.2 * 12 * streams)
      expect(Math.max(...isolate.sent)).toBeLessThanOrEqual(500)
      expect(isolate.receivedAt.size).toBe(streams)
      expect(isolate.longestMs).toBeLessThan(TTL_MS / 2)
    },
  )

  it('renew everything again as soon as the store is back', async () => {
    const isolate = new Isolate()
    await isolate.begin(1000, 5)
    isolate.isDown = true
    await isolate.pass(2 * TTL_MS)
    isolate.isDown = false
    const backAt = isolate.clock.nowMs
    await isolate.pass(2000)
    expect([...isolate.receivedAt.values()].filter(at => at < backAt)).toEqual([])
    isolate.sent.length = 0
    await isolate.pass(TTL_MS)
    expect(sum(isolate.sent)).toBeLessThanOrEqual(1.2 * 3 * 1000)
  })

  it('are sent by other requests when one of them may make no more calls, which is logged once', async () => {
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const isolate = new Isolate()
    let left = 48
    const { store } = isolate
    // The platform bounds the calls of the first request, whatever the others send.
    const boundedStore: Store = {
      ...store,
      run: async calls => {
        if (left-- <= 0) throw new GatewayError('ERR_STORE_CALLS_EXHAUSTED', 'No more calls.')
        return await store.run(calls)
      },
    }
    const bounded = isolate.tripsOn(boundedStore)
    const begin = (consumer: string, trips: Trips) => {
      const rules = [bound(held!, consumerStateKey(consumer), 1, NOON / 1e3)]
      const permits = isolate.keeper.stakeOf({ evaluation: { rules } })!
      permits.resolve({ status: 'admitted', verdicts: [ADMITTED], at: 0 } as never)
      return permits.keep(trips, detached)!
    }
    begin('alone', bounded)
    await isolate.pass(60 * TTL_MS)
    // 48 renewals, one each five seconds; then the request stops to try.
    expect([isolate.sent.length, left]).toEqual([48, -1])
    begin('other', isolate.trips)
    isolate.receivedAt.clear()
    isolate.longestMs = 0
    await isolate.pass(4 * TTL_MS)
    expect([...isolate.receivedAt.keys()].some(key => key.includes('{c:alone}'))).toBe(true)
    expect(isolate.longestMs).toBeLessThan(TTL_MS / 2)
    begin('another', bounded)
    await isolate.pass(4 * TTL_MS)
    expect(warn.mock.calls.map(([line]) => JSON.parse(String(line)))).toEqual([
      {
        ...{ level: 'warn', event: 'renewals-stopped', skipped: 0 },
        detail: expect.stringContaining('50 with Workers Free'),
      },
    ])
    warn.mockRestore()
  })

  it('end with the requests', async () => {
    const isolate = new Isolate()
    for (const end of await isolate.begin(1000, 1)) end()
    await isolate.pass(1000)
    expect(isolate.keeper.holdings.heldUnits).toEqual([])
    isolate.sent.length = 0
    await isolate.pass(TTL_MS)
    expect(isolate.sent).toEqual([])
  })

  it('leave nothing behind in the memory, however long a request is in flight', async () => {
    const isolate = new Isolate()
    const [end] = await isolate.begin(1, 0)
    const usedAfter = async (intervals: number) => {
      await isolate.pass((intervals * TTL_MS) / 3)
      isolate.sent.length = 0
      collectGarbage()
      return process.memoryUsage().heapUsed
    }
    const before = await usedAfter(1000)
    const renewals = sized(20_000, 8000)
    const bytesOfEach = 50
    expect((await usedAfter(renewals)) - before).toBeLessThan(bytesOfEach * renewals)
    end!()
  })

  it('are at most 100 beside a decision', async () => {
    const isolate = new Isolate()
    for (const end of await isolate.begin(1000, 0)) end()
    isolate.sent.length = 0
    void isolate.trips.store.run([{ command: 'GET', key: 'k' }])
    expect(isolate.sent).toEqual([100])
  })

  it('keep no identity of which nothing is held for longer than the ttl, and at most 10,000', () => {
    let nowMs = NOON / 1e3
    const holdings = new Holdings(() => nowMs)
    const lose = (i: number) =>
      holdings.resolve(holdings.takePermit(bound(held!, consumerStateKey(`c${i}`))), 'lost')
    for (let i = 0; i < 30_000; i++) lose(i)
    expect(holdings.heldUnits.length).toBeLessThanOrEqual(10_001)
    // Those that are in flight stay.
    const inFlight = holdings.takePermit(bound(held!, consumerStateKey('in-flight')))
    holdings.resolve(inFlight, 'admitted')
    nowMs += TTL_MS
    holdings.renew(inFlight)
    lose(0)
    expect(holdings.heldUnits.map(({ inFlight }) => inFlight)).toEqual([1, 0])
  })
})
