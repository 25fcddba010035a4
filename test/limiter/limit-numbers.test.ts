/** Numbers at the call: a limit whose limit and period each call gives (`numbers: 'call'`). */
import { beforeEach, expect, it } from 'vitest'
import type { CallNumbers } from '../../src/set-ups/limits/arguments.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import type { Limiter, RefundableDecision } from '../../src/set-ups/limits/limiter-shape.ts'
import { configOf, describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'
import { storeOf } from '../support/stores.ts'
import { NOON } from '../support/traffic.ts'

const { limits } = configOf({
  units: { tokens: { estimate: 10 } },
  limits: {
    tenant: [
      {
        ...{ name: 'quota', by: ['tenant'], algorithm: 'gcra', numbers: 'call' },
        max: { limit: 10_000, period: '1m' },
      },
    ],
    window: [
      {
        ...{ name: 'quota', by: ['tenant'], algorithm: 'fixed-window', numbers: 'call' },
        max: { limit: 1000, period: '1s' },
      },
      { name: 'own', by: ['tenant'], algorithm: 'gcra', limit: 50, period: '1m' },
    ],
    day: [
      {
        ...{
          name: 'quota',
          by: ['tenant'],
          algorithm: 'fixed-window',
          numbers: 'call',
          timeZone: 'Europe/Berlin',
        },
        max: { limit: 1000, period: 'day' },
      },
    ],
    queue: [
      {
        name: 'quota',
        algorithm: 'leaky-bucket',
        numbers: 'call',
        max: { limit: 100, period: '1s', queue: 50 },
      },
    ],
    held: [{ name: 'quota', by: ['tenant'], algorithm: 'concurrency', numbers: 'call', max: { limit: 100 } }],
    llm: [
      {
        ...{ name: 'quota', by: ['tenant'], unit: 'tokens', algorithm: 'gcra', numbers: 'call' },
        max: { limit: 10_000, period: '1m' },
      },
    ],
    leased: [
      {
        ...{
          name: 'quota',
          by: ['tenant'],
          algorithm: 'fixed-window',
          numbers: 'call',
          lease: { for: '10s' },
        },
        max: { limit: 100_000, period: '1s' },
      },
    ],
  },
})
const T = { tenant: 't' }
const of = (limit: number, period = '1m', more: object = {}): { numbers: CallNumbers } => ({
  numbers: { quota: { limit, period, ...more } },
})

describeOnRedisEngine('a limit whose numbers each call gives', fresh => {
  let redis: RedisEngine
  let time: number
  let trips: number
  let onTrip: () => void
  let limiter: Limiter
  const processOn = (): Limiter => {
    const working = storeOf(redis)
    const store = {
      ...working,
      run: async (...args: Parameters<typeof working.run>) => {
        trips += 1
        onTrip()
        return await working.run(...args)
      },
    }
    return createLimiterOnStore({ limits, refusals: { rememberForMs: 1000 } }, store, {
      clock: { now: () => time, sleep: async () => {} },
    })
  }
  beforeEach(async () => {
    redis = await fresh()
    time = NOON
    trips = 0
    onTrip = () => {}
    limiter = processOn()
  })
  const copyOf = (decision: RefundableDecision): RefundableDecision => JSON.parse(JSON.stringify(decision))
  const remaining = async (name: string, numbers: object) =>
    (await limiter.peek(name, T, numbers)).rules[0]!.remaining

  it('admits as many as the call says, in one trip', async () => {
    const decision = await limiter.limit('tenant', T, { cost: 20, ...of(300) })
    expect(decision).toMatchObject({ allowed: true, rules: [{ limit: 300, remaining: 280 }], ...of(300) })
    expect(trips).toBe(1)
    expect(await limiter.limit('tenant', T, { cost: 281, ...of(300) })).toMatchObject({ allowed: false })
    expect(await remaining('tenant', of(300))).toBe(280)
  })

  it('counts a rate anew under other numbers, and keeps the counts of a window', async () => {
    await limiter.limit('tenant', T, { cost: 20, ...of(300) })
    expect(await remaining('tenant', of(400))).toBe(400)
    expect(await remaining('tenant', of(300, '1h'))).toBe(300)
    await limiter.limit('window', T, { cost: 20, ...of(300) })
    expect(await remaining('window', of(400))).toBe(380)
    expect(await remaining('window', of(400, '1h'))).toBe(400)
    expect(await remaining('window', of(10))).toBe(0)
  })

  it('has the burst of the call, a queue, units in flight, and the day of a time zone', async () => {
    expect(await remaining('tenant', of(300, '1m', { burst: 5 }))).toBe(5)
    const queued = { numbers: { quota: { limit: 10, period: '1s', queue: 3 } } }
    const delays = []
    for (let i = 0; i < 5; i++) delays.push((await limiter.limit('queue', {}, queued)).delayMs)
    expect(delays).toEqual([0, 100, 200, 300, 0])
    const two = { numbers: { quota: { limit: 2 } } }
    const first = await limiter.limit('held', T, two)
    await limiter.limit('held', T, two)
    expect((await limiter.limit('held', T, two)).allowed).toBe(false)
    first.release()
    expect((await limiter.limit('held', T, { numbers: { quota: { limit: 3 } } })).allowed).toBe(true)
    const daily = await limiter.limit('day', T, two)
    expect(daily.rules[0]).toMatchObject({ limit: 2, remaining: 1, resetAfterMs: 11 * 3600e3 })
  })

  it('remembers no refusal for calls with other numbers', async () => {
    const few = { cost: 10, ...of(10) }
    await limiter.limit('tenant', T, few)
    expect((await limiter.limit('tenant', T, few)).allowed).toBe(false)
    const before = trips
    expect((await limiter.limit('tenant', T, few)).allowed).toBe(false)
    expect(trips).toBe(before)
    expect((await limiter.limit('tenant', T, { cost: 10, ...of(300) })).allowed).toBe(true)
    const window = { cost: 10, ...of(10) }
    await limiter.limit('window', T, window)
    expect((await limiter.limit('window', T, window)).allowed).toBe(false)
    expect((await limiter.limit('window', T, { cost: 10, ...of(300) })).allowed).toBe(true)
  })

  it('serves no call with other numbers from a lease', async () => {
    for (let i = 0; i < 40; i++) {
      time += 1000
      expect((await limiter.limit('leased', T, of(100_000))).allowed).toBe(true)
    }
    expect(trips).toBeLessThan(40)
    expect(await limiter.limit('leased', T, of(10))).toMatchObject({ allowed: false, rules: [{ limit: 10 }] })
    await limiter.close()
    expect(await remaining('leased', of(100_000))).toBe(100_000 - 40)
  })

  it('gives units back to the record of the call that has spent them, also in another process', async () => {
    const decision = await limiter.limit('tenant', T, { cost: 20, ...of(300) })
    await limiter.limit('tenant', T, { cost: 30, ...of(400) })
    const copy = copyOf(decision)
    expect(await processOn().refund(copy)).toMatchObject({ allowed: true, rules: [{ remaining: 300 }] })
    expect(await limiter.refund(decision)).toMatchObject({ allowed: true })
    expect(await remaining('tenant', of(300))).toBe(300)
    expect(await remaining('tenant', of(400))).toBe(370)
    const { numbers: _, ...without } = copyOf(await limiter.limit('tenant', T, { cost: 20, ...of(300) }))
    expect(await limiter.refund(without)).toMatchObject({ changedRules: ['quota'] })
  })

  it('reserves, and settles in the record that has reserved', async () => {
    const call = await limiter.reserve('llm', T, { amounts: { tokens: 100 }, ...of(300) })
    expect(call.reserved).toEqual({ quota: 100 })
    await limiter.limit('llm', T, { amounts: { tokens: 7 }, ...of(400) })
    const copy = JSON.parse(JSON.stringify(call))
    expect(await processOn().settle(copy, { tokens: 30 })).toMatchObject({ applied: true })
    expect(await limiter.settle(copy, { tokens: 30 })).toMatchObject({ applied: false })
    expect(await remaining('llm', of(300))).toBe(270)
    expect(await remaining('llm', of(400))).toBe(393)
  })

  it('gives the place of a call that has given up back to its queue', async () => {
    const queued = of(10, '1s', { queue: 5 })
    const places = async () => (await limiter.peek('queue', {}, queued)).rules[0]!.remaining
    await limiter.limit('queue', {}, queued)
    const before = await places()
    const abort = new AbortController()
    onTrip = () => abort.abort()
    await expect(limiter.acquire('queue', {}, { ...queued, signal: abort.signal })).rejects.toThrow()
    // Two trips for what it has spent: units, and the place.
    await expect.poll(() => trips).toBe(5)
    expect(await places()).toBe(before)
    expect(trips).toBe(6)
  })

  it('waits and resets under its numbers', async () => {
    await limiter.limit('tenant', T, { cost: 10, ...of(10) })
    expect(await limiter.acquire('tenant', T, { ...of(10), timeoutMs: 10 })).toMatchObject({ allowed: false })
    expect(await limiter.acquire('tenant', T, { ...of(300), timeoutMs: 10 })).toMatchObject({ allowed: true })
    await limiter.reset('tenant', T, of(10))
    expect(await remaining('tenant', of(10))).toBe(10)
    expect(await remaining('tenant', of(300))).toBe(299)
    await limiter.limit('window', T, { cost: 10, ...of(10) })
    await limiter.reset('window', T, { rule: 'own' })
    expect((await limiter.peek('window', T, of(10))).rules).toMatchObject([
      { remaining: 0 },
      { remaining: 50 },
    ])
  })

  it.each<[limit: string, numbers: unknown, message: RegExp]>([
    [
      'tenant',
      undefined,
      /numbers of 'quota' from each call.*Use numbers: { quota: { limit: 300, period: '1m' } }/,
    ],
    ['tenant', 5, /numbers is 5/],
    ['tenant', { quota: 5 }, /numbers\.quota is 5/],
    ['tenant', { quota: {} }, /numbers\.quota\.limit is undefined/],
    // A row whose columns are getters of its class: `max` would count.
    ['tenant', { quota: Object.create({ limit: 300 }) }, /numbers\.quota\.limit is undefined/],
    ['tenant', { quota: { limit: 0 } }, /numbers\.quota\.limit is 0\. Use a whole number from 1/],
    ['tenant', { quota: { limit: '300' } }, /numbers\.quota\.limit is '300'/],
    ['tenant', { quota: { limit: 1.5 } }, /numbers\.quota\.limit is 1\.5/],
    [
      'tenant',
      { quota: { limit: 3, period: 'minute' } },
      /numbers\.quota\.period is 'minute'\. Use a duration/,
    ],
    ['tenant', { quota: { limit: 3, period: '400d' } }, /numbers\.quota\.period is '400d'/],
    ['tenant', { quota: { limit: 3, period: 60 } }, /numbers\.quota\.period is 60/],
    ['tenant', { quota: { limit: 3, burst: 0 } }, /numbers\.quota\.burst is 0/],
    ['tenant', { quota: { limit: 3, queue: 1 } }, /numbers\.quota\.queue has no effect with gcra/],
    ['tenant', { quota: { limit: 10_001 } }, /10001 is above max\.limit, 10000/],
    [
      'tenant',
      { quota: { limit: 300, period: '1s' } },
      /300 per 1 second is a higher rate than max allows, 10000 per 1 minute/,
    ],
    ['tenant', { quota: { limit: 3, burst: 10_001 } }, /10001 is above max\.burst, 10000/],
    ['tenant', { quota: { limit: 3, period: '366d', burst: 100 } }, /days to come back/],
    ['tenant', { quota: { limit: 3 }, other: { limit: 3 } }, /has no rule 'other'\. Rules: quota/],
    ['window', { quota: { limit: 3 }, own: { limit: 3 } }, /numbers\.own: this rule .* from the config/],
    ['day', { quota: { limit: 3, period: '1d' } }, /calendar period/],
    ['queue', { quota: { limit: 3, queue: 51 } }, /51 is above max\.queue, 50/],
    ['held', { quota: { limit: 3, period: '1s' } }, /period has no effect with concurrency/],
    ['held', { quota: { limit: 101 } }, /101 is above max\.limit, 100/],
  ])('throws, without a trip, for %s with %j', async (name, numbers, message) => {
    const identity = name === 'queue' ? {} : T
    const options = numbers === undefined ? {} : { numbers: numbers as CallNumbers }
    await expect(limiter.limit(name, identity, options)).rejects.toThrow(message)
    await expect(limiter.peek(name, identity, options)).rejects.toThrow(TypeError)
    await expect(limiter.acquire(name, identity, options)).rejects.toThrow(TypeError)
    await expect(limiter.reset(name, identity, options)).rejects.toThrow(TypeError)
    expect(trips).toBe(0)
  })

  it('says that another limit takes no numbers', async () => {
    const other = createLimiterOnStore(
      configOf({ limits: { sms: [{ name: 'day', algorithm: 'fixed-window', limit: 5, period: '1d' }] } }),
      storeOf(redis),
    )
    await expect(other.limit('sms', {}, of(3))).rejects.toThrow(
      /has its numbers from the config\. Leave numbers out/,
    )
  })
})
