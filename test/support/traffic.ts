/** Made-up traffic over made-up rule sets, for what must hold whatever comes. */
import type { Rule } from '../../src/config/compile.ts'
import type { RuleInput } from '../../src/config/schema.ts'
import type { CountedRule } from '../../src/limiter/wire.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import type { TimedEvaluation } from './engines.ts'
import { rulesOf } from './engines.ts'
import type { Random } from './random.ts'

/** 2026-11-20T12:00:00Z in µs. */
export const NOON = Date.UTC(2026, 10, 20, 12) * 1e3

const PERIODS = ['1ms', '7ms', '100ms', '1s', '3s', '1m', '1h'] as const

/** One to six rules of either algorithm. The same name may come with other numbers in another set. */
export function randomRules(random: Random, most = 6): readonly Rule[] {
  const count = random.int(1, most)
  const rules = Array.from({ length: count }, (_, i): RuleInput => {
    const limit = random.int(1, 12)
    const base = { name: `rule-${i}`, by: 'consumer' as const, limit, period: random.pick(PERIODS) }
    if (random.chance(0.5)) return { ...base, algorithm: 'fixed-window' }
    return { ...base, algorithm: 'gcra', burst: random.int(1, 12) }
  })
  return rulesOf(...rules.map(rule => ({ ...rule, cost: 1 })))
}

/** Each rule counted for one of a few identities, at one of a few costs. */
export function randomCount(random: Random, rules: readonly Rule[], identities = 3): CountedRule[] {
  return rules.map(rule => ({
    rule: {
      ...rule,
      quota: { ...rule.quota, cost: random.chance(0.01) ? 14 : random.pick([0, 1, 1, 1, 1, 2]) },
    },
    key: consumerStateKey(`caller-${random.int(1, identities)}`),
  }))
}

/** Mostly small steps, some pauses, and now and then a clock that is set back. */
export function randomStep(random: Random): number {
  if (random.chance(0.02)) return -random.int(1, 2e6)
  if (random.chance(0.05)) return random.int(1, 5e6)
  return random.pick([0, 1, random.int(0, 1000), random.int(0, 50_000)])
}

export function evaluationOf(rules: readonly CountedRule[], now: number): TimedEvaluation {
  return { rules, plans: ['free'], now }
}
