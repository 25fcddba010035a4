/** Amounts of units in limits by name: what a call of `limit` costs under each rule. */
import { beforeEach, expect, it } from 'vitest'
import type { CostOptions } from '../../src/set-ups/limits/arguments.ts'
import type { LimitDecision, Limiter } from '../../src/set-ups/limits/limiter.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { configOf, describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'
import { storeOf } from '../support/stores.ts'

const DAY = { by: ['team'], algorithm: 'fixed-window' as const, limit: 1000, period: '1d' as const }

const config = configOf({
  units: { tokens: { estimate: 200 }, usd: {} },
  limits: {
    llm: [
      { name: 'calls', ...DAY },
      { name: 'day', unit: 'tokens', ...DAY },
    ],
    paid: [{ name: 'budget', unit: 'usd', ...DAY }],
  },
})
const TEAM = { team: 'a' }

describeOnRedisEngine('a limit of units', fresh => {
  let redis: RedisEngine
  let limiter: Limiter
  beforeEach(async () => {
    redis = await fresh()
    limiter = createLimiterOnStore(config, storeOf(redis))
  })
  const left = ({ rules }: LimitDecision) => rules.map(({ remaining }) => remaining)

  it.each<[CostOptions, [calls: number, tokens: number]]>([
    [{}, [999, 800]],
    [{ cost: 3 }, [997, 800]],
    [{ amounts: { tokens: 50 } }, [999, 950]],
    [{ amounts: { tokens: 50, requests: 4 } }, [996, 950]],
    [{ cost: { day: 70 }, amounts: { tokens: 50 } }, [999, 930]],
    [{ cost: { calls: 2 } }, [998, 800]],
    [{ amounts: { tokens: 0 } }, [999, 1000]],
  ])('takes %j from each rule in its own unit', async (options, expected) => {
    expect(left(await limiter.limit('llm', TEAM, options))).toEqual(expected)
  })

  it('gives back requests, and units by the name of their rule', async () => {
    const decision = await limiter.limit('llm', TEAM, { amounts: { tokens: 50 } })
    expect(left(await limiter.refund(decision, { cost: 1 }))).toContain(1000)
    expect(left(await limiter.limit('llm', TEAM, { amounts: { tokens: 0 } }))).toEqual([999, 950])
  })

  it.each<[CostOptions | undefined, string]>([
    [
      undefined,
      "The limit 'paid' counts usd, which has no estimate in the config. Use amounts: { usd: 100 }.",
    ],
    [
      { cost: 1 },
      "The limit 'paid' counts usd, which has no estimate in the config. Use amounts: { usd: 100 }.",
    ],
    [{ amounts: { tokens: 1 } }, "The limit 'paid' counts no unit 'tokens'. Units: usd."],
    [{ amounts: { usd: -1 } }, 'amounts.usd is -1. Use a whole number from 0 to 1000000000.'],
  ])('rejects %j, and spends nothing', async (options, message) => {
    await expect(limiter.limit('paid', TEAM, options)).rejects.toThrow(new TypeError(message))
    expect(await redis.snapshot()).toEqual({})
  })
})
