/** The limiter in the isolate's own memory: what it admits, what it remembers, and what it tells the store afterwards. */
import { describe, expect, it } from 'vitest'
import type { LimitRuleInput } from '../../src/config/check/schema.ts'
import { compileLimitRule } from '../../src/config/compile-rule.ts'
import { GatewayError } from '../../src/errors.ts'
import { type CountedRule, count } from '../../src/limiter/count.ts'
import { createLocalLimiter } from '../../src/limiter/local.ts'
import { ask, type Outcome } from '../../src/limiter/wire.ts'
import { describeOnRedisEngine } from '../support/engines.ts'
import { storeOf } from '../support/stores.ts'

const RULES: LimitRuleInput[] = [
  ...(['gcra', 'token-bucket', 'leaky-bucket', 'fixed-window', 'sliding-window', 'sliding-log'] as const).map(
    algorithm => ({ name: algorithm, algorithm, limit: 10, period: '7d' }) as LimitRuleInput,
  ),
  { name: 'calendar', algorithm: 'fixed-window', limit: 10, period: 'month' },
]

const KEY = 'sluice:{ip:192.0.2.1}:state'

const counted = (rule: LimitRuleInput, cost: number, key = KEY): CountedRule =>
  count(compileLimitRule(rule), key, cost)

describeOnRedisEngine('what was spent in the isolate', fresh => {
  it.each(RULES)('is told to the store: $name', async rule => {
    const store = storeOf(await fresh())
    const local = createLocalLimiter(1)
    for (const cost of [1, 3]) expect(local.count([counted(rule, cost)]).admitted).toBe(true)
    expect(local.hasSpent()).toBe(true)
    await local.handOver(store)
    expect(local.hasSpent()).toBe(false)
    const [now] = await ask(store, [{ rules: [counted(rule, 0)], plans: [] }])
    // A bucket holds the one that departs, and ten more.
    const all = rule.algorithm === 'leaky-bucket' ? 11 : 10
    expect(now).toMatchObject({ verdicts: [{ remaining: all - 4 }] })
  })

  it('is told only as far as it has not come back since', async () => {
    const store = storeOf(await fresh())
    let time = Date.now()
    const local = createLocalLimiter(1, () => time)
    const rule: LimitRuleInput = { name: 'minute', algorithm: 'gcra', limit: 60, period: '1m' }
    expect(local.count([counted(rule, 60)]).admitted).toBe(true)
    time += 45_000
    await local.handOver(store)
    const [now] = await ask(store, [{ rules: [counted(rule, 0)], plans: [] }])
    const { remaining } = (now as Outcome).verdicts[0]!
    expect(remaining).toBeGreaterThanOrEqual(45)
    expect(remaining).toBeLessThan(50)
  })

  it('is told as far as others have left something', async () => {
    const store = storeOf(await fresh())
    const rule = RULES[3]!
    await ask(store, [{ rules: [counted(rule, 8)], plans: [] }])
    const local = createLocalLimiter(1)
    local.count([counted(rule, 5)])
    await local.handOver(store)
    const [now] = await ask(store, [{ rules: [counted(rule, 0)], plans: [] }])
    expect(now).toMatchObject({ verdicts: [{ remaining: 0 }] })
  })

  it('is told some fifty identities at a time, each in a call of its own', async () => {
    const store = storeOf(await fresh(), { isCluster: true })
    const local = createLocalLimiter(1)
    for (let i = 0; i < 120; i++) local.count([counted(RULES[0]!, 1, `sluice:{ip:192.0.2.${i}}:state`)])
    while (local.hasSpent()) await local.handOver(store)
    expect(store.requests).toEqual([50, 50, 20])
  })
})

describe('the limiter in the isolate', () => {
  it('never tells anything twice, though the store may not have heard it', async () => {
    const local = createLocalLimiter(1)
    local.count([counted(RULES[0]!, 1)])
    const failing = {
      run: () => Promise.reject(new GatewayError('ERR_STORE_TIMEOUT', 'no answer')),
      ping: async () => {},
    }
    await expect(local.handOver(failing)).rejects.toThrow('no answer')
    expect(local.hasSpent()).toBe(false)
  })

  it('keeps what the store refuses, so that a Redis that answers and cannot write gives nobody a share anew', async () => {
    const local = createLocalLimiter(0.5)
    const few: LimitRuleInput = { name: 'few', algorithm: 'fixed-window', limit: 2, period: '7d' }
    expect(local.count([counted(few, 1)]).admitted).toBe(true)
    const readOnly = {
      run: () => Promise.reject(new GatewayError('ERR_STORE_REFUSED', 'READONLY')),
      ping: async () => {},
    }
    await expect(local.handOver(readOnly)).rejects.toThrow('READONLY')
    expect(local.count([counted(few, 1)]).admitted).toBe(false)
    expect(local.hasSpent()).toBe(true)
  })

  it('keeps a bounded number of identities, those that came last', async () => {
    const local = createLocalLimiter(1)
    const few: LimitRuleInput = { name: 'one', algorithm: 'fixed-window', limit: 1, period: '7d' }
    const key = (i: number) => `sluice:{ip:${i}}:state`
    for (let i = 0; i < 30_000; i++) expect(local.count([counted(few, 1, key(i))]).admitted).toBe(true)
    expect(local.count([counted(few, 1, key(29_999))]).admitted).toBe(false)
    expect(local.count([counted(few, 1, key(0))]).admitted).toBe(true)
  })

  it('remembers of a log two numbers and no entries', () => {
    const local = createLocalLimiter(1)
    const log: LimitRuleInput = { name: 'log', algorithm: 'sliding-log', limit: 50_000, period: '1h' }
    for (let i = 0; i < 5; i++) expect(local.count([counted(log, 10_000)]).admitted).toBe(true)
    const { admitted, verdicts } = local.count([counted(log, 1)])
    expect(admitted).toBe(false)
    expect(verdicts[0]).toMatchObject({ remaining: 0, rule: { algorithm: 'sliding-log', limit: 50_000 } })
  })

  it('admits what a share of the limit does in any stretch of time, whatever the algorithm', () => {
    for (const algorithm of ['gcra', 'token-bucket'] as const) {
      let time = 1.7e12
      const local = createLocalLimiter(0.1, () => time)
      const rule: LimitRuleInput = { name: 'r', algorithm, limit: 100, period: '10s', burst: 20 }
      let admitted = 0
      // A minute of ten a second: 2 at once, and one a second.
      for (let i = 0; i < 600; i++, time += 100) admitted += local.count([counted(rule, 1)]).admitted ? 1 : 0
      expect(admitted, algorithm).toBe(2 + 59)
    }
  })
})
