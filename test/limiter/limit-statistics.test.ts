/** Calls of limits by name in the statistics: what a call leaves, apart from requests, and when it is sent. */
import { expect, it } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { GatewayError } from '../../src/errors.ts'
import type { LimiterSettings } from '../../src/set-ups/limits/limiter.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { statsKey } from '../../src/store/keys.ts'
import type { Store } from '../../src/store/store.ts'
import { configOf, describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'
import { storedSums } from '../support/stored-counts.ts'
import { storeOf } from '../support/stores.ts'
import { NOON } from '../support/traffic.ts'

const LIMITS: ConfigInput['limits'] = {
  zendesk: [
    { name: 'minute', algorithm: 'sliding-log', limit: 30, period: '1m' },
    { name: 'trial', by: ['account'], algorithm: 'gcra', limit: 10, period: '1m', mode: 'shadow' },
  ],
  mail: [{ name: 'pace', algorithm: 'leaky-bucket', limit: 1, period: '1s', queue: 10 }],
  open: [{ name: 'day', algorithm: 'fixed-window', limit: 5, period: 'day', onStoreFailure: 'open' }],
  closed: [{ name: 'day', algorithm: 'fixed-window', limit: 5, period: 'day', onStoreFailure: 'closed' }],
}
/** `configOf` requires rules. These tests do not use this one. */
const RULE: RuleInput = { name: 'any', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }
const ACCOUNT = { account: '42' }

/** A process with a limiter, whose clock only the test and `acquire` move. */
function processOn(
  redis: RedisEngine,
  input: Partial<ConfigInput> = {},
  settings: Pick<LimiterSettings, 'waitUntil' | 'awaitsCounters'> = {},
) {
  let now = NOON
  let isDown = false
  /** Calls to the store that have not ended. */
  const pending = new Set<Promise<unknown>>()
  const timers: { at: number; run: () => void; isOptional: boolean | undefined }[] = []
  const clock = {
    now: () => now,
    sleep: async (ms: number) => {
      now += ms * 1e3
    },
    timer(ms: number, run: () => void, isOptional?: boolean) {
      timers.push({ at: now + ms * 1e3, run, isOptional })
      return () => {}
    },
  }
  const counted = storeOf(redis)
  const fail = () => Promise.reject(new GatewayError('ERR_STORE_UNREACHABLE', 'for the test'))
  const store: Store = {
    ...counted,
    run(calls) {
      const reply = isDown ? fail() : counted.run(calls)
      const ended: Promise<unknown> = reply.then(
        () => pending.delete(ended),
        () => pending.delete(ended),
      )
      pending.add(ended)
      return reply
    },
    ping: () => (isDown ? fail() : Promise.resolve()),
  }
  const config = configOf({
    rules: [RULE],
    limits: LIMITS,
    refusals: { rememberFor: 0 },
    stats: {},
    ...input,
  })
  const limiter = createLimiterOnStore(config, store, { clock, ...settings })
  return {
    limiter,
    trips: () => counted.requests.length,
    timers,
    /** The platform ends the work that is not kept alive. */
    endCalls: () => void timers.splice(0),
    setDown(value: boolean) {
      isDown = value
    },
    async pass(ms: number) {
      now += ms * 1e3
      for (const timer of timers.splice(0)) {
        if (timer.at <= now) timer.run()
        else timers.push(timer)
      }
      do {
        await Promise.all(pending)
        for (let turns = 0; turns < 3; turns++) await new Promise(resolve => setImmediate(resolve))
      } while (pending.size > 0)
    },
    /** The counters that the store has. */
    async counts(): Promise<Record<string, number>> {
      return storedSums(await redis.send(['HGETALL', statsKey(new Date(now / 1e3))]))
    },
  }
}

describeOnRedisEngine('the statistics of limits by name', fresh => {
  it('count each call once, and each rule by its own verdict, and add no trip to a call', async () => {
    const { limiter, pass, counts, trips, timers } = processOn(await fresh())
    for (let i = 0; i < 40; i++) await limiter.limit('zendesk', ACCOUNT)
    expect(trips()).toBe(40)
    expect(await counts()).toEqual({})
    expect(timers.map(({ isOptional }) => isOptional)).toEqual([true])
    await pass(10_000)
    expect(trips()).toBe(41)
    expect(await counts()).toEqual({
      'call allowed - zendesk': 30,
      'call limited - zendesk': 10,
      'rule allowed zendesk/minute - -': 30,
      'rule limited zendesk/minute - -': 10,
      'rule shadow_allowed zendesk/trial - -': 10,
      'rule shadow_limited zendesk/trial - -': 30,
    })
  })

  it('do not count peeks, refunds and resets', async () => {
    const { limiter, pass, counts } = processOn(await fresh())
    const decision = await limiter.limit('zendesk', ACCOUNT)
    await limiter.peek('zendesk', ACCOUNT)
    await limiter.refund(decision)
    await limiter.reset('zendesk', ACCOUNT)
    await expect(limiter.limit('zendesk', {})).rejects.toThrow(TypeError)
    await pass(10_000)
    expect(await counts()).toEqual({
      'call allowed - zendesk': 1,
      'rule allowed zendesk/minute - -': 1,
      'rule shadow_allowed zendesk/trial - -': 1,
    })
  })

  it('count a call of acquire once, by its last decision', async () => {
    const { limiter, pass, counts } = processOn(await fresh())
    for (let i = 0; i < 30; i++) await limiter.limit('zendesk', ACCOUNT)
    expect((await limiter.acquire('zendesk', ACCOUNT, { timeoutMs: 120_000 })).allowed).toBe(true)
    expect((await limiter.acquire('zendesk', ACCOUNT, { cost: 30, timeoutMs: 1 })).allowed).toBe(false)
    await pass(10_000)
    expect(await counts()).toMatchObject({
      'call allowed - zendesk': 31,
      'call limited - zendesk': 1,
      'rule allowed zendesk/minute - -': 31,
      'rule limited zendesk/minute - -': 1,
    })
  })

  it('count a settlement that the store did not confirm in time', async () => {
    const tokens = { name: 'tokens', unit: 'tokens', algorithm: 'gcra', limit: 1000, period: '1d' } as const
    const units = { tokens: { estimate: 200, ttl: '1m' } } as const
    const { limiter, pass, counts, setDown } = processOn(await fresh(), { units, limits: { llm: [tokens] } })
    const call = await limiter.reserve('llm', {})
    await pass(10_000)
    setDown(true)
    expect(await call.settle({ tokens: 5 })).toMatchObject({ allowed: false })
    await pass(61_000)
    setDown(false)
    await limiter.limit('llm', {})
    await pass(10_000)
    expect(await counts()).toMatchObject({ 'unsettled llm/tokens': 1 })
  })

  it('count what a process settles, also while it stops', async () => {
    const tokens = { name: 'tokens', unit: 'tokens', algorithm: 'gcra', limit: 1000, period: '1d' } as const
    const units = { tokens: { estimate: 200, ttl: '1m' } } as const
    const { limiter, pass, counts, setDown } = processOn(await fresh(), { units, limits: { llm: [tokens] } })
    const calls = [await limiter.reserve('llm', {}), await limiter.reserve('llm', {})] as const
    await calls[0].settle({ tokens: 5 })
    setDown(true)
    await calls[1].settle({ tokens: 300 })
    const closed = limiter.close()
    await pass(10)
    setDown(false)
    for (let i = 0; i < 100; i++) await pass(10)
    await closed
    expect(await counts()).toMatchObject({
      ...{ 'reservation made llm/tokens': 2, 'reservation settled llm/tokens': 2 },
      ...{ 'units reserved llm/tokens': 400, 'units cost llm/tokens': 305 },
    })
  })

  it('count a queue as refusing if the turn of a call would come too late', async () => {
    const { limiter, pass, counts } = processOn(await fresh())
    for (let i = 0; i < 5; i++) await limiter.limit('mail')
    expect((await limiter.acquire('mail', {}, { timeoutMs: 1500 })).allowed).toBe(false)
    await pass(10_000)
    expect(await counts()).toEqual({
      'call allowed - mail': 5,
      'call limited - mail': 1,
      'rule allowed mail/pace - -': 5,
      'rule limited mail/pace - -': 1,
    })
  })

  it('say which calls were decided without the store, and why', async () => {
    const { limiter, pass, counts, setDown } = processOn(await fresh(), { store: { breaker: false } })
    setDown(true)
    for (let i = 0; i < 3; i++) expect((await limiter.limit('open')).allowed).toBe(true)
    for (let i = 0; i < 2; i++) expect((await limiter.limit('closed')).allowed).toBe(false)
    await pass(10_000)
    setDown(false)
    await limiter.limit('open')
    for (let i = 0; i < 3; i++) await pass(10_000)
    expect(await counts()).toEqual({
      'call failed_open store-unreachable open': 3,
      'call failed_closed store-unreachable closed': 2,
      'call allowed - open': 1,
      'rule allowed open/day - -': 1,
    })
  })

  it('say which calls made no trip', async () => {
    const { limiter, pass, counts } = processOn(await fresh(), { refusals: { rememberFor: '1s' } })
    for (let i = 0; i < 8; i++) await limiter.limit('closed')
    await pass(10_000)
    const sums = await counts()
    expect(sums).toMatchObject({ 'call allowed - closed': 5, 'call limited - closed': 3 })
    // The store reports with the last unit that none is left.
    expect(sums['call-without-trip refusals closed']).toBe(3)
  })

  it('are sent by close(), and later calls are counted too', async () => {
    const { limiter, counts, trips, timers } = processOn(await fresh())
    await limiter.limit('mail')
    await limiter.close()
    expect(await counts()).toMatchObject({ 'call allowed - mail': 1 })
    expect(trips()).toBe(2)
    await limiter.close()
    expect(trips()).toBe(2)
    await limiter.limit('mail')
    await limiter.close()
    expect(await counts()).toMatchObject({ 'call allowed - mail': 2 })
    expect(timers.every(({ isOptional }) => isOptional)).toBe(true)
  })

  it('do not keep close() waiting for a store that is down', async () => {
    const { limiter, counts, setDown } = processOn(await fresh())
    await limiter.limit('mail')
    setDown(true)
    await limiter.close()
    setDown(false)
    // The store may have received the counters.
    await limiter.close()
    expect(await counts()).toEqual({ 'lost-calls': 1 })
  })

  it('do not keep a call alive, which would hold up a queue: a later call sends them, and is kept alive for that', async () => {
    const kept: Promise<unknown>[] = []
    const waitUntil = (task: Promise<unknown>) => void kept.push(task)
    const { limiter, pass, counts, endCalls } = processOn(await fresh(), {}, { waitUntil })
    await limiter.limit('mail')
    expect(kept).toEqual([])
    endCalls()
    await pass(11_000)
    expect(await counts()).toEqual({})
    await limiter.limit('mail')
    expect(kept).toHaveLength(1)
    await Promise.all(kept)
    expect(await counts()).toMatchObject({ 'call allowed - mail': 2 })
  })

  it('keep a call of a service binding alive until they are sent', async () => {
    const kept: Promise<unknown>[] = []
    const waitUntil = (task: Promise<unknown>) => void kept.push(task)
    const { limiter, pass, counts } = processOn(await fresh(), {}, { waitUntil, awaitsCounters: true })
    await limiter.limit('mail')
    await limiter.limit('mail')
    expect(kept).toHaveLength(1)
    await pass(10_000)
    await Promise.all(kept)
    expect(await counts()).toMatchObject({ 'call allowed - mail': 2 })
  })

  it('can be turned off', async () => {
    const { limiter, pass, counts, timers } = processOn(await fresh(), { stats: { keep: false } })
    await limiter.limit('mail')
    expect(timers).toEqual([])
    await pass(10_000)
    await limiter.close()
    expect(await counts()).toEqual({})
  })
})
