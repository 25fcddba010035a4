/** Refunds of limits by name: each unit of a decision is given back once, however often and wherever that is asked for. */
import { beforeEach, expect, it } from 'vitest'
import { GatewayError } from '../../src/errors.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import type { Limiter, RefundableDecision } from '../../src/set-ups/limits/limiter-shape.ts'
import type { Store } from '../../src/store/store.ts'
import { configOf, describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'
import { storeOf } from '../support/stores.ts'
import { NOON } from '../support/traffic.ts'

const { limits } = configOf({
  rules: [{ name: 'any', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }],
  limits: {
    mails: [
      { name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 100, period: '1d' },
      { name: 'pace', by: ['account'], algorithm: 'gcra', limit: 5, period: '1h', burst: 50 },
      { name: 'all', algorithm: 'sliding-log', limit: 80, period: '1h' },
    ],
    leased: [
      {
        name: 'day',
        by: ['account'],
        algorithm: 'fixed-window',
        limit: 10_000,
        period: '1d',
        lease: { for: '10s' },
      },
    ],
  },
})
const A = { account: 'a' }

describeOnRedisEngine('a refund of a limit by name', fresh => {
  let redis: RedisEngine
  let time: number
  let fault: 'not-sent' | 'may-have-run' | undefined
  let limiter: Limiter
  const processOn = (): Limiter => {
    const working = storeOf(redis)
    const store: Store = {
      ...working,
      async run(calls) {
        const lost = fault && new GatewayError('ERR_STORE_UNREACHABLE', fault, { fate: fault })
        if (fault === 'not-sent') throw lost!
        const replies = await working.run(calls)
        if (lost) throw lost
        return replies
      },
    }
    return createLimiterOnStore({ limits }, store, { clock: { now: () => time, sleep: async () => {} } })
  }
  beforeEach(async () => {
    redis = await fresh()
    time = NOON
    fault = undefined
    limiter = processOn()
    await limiter.limit('mails', A, { cost: 20 })
  })
  const left = async () => (await limiter.peek('mails', A)).rules.map(({ remaining }) => remaining)
  const copyOf = (decision: RefundableDecision): RefundableDecision => JSON.parse(JSON.stringify(decision))

  it('of a copy, in another process, gives back nothing twice', async () => {
    const decision = await limiter.limit('mails', A, { cost: 6 })
    await limiter.refund(decision)
    expect(await processOn().refund(copyOf(decision))).toMatchObject({ allowed: true })
    expect(await left()).toEqual([80, 30, 60])
  })

  it.each(['not-sent', 'may-have-run'] as const)('can be repeated after a failure (%s)', async fate => {
    const decision = await limiter.limit('mails', A, { cost: 6 })
    fault = fate
    expect(await limiter.refund(decision)).toMatchObject({ allowed: false, degraded: 'store-unreachable' })
    fault = undefined
    for (let i = 0; i < 2; i++) expect(await limiter.refund(decision)).toMatchObject({ allowed: true })
    expect(await left()).toEqual([80, 30, 60])
  })

  it('in parts gives back their sum, and no more than was spent', async () => {
    const decision = await limiter.limit('mails', A, { cost: 6 })
    await Promise.all([1, 2].map(cost => limiter.refund(decision, { cost })))
    expect(await left()).toEqual([77, 27, 57])
    await limiter.refund(decision, { cost: { day: 2 } })
    expect(await left()).toEqual([79, 27, 57])
    await limiter.refund(decision, { cost: 5 })
    expect(await left()).toEqual([80, 30, 60])
  })

  it('in parts, by two processes, gives back the largest sum', async () => {
    const decision = await limiter.limit('mails', A, { cost: 6 })
    await limiter.refund(decision, { cost: 2 })
    await processOn().refund(copyOf(decision), { cost: 3 })
    expect(await left()).toEqual([77, 27, 57])
  })

  it('of a decision from a lease gives back its own units once', async () => {
    const decisions = []
    for (let i = 0; i < 40; i++) decisions.push(await limiter.limit('leased', A))
    await limiter.close()
    const leftNow = async () => (await processOn().peek('leased', A)).rules[0]!.remaining
    const before = await leftNow()
    for (const decision of [...decisions.slice(-3), ...decisions.slice(-3)])
      await processOn().refund(copyOf(decision))
    expect(await leftNow()).toBe(before + 3)
  })

  it('leaves a record that ends when no refund could have an effect', async () => {
    const decision = await limiter.limit('mails', A, { cost: 6 })
    await limiter.refund(decision)
    const [key, ...others] = (await redis.send(['KEYS', '*:refunds:*'])) as Buffer[]
    expect(others).toEqual([])
    const seconds = Number(await redis.send(['TTL', key!.toString()]))
    expect(seconds).toBeGreaterThan(86_400)
    expect(seconds).toBeLessThanOrEqual(4 * 86_400)
    time += 86_400e6
    await processOn().refund({ ...copyOf(decision), id: 'another00000' })
    expect((await limiter.peek('mails', A)).rules[0]!.remaining).toBe(100)
  })

  it('of a decision without an id, as earlier versions made them, is remembered by the process', async () => {
    const { id: _, ...decision } = await limiter.limit('mails', A, { cost: 6 })
    await limiter.refund(decision)
    await limiter.refund(decision)
    expect(await left()).toEqual([80, 30, 60])
  })
})
