/** Made-up traffic over made-up rule sets, for what must hold whatever comes. */
import { type AlgorithmName, algorithms } from '../../src/algorithms/index.ts'
import type { NumbersInput } from '../../src/config/check/rule-schema.ts'
import type { Rule } from '../../src/config/compile.ts'
import type { BoundRule } from '../../src/script/evaluation.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { bound } from './bound.ts'
import type { TimedEvaluation } from './engines.ts'
import { rulesOf } from './engines.ts'
import type { Random } from './random.ts'

/** 2026-11-20T12:00:00Z in µs. */
export const NOON = Date.UTC(2026, 10, 20, 12) * 1e3

const PERIODS = ['1ms', '7ms', '100ms', '1s', '3s', '1m', '1h'] as const

/** One to six rules of any algorithm. The same name may come with other numbers in another set. */
export function randomRules(random: Random, most = 6): readonly Rule[] {
  const names = Array.from({ length: random.int(1, most) }, (_, i) => `rule-${i}`)
  return rulesOf(...names.map(name => ({ ...randomNumbers(random), name, by: 'consumer' as const })))
}

function randomNumbers(random: Random): NumbersInput {
  const numbers = { limit: random.int(1, 12), period: random.pick(PERIODS) }
  const algorithm = random.pick(ALGORITHMS)
  switch (algorithm) {
    case 'gcra':
    case 'token-bucket':
      return { ...numbers, algorithm, burst: random.int(1, 12) }
    case 'leaky-bucket':
      // A queue that could hold a request for more than a minute is refused.
      return { ...numbers, period: random.pick(PERIODS.slice(0, 5)), algorithm, queue: random.int(0, 11) }
    case 'fixed-window':
      return random.chance(0.2)
        ? { ...numbers, algorithm, period: 'day', timeZone: 'Asia/Kathmandu' }
        : { ...numbers, algorithm }
    default:
      return { ...numbers, algorithm }
  }
}

const ALGORITHMS = Object.keys(algorithms) as AlgorithmName[]

/** Each rule counted for one of a few identities, at one of a few costs. */
export function randomCount(
  random: Random,
  rules: readonly Rule[],
  now: number,
  identities = 3,
): BoundRule[] {
  return rules.map(rule => {
    const cost = random.chance(0.01) ? 14 : random.pick([0, 1, 1, 1, 1, 2])
    return bound(rule, consumerStateKey(`caller-${random.int(1, identities)}`), cost, now / 1e3)
  })
}

/** Mostly small steps, some pauses, and now and then a clock that is set back. */
export function randomStep(random: Random): number {
  if (random.chance(0.02)) return -random.int(1, 2e6)
  if (random.chance(0.05)) return random.int(1, 5e6)
  return random.pick([0, 1, random.int(0, 1000), random.int(0, 50_000)])
}

export function evaluationOf(rules: readonly BoundRule[], now: number): TimedEvaluation {
  return { rules, plans: ['free'], now }
}
