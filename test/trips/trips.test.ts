/**
 * Trips and their riders: the order of the calls, which trips the breaker measures, what a rider learns when its trip is lost, and when a
 * trip is made for a rider alone.
 */
import { beforeEach, describe, expect, it } from 'vitest'
import { GatewayError } from '../../src/errors.ts'
import type { Store } from '../../src/store/store.ts'
import type { Rider } from '../../src/trips/rider.ts'
import { createTrips, type Trips, type TripsOptions } from '../../src/trips/trips.ts'
import { Timers } from '../support/isolates.ts'
import { call, riderNamed } from '../support/trips.ts'

const DECISION = call('decision')
const TIMEOUT = new GatewayError('ERR_STORE_TIMEOUT', 'late')

let time: Timers
/** The keys of each HTTP request. */
let requests: string[][]
let answer: (keys: string[]) => unknown[] | Promise<unknown[]>
let tasks: Promise<unknown>[]
const background = (task: Promise<unknown>) => void tasks.push(task.catch(() => {}))

beforeEach(() => {
  time = new Timers()
  requests = []
  answer = keys => keys.map(key => `re: ${key}`)
  tasks = []
})

function tripsWith(riders: readonly Rider[], options: Partial<TripsOptions> & Partial<Store> = {}): Trips {
  const { isCluster, ...others } = options
  const store: Store = {
    ...(isCluster !== undefined && { isCluster }),
    ping: async () => {},
    async run(calls) {
      const keys = calls.map(each => ('key' in each ? each.key : each.keys[0]!))
      requests.push(keys)
      return await answer(keys)
    },
  }
  const now = () => time.nowMs
  const probe = async (store: Store) => void (await store.run([call('probe')]))
  return createTrips(store, { riders, probe, now, timer: time.timer, sleep: async () => {}, ...others })
}

describe('a trip', () => {
  it('carries its riders in their order, those that come first before the decisions, and the others after them', async () => {
    const [switches, handOvers] = ['switches', 'hand-overs'].map(name => riderNamed(name, { isFirst: true }))
    const [units, returns] = ['units', 'returns'].map(name => riderNamed(name))
    const { store } = tripsWith([switches!, units!, handOvers!, returns!])
    expect(await store.run([DECISION, call('other')])).toEqual(['re: decision', 're: other'])
    expect(requests).toEqual([['switches', 'hand-overs', 'decision', 'other', 'units', 'returns']])
    for (const rider of [switches!, handOvers!, units!, returns!])
      expect(rider.trips).toEqual([
        { calls: [DECISION, call('other')], isAlone: false, isAnswering: true, keysPerCall: 50 },
      ])
    expect(units!.replies).toEqual(['re: units'])
    expect(handOvers!.replies).toEqual(['re: hand-overs'])
  })

  it('tells each rider that it was lost, with its fate, and fails its decisions', async () => {
    const riders = { switches: riderNamed('switches', { isFirst: true }), units: riderNamed('units') }
    const { store } = tripsWith([riders.switches, riders.units])
    answer = () => Promise.reject(TIMEOUT)
    await expect(store.run([DECISION])).rejects.toBe(TIMEOUT)
    expect([riders.switches.replies, riders.units.replies]).toEqual([[TIMEOUT], [TIMEOUT]])
    // An error that is not one of Sluice says nothing, so the calls may have run.
    answer = () => Promise.reject(new Error('x'))
    await expect(store.run([DECISION])).rejects.toThrow('x')
    expect(riders.units.replies[1]).toMatchObject({ code: 'ERR_STORE_UNREACHABLE', fate: 'may-have-run' })
    expect(riders.units.trips.map(({ isAnswering }) => isAnswering)).toEqual([true, false])
  })

  it.each([false, true])(
    'is not affected by a rider that throws, before it leaves or after, on a cluster: %s',
    async isCluster => {
      const broken: Rider = {
        isUnanswered() {
          throw new Error('isUnanswered')
        },
        aloneAfterMs() {
          throw new Error('aloneAfterMs')
        },
        load() {
          throw new Error('load')
        },
      }
      const late: Rider = {
        load: () => ({
          calls: [call('late')],
          done() {
            throw new Error('done')
          },
        }),
      }
      const returns = riderNamed('returns')
      const { store, schedule } = tripsWith([broken, late, returns], { isCluster })
      expect(await store.run([DECISION])).toEqual(['re: decision'])
      expect(returns.replies).toEqual(['re: returns'])
      schedule(background)
      answer = () => Promise.reject(TIMEOUT)
      await expect(store.run([DECISION])).rejects.toBe(TIMEOUT)
    },
  )

  it('knows that the store answers, even if an earlier trip fails later', async () => {
    const units = riderNamed('units')
    const { store } = tripsWith([units])
    const late = Promise.withResolvers<unknown[]>()
    answer = () => late.promise
    const first = store.run([DECISION])
    answer = keys => keys
    await store.run([DECISION])
    late.reject(TIMEOUT)
    await expect(first).rejects.toBe(TIMEOUT)
    await store.run([DECISION])
    expect(units.trips.at(-1)!.isAnswering).toBe(true)
  })

  it('has one key in each call on a cluster, and leaves out riders whose node may hang', async () => {
    const units = riderNamed('units')
    const switches = riderNamed('switches', { isFirst: true, isUnanswered: () => true })
    const onCluster = tripsWith([units, switches], { isCluster: true })
    expect(onCluster.store.isCluster).toBe(true)
    await onCluster.store.run([DECISION])
    await tripsWith([units, switches]).store.run([DECISION])
    expect(requests).toEqual([
      ['decision', 'units'],
      ['switches', 'decision', 'units'],
    ])
    expect(units.trips.map(({ keysPerCall }) => keysPerCall)).toEqual([1, 50])
  })
})

describe('a probe', () => {
  const breaker = { failures: 1, slowCalls: 1, slowAfterMs: 500, retryAfterMs: 1000 }

  it('carries every rider but those that stay off probes', async () => {
    const units = riderNamed('units', { isOffProbes: true })
    const trips = tripsWith([units, riderNamed('returns')], { breaker })
    answer = () => Promise.reject(TIMEOUT)
    await trips.store.run([DECISION]).catch(() => {})
    expect(trips.store.isOpen()).toBe(true)
    answer = keys => keys
    trips.schedule(background)
    await Promise.all(tasks)
    expect(requests.at(-1)).toEqual(['probe', 'returns'])
    expect(trips.store.isOpen()).toBe(false)
  })

  it('is made before a trip for a rider alone, which may be the only one that finds out that the store is back', async () => {
    const units = riderNamed('units', { isMeasured: true, isOffProbes: true })
    const trips = tripsWith([units], { breaker })
    answer = () => Promise.reject(TIMEOUT)
    await trips.store.run([DECISION]).catch(() => {})
    expect(await trips.sendAlone(units)).toBe(false)
    answer = keys => keys
    time.nowMs += 1000
    expect(await trips.sendAlone(units)).toBe(true)
    // The other messages of the rider travel beside it.
    expect(requests.slice(1)).toEqual([['probe'], ['probe'], ['units', 'units']])
  })

  it('is not needed for riders that the breaker does not measure: they wait until it is closed', async () => {
    const handOvers = { ...riderNamed('hand-overs'), aloneAfterMs: () => 0 }
    const units = riderNamed('units', { isMeasured: true, isOffProbes: true })
    const trips = tripsWith([handOvers, units], { breaker })
    // Slow, and no other rider is on it: it says nothing about decisions.
    answer = async keys => {
      time.nowMs += 600
      return keys
    }
    expect(await trips.sendAlone(handOvers)).toBe(true)
    expect([requests, trips.store.isOpen()]).toEqual([[['hand-overs']], false])
    expect(await trips.sendAlone(units)).toBe(true)
    expect(trips.store.isOpen()).toBe(true)
    const before = requests.length
    answer = () => Promise.reject(TIMEOUT)
    trips.schedule(background)
    await Promise.all(tasks)
    expect(requests.slice(before)).toEqual([['probe', 'hand-overs']])
  })
})

describe('a trip for a rider alone', () => {
  /** A rider with a message, which is gone when it was sent. */
  function messenger(delayMs: number) {
    let since: number | undefined
    const rider: Rider = {
      isMeasured: true,
      aloneAfterMs: () => (since === undefined ? undefined : Math.max(0, since + delayMs - time.nowMs)),
      load() {
        if (since === undefined) return undefined
        const sentSince = since
        since = undefined
        return {
          calls: [call('message')],
          done([reply]) {
            if (reply instanceof GatewayError) since = sentSince
          },
        }
      },
    }
    return {
      rider,
      write: () => {
        since ??= time.nowMs
      },
    }
  }

  it('is made when the rider has waited, once, whatever number of requests look after it', async () => {
    const { rider, write } = messenger(250)
    const trips = tripsWith([rider])
    for (let i = 0; i < 4; i++) {
      write()
      trips.schedule(background)
      await time.pass(50)
    }
    expect(requests).toEqual([])
    await time.pass(1000)
    expect(requests).toEqual([['message']])
    expect([tasks.length, time.waiting]).toEqual([1, 0])
  })

  it('is not made if another trip has carried the message', async () => {
    const { rider, write } = messenger(250)
    const trips = tripsWith([rider])
    write()
    trips.schedule(background)
    await time.pass(100)
    await trips.store.run([DECISION])
    await time.pass(1000)
    expect(requests).toEqual([['decision', 'message']])
  })

  it('is left to another request if the platform has ended the one that waits', async () => {
    const { rider, write } = messenger(250)
    const ended = tripsWith([rider], { timer: () => () => {} })
    write()
    ended.schedule(background)
    await time.pass(1249)
    ended.schedule(background)
    expect(requests).toEqual([])
    await time.pass(1)
    ended.schedule(background)
    await Promise.resolve()
    expect(requests).toEqual([['message']])
  })

  it('that fails is made again a moment later at the earliest, by the next request', async () => {
    const { rider, write } = messenger(0)
    const trips = tripsWith([rider])
    answer = () => Promise.reject(TIMEOUT)
    write()
    for (let i = 0; i < 500; i++) {
      trips.schedule(background)
      await time.pass(1)
    }
    expect(requests.length).toBe(2)
  })

  it('is made at most forty times in a row by one request, and for 28 seconds', async () => {
    const endless: Rider = { ...riderNamed('endless'), isMeasured: true, aloneAfterMs: () => 0 }
    const trips = tripsWith([endless])
    trips.schedule(background)
    await time.pass(100)
    expect(requests.length).toBe(40)
    requests.length = 0
    const steady: Rider = { ...riderNamed('steady'), isMeasured: true, aloneAfterMs: () => 1000 }
    tripsWith([steady]).schedule(background)
    await time.pass(60_000)
    expect(time.waiting).toBe(0)
  })

  it('is left to the next request after 25 seconds, and is made without one too', async () => {
    for (const hasOther of [true, false]) {
      const startedAt = time.nowMs
      requests.length = tasks.length = 0
      const lasting: Rider = {
        ...{ ...riderNamed('message'), isMeasured: true },
        aloneAfterMs: () => (time.nowMs < startedAt + 25_200 ? 100 : requests.length === 0 ? 0 : undefined),
      }
      const trips = tripsWith([lasting])
      trips.schedule(background)
      for (let passed = 0; passed < 30_000; passed += 50) {
        if (hasOther && passed < 25_100) trips.schedule(background)
        await time.pass(50)
      }
      expect([requests.length, tasks.length, time.waiting]).toEqual([1, hasOther ? 2 : 1, 0])
    }
  })

  it('is not delayed by a clock that was set back', async () => {
    const { rider, write } = messenger(250)
    const ended = tripsWith([rider], { timer: () => () => {} })
    write()
    ended.schedule(background)
    time.nowMs -= 3600e3
    write()
    ended.schedule(background)
    expect(tasks.length).toBe(2)
  })
})
