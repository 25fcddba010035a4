/** The largest rule sets that a config may have are compiled, and decide as the model predicts. */
import { describe, expect, it } from 'vitest'
import { ALGORITHM_NAMES, descriptionOf } from '../../src/algorithms/index.ts'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { prepareDecide, prepareRefund } from '../../src/limiter/prepared-call.ts'
import { gatewayRuleSet } from '../../src/script/compiled.ts'
import type { Subject } from '../../src/script/evaluation.ts'
import { ScriptModel } from '../../src/script/model.ts'
import { consumerKey, consumerStateKey } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import { configOf, describeOnRedisEngine } from '../support/engines.ts'
import { NOON } from '../support/traffic.ts'

const TOKEN: Subject = { kind: 'token', consumerKey: consumerKey('acme') }

const gcra = (i: number, by: RuleInput['by'] = 'consumer'): RuleInput => ({
  ...{ name: `r-${i}`, by, algorithm: 'gcra', limit: 500 + i, period: '1h' },
})
const textOf = (rules: RuleInput[]) => gatewayRuleSet(configOf({ rules })).decide.plain.source
const rulesFor = (count: number, by?: RuleInput['by']) => Array.from({ length: count }, (_, i) => gcra(i, by))

describe('the text of a script', () => {
  const hasLoops = (text: string) => /for \w+=1,1 do/.test(text)

  it('is straight-line code for up to 24 rules by consumer, or 49 by address, and has loops for more', () => {
    expect(hasLoops(textOf(rulesFor(24)))).toBe(false)
    expect(hasLoops(textOf(rulesFor(25)))).toBe(true)
    expect(hasLoops(textOf(rulesFor(49, 'address')))).toBe(false)
    expect(hasLoops(textOf(rulesFor(50, 'address')))).toBe(true)
  })

  it('has less than 22 kB for 200 rules', () => {
    const algorithms = ['gcra', 'fixed-window', 'sliding-window', 'sliding-log'] as const
    const rules = rulesFor(200).map((rule, i) => ({ ...rule, algorithm: algorithms[i % 4] }))
    expect(textOf(rules as RuleInput[]).length).toBeLessThan(22_000)
  })
})

describeOnRedisEngine('a rule set of 200 rules', (fresh, kind) => {
  const input = (i: number, by: RuleInput['by']): RuleInput => {
    const algorithm = ALGORITHM_NAMES[i % ALGORITHM_NAMES.length]!
    const queue = algorithm === 'leaky-bucket' ? { queue: 7 } : {}
    const plans = i % 3 === 0 ? { plans: { pro: { limit: 600 + i } } } : {}
    const period = 'period' in descriptionOf({ algorithm }).parameters ? { period: '1h' } : {}
    return { name: `r-${i}`, by, algorithm, limit: 500 + i, ...period, ...queue, ...plans } as RuleInput
  }

  it.each<[string, (i: number) => RuleInput['by']]>([
    ['of one consumer', () => 'consumer'],
    ['of forty identities', i => ['consumer', `header:x-${i % 40}`]],
  ])('is compiled and decides as the model predicts: %s', async (_, byOf) => {
    const redis = await fresh()
    const rules = Array.from({ length: 200 }, (_, i) => input(i, byOf(i)))
    const config = configOf({ plans: ['free', 'pro'], rules })
    const ruleSet = gatewayRuleSet(config)
    expect(ruleSet.entries).toHaveLength(200)
    const model = new ScriptModel()
    const isThird = (_: unknown, i: number) => i % 3 === 0
    for (const [i, plan] of (['free', 'free', 'pro', 'pro'] as const).entries()) {
      const all = config.rules.map(rule =>
        bound(rule, `${consumerStateKey('acme')}:${rule.by[1]}`, 1 + (i % 2), NOON / 1e3),
      )
      const rules = i === 3 ? all.filter(isThird) : all
      const evaluation = { ruleSet, rules, subject: { ...TOKEN, plan }, now: NOON + i }
      const outcome = await redis.ask(prepareDecide(evaluation))
      expect(outcome).toEqual(model.decide(evaluation))
      expect(outcome.status).toBe('admitted')
      const refunded = rules
        .filter(({ rule }) => rule.match.plans?.includes(plan) ?? true)
        .map(each => ({ ...each, units: 1, spent: 1 }))
      const refund = { ruleSet, rules: refunded, spentAt: NOON + i, plan, now: NOON + i }
      expect(await redis.ask(prepareRefund(refund))).toEqual(model.refund(refund))
    }
    if (kind !== 'embedded') await redis.send(['SCRIPT', 'FLUSH'])
  })
})

/** Created once for all kinds of Redis. */
const LARGEST = (() => {
  const largest = (algorithm: RuleInput['algorithm'], identities: number, plans: string[] = []) =>
    configOf({
      ...(plans.length > 0 && { plans }),
      rules: Array.from({ length: 200 }, (_, i) => ({
        ...{ name: `rule-${i}`, by: ['consumer', `header:x-${i % identities}`], algorithm },
        ...{ limit: 500 + i, period: '1h' },
        // A lease of one rule makes the text longest.
        ...(i === 0 && { algorithm: 'sliding-window', lease: { for: '250ms' } }),
        plans: Object.fromEntries(plans.map((plan, p) => [plan, { limit: 1000 + 300 * p + i }])),
      })) as unknown as RuleInput[],
    })
  const plans = Array.from({ length: 60 }, (_, i) => `plan-${i}`)

  return [
    ['199 logs and a window with a lease, of one identity', largest('sliding-log', 1)],
    ['199 logs and a window with a lease, of 100 identities', largest('sliding-log', 100)],
    ['199 logs and a window with a lease, of 200 identities', largest('sliding-log', 200)],
    [
      '200 windows, one with a lease, of 200 identities with numbers for 60 plans',
      largest('sliding-window', 200, plans),
    ],
  ] as const
})()

describeOnRedisEngine('the largest rule sets that a config may have', (fresh, kind) => {
  it.each(LARGEST)('compile: %s', async (_, config) => {
    const redis = await fresh()
    const ruleSet = gatewayRuleSet(config)
    for (const { plain } of [ruleSet.decide, ruleSet.refund]) {
      expect(String(await redis.send(['SCRIPT', 'LOAD', plain.source]))).toBe(plain.sha1)
    }
    // In the compiled script, the numbers of the last plan come after the longest jumps.
    const plan = config.plans.at(-1)!
    const rules = config.rules
      .filter(({ match }) => match.plans?.includes(plan) ?? true)
      .map(rule => bound(rule, `${consumerStateKey('acme')}:${rule.by[1]}`, 1, NOON / 1e3))
    const evaluation = { ruleSet, rules, subject: { ...TOKEN, plan }, now: NOON, wantedRequests: 10 }
    const outcome = await redis.ask(prepareDecide(evaluation))
    expect(outcome).toEqual(new ScriptModel().decide(evaluation))
    expect(outcome.granted).toBe(10)
    if (kind !== 'embedded') await redis.send(['SCRIPT', 'FLUSH'])
  })
})
