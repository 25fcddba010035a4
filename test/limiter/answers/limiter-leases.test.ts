/** Limits by name with leases: the effect of calls, refunds, resets and peeks on the leased units. */
import { expect, it, vi } from 'vitest'
import { SYSTEM_TIMER, type Timer } from '../../../src/clock.ts'
import type { ConfigInput, RuleInput } from '../../../src/config/check/schema.ts'
import type { LimitDecision, Limiter } from '../../../src/set-ups/limits/limiter.ts'
import { createLimiterOnStore } from '../../../src/set-ups/limits/limiter-on-store.ts'
import { configOf, describeOnRedisEngine, type RedisEngine } from '../../support/engines.ts'
import { PATIENT } from '../../support/patience.ts'
import { type CountedStore, storeOf } from '../../support/stores.ts'
import { NOON } from '../../support/traffic.ts'

const LIMIT = 10_000
const SECOND = 1e6
/** How long a trip to the store takes (µs). */
const TRIP = 400_000
const limits: ConfigInput['limits'] = {
  calls: [
    { name: 'window', by: ['account'], algorithm: 'fixed-window', limit: LIMIT, period: '20s' },
    { name: 'steady', by: ['account'], algorithm: 'gcra', limit: LIMIT, period: '300d' },
  ],
  mixed: [
    { name: 'leased', algorithm: 'fixed-window', limit: LIMIT, period: '20s' },
    { name: 'exact', algorithm: 'sliding-log', limit: 1000, period: '20s' },
  ],
}
/** `configOf` requires rules. These tests do not use this one. */
const RULE: RuleInput = { name: 'any', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }
const ACCOUNT = { account: '42' }

interface Setup {
  limiter: Limiter
  store: CountedStore
  /** Delays the replies of the store to the limiter until the returned function is called. */
  hold(): () => void
  /** Advances the clock. @param time µs */
  pass(time: number): void
  /** The spent units of each rule of `calls`, as counted by the store. */
  spent(): Promise<number[]>
}

/** @param timer default: one that never fires, so that no separate trips give units back */
function setUp(redis: RedisEngine, timer: Timer = () => () => {}): Setup {
  const config = configOf({ rules: [RULE], limits, lease: { for: '10s' } })
  const store = storeOf(redis)
  // The clock starts at the beginning of a window.
  let now = Math.ceil(NOON / (20 * SECOND)) * 20 * SECOND
  const clock = { now: () => now, sleep: async () => {}, timer }
  let held: Promise<void> | undefined
  const holding = {
    ...store,
    async run(calls: Parameters<typeof store.run>[0]) {
      const replies = await store.run(calls)
      await held
      return replies
    },
  }
  const limiter = createLimiterOnStore(config, holding, { clock })
  const other = createLimiterOnStore(config, store, { clock })
  return {
    limiter,
    store,
    hold() {
      const { promise, resolve } = Promise.withResolvers<void>()
      held = promise
      return resolve
    },
    pass(time) {
      now += time
    },
    async spent() {
      const { rules } = await other.peek('calls', ACCOUNT)
      return rules.map(({ remaining }) => LIMIT - remaining)
    },
  }
}

const callsTo = ({ requests }: CountedStore) => requests.reduce((sum, calls) => sum + calls, 0)

/** Makes calls, and expects that all of them are allowed. */
async function call(limiter: Limiter, times: number): Promise<LimitDecision[]> {
  const decisions: LimitDecision[] = []
  for (let i = 0; i < times; i++) decisions.push(await limiter.limit('calls', ACCOUNT))
  expect(decisions.every(({ allowed }) => allowed)).toBe(true)
  return decisions
}

interface Flood {
  /** The calls to the store before the flood. */
  before: number
  /** Lets the store answer. */
  answer(): void
  /** Resolves when all calls of the flood have been allowed. */
  flood: Promise<unknown>
}

/**
 * Makes 120 calls at once while the store does not answer. The limiter has made 101 calls before, and knows that a trip takes `TRIP`.
 * Resolves when the first call of the flood has reached the store.
 */
async function floodHeldStore({ limiter, store, hold, pass }: Setup): Promise<Flood> {
  const answerFirst = hold()
  const first = call(limiter, 1)
  await vi.waitUntil(() => store.requests.length === 1, PATIENT)
  pass(TRIP)
  answerFirst()
  await first
  await call(limiter, 100)
  const before = callsTo(store)
  const answer = hold()
  const flood = Promise.all(Array.from({ length: 120 }, () => call(limiter, 1)))
  await vi.waitUntil(() => callsTo(store) > before, PATIENT)
  return { before, answer, flood }
}

describeOnRedisEngine('limits by name with leases', fresh => {
  it('make few trips, and after close() have spent only the units of the calls', async () => {
    const { limiter, store, spent } = setUp(await fresh())
    const decisions = await call(limiter, 200)
    expect(store.requests.length).toBeLessThan(20)
    for (const [i, { rules, at }] of decisions.entries()) {
      expect(rules.map(({ remaining }) => remaining)).toEqual([LIMIT - i - 1, LIMIT - i - 1])
      expect(at).toBeGreaterThan(0)
    }
    expect((await spent())[0]).toBeGreaterThan(200)
    await limiter.close()
    expect(await spent()).toEqual([200, 200])
  })

  it('give back the units of replies that arrive after close()', async () => {
    const { limiter, store, hold, spent } = setUp(await fresh(), SYSTEM_TIMER)
    await call(limiter, 3)
    const release = hold()
    // This is the first call that also requests units for later calls.
    const late = call(limiter, 1)
    await vi.waitUntil(() => store.requests.length === 4, PATIENT)
    let isClosed = false
    const closed = limiter.close().then(() => {
      isClosed = true
    })
    await vi.waitUntil(async () => (await spent())[0] === 7, PATIENT)
    expect(isClosed).toBe(false)
    release()
    await Promise.all([late, closed])
    expect(await spent()).toEqual([4, 4])
    // From then on the store decides each call.
    for (let calls = 5; calls < 20; calls++) {
      await call(limiter, 1)
      expect(await spent()).toEqual([calls, calls])
    }
  })

  it('calls that find no units wait for units that another call has requested, without a trip', async () => {
    const setup = setUp(await fresh())
    const { limiter, store, spent } = setup
    const { before, answer, flood } = await floodHeldStore(setup)
    answer()
    await flood
    expect(callsTo(store) - before).toBeLessThanOrEqual(2)
    await limiter.close()
    expect(await spent()).toEqual([221, 221])
  })

  it('a call that has waited for the time of two trips makes its own trip', async () => {
    const setup = setUp(await fresh())
    const { store, pass } = setup
    const { before, answer, flood } = await floodHeldStore(setup)
    pass(2 * TRIP)
    await vi.waitUntil(() => callsTo(store) > before + 5, PATIENT)
    answer()
    await flood
  })

  it('a refund gives back the units of one call, and the lease continues', async () => {
    const { limiter, store, spent } = setUp(await fresh())
    const decisions = await call(limiter, 50)
    const trips = store.requests.length
    for (const decision of decisions.slice(-5)) expect((await limiter.refund(decision)).allowed).toBe(true)
    expect(store.requests.length).toBe(trips + 5)
    await call(limiter, 1)
    expect(store.requests.length).toBe(trips + 5)
    await limiter.close()
    expect(await spent()).toEqual([46, 46])
  })

  it('a refund does not give units of the old window back to the new one', async () => {
    const { limiter, store, pass, spent } = setUp(await fresh())
    pass(19 * SECOND)
    await call(limiter, 50)
    pass(2 * SECOND)
    // Makes calls until the store has answered in the new window. The unused units of the old window stay in the lease.
    const before = store.requests.length
    while (store.requests.length === before) await call(limiter, 1)
    const [inWindow] = await spent()
    const trips = store.requests.length
    const [old] = await call(limiter, 1)
    expect(store.requests.length).toBe(trips)
    await limiter.refund(old!)
    expect((await spent())[0]).toBe(inWindow)
  })

  it('after a reset exactly the whole budget is available, and leased units are not added to it', async () => {
    const { limiter, store, spent } = setUp(await fresh())
    await call(limiter, 50)
    await limiter.reset('calls', ACCOUNT)
    const trips = store.requests.length
    await call(limiter, 1)
    expect(store.requests.length).toBe(trips + 1)
    await call(limiter, 9)
    await limiter.close()
    expect(await spent()).toEqual([10, 10])
  })

  it('a peek spends nothing, and does not change the lease', async () => {
    const { limiter, store, spent } = setUp(await fresh())
    await call(limiter, 50)
    const [before] = await spent()
    expect((await limiter.peek('calls', ACCOUNT)).allowed).toBe(true)
    expect((await spent())[0]).toBe(before)
    const trips = store.requests.length
    await call(limiter, 1)
    expect(store.requests.length).toBe(trips)
  })

  it('each call makes a trip if a rule of the limit has no lease, or if the call costs nothing', async () => {
    const { limiter, store } = setUp(await fresh())
    for (let i = 0; i < 20; i++) await limiter.limit('mixed')
    for (let i = 0; i < 20; i++) await limiter.limit('calls', ACCOUNT, { cost: 0 })
    expect(store.requests.length).toBe(40)
  })

  it('costs can differ by rule', async () => {
    const { limiter, store, spent } = setUp(await fresh())
    let sum = 0
    for (let i = 0; i < 120; i++) {
      const steady = 1 + (i % 3) * 4
      sum += steady
      expect((await limiter.limit('calls', ACCOUNT, { cost: { steady } })).allowed).toBe(true)
    }
    expect(store.requests.length).toBeLessThan(60)
    await limiter.close()
    expect(await spent()).toEqual([120, sum])
  })
})
