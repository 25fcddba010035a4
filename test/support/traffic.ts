/** Random traffic under random rules, for properties of all traffic. */

import * as fc from 'fast-check'
import type { Holding } from '../../src/algorithms/algorithm.ts'
import type { NumbersInput } from '../../src/config/check/rule-schema.ts'
import type { Rule } from '../../src/config/compile.ts'
import { countsInFlight } from '../../src/config/compile-rule.ts'
import type { BoundRule, Outcome, Verdict } from '../../src/script/evaluation.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { bound } from './bound.ts'
import { rulesOf, type TimedEvaluation } from './engines.ts'
import { anyNumbers, lotOf } from './numbers.ts'
import { after, type Pause, pausesToAndFro } from './waits.ts'

/** 2026-11-20T12:00:00Z in µs. */
export const NOON = Date.UTC(2026, 10, 20, 12) * 1e3

let callers = 0

/** A name that no other run has used, so that the store has no state of this caller. */
export const newCaller = () => `caller-${callers++}`

/** A list of any length up to `most`. Long lists are as frequent as short ones, and failing ones shrink to few items. */
export const listOf = <T>(items: fc.Arbitrary<T>, most: number, least = 1): fc.Arbitrary<T[]> =>
  fc.array(items, { minLength: least, maxLength: most, size: 'max' })

/** The numbers of one to six rules, of any algorithms. */
export const ruleNumbers: fc.Arbitrary<NumbersInput[]> = listOf(anyNumbers, 6)

/** Rules that are named by their index, so that different sets have rules of the same names. */
export function namedRules(numbers: readonly NumbersInput[]): readonly Rule[] {
  return rulesOf(...numbers.map((each, i) => ({ ...each, name: `rule-${i}`, by: 'consumer' as const })))
}

export const ruleOf = (numbers: NumbersInput): Rule => rulesOf({ ...numbers, name: 'a', by: 'consumer' })[0]!

/** Units of a request: a number, or relative to the burst of the rule. */
export type Cost = number | keyof typeof SHARES

const SHARES = {
  'all but one': burst => burst - 1,
  all: burst => burst,
  'one more than all': burst => burst + 1,
  'a third': burst => Math.ceil(burst / 3),
} satisfies Record<string, (burst: number) => number>

/** Costs for a rule whose limit is about ten: mostly one, sometimes nothing or too much. */
export const costs: fc.Arbitrary<Cost> = fc.constantFrom(1, 1, 1, 1, 1, 2, 2, 0, 3, 5, 11, 1000)

/** Costs from 0 to more than the burst, including the largest cost that fits and the smallest cost that does not fit. */
export const costsOfAnySize: fc.Arbitrary<Cost> = fc.constantFrom(
  ...([1, 1, 0, 'all but one', 'all', 'one more than all', 'a third', 1e9] as const),
)

export function unitsFor(rule: Rule, cost: Cost): number {
  return typeof cost === 'number' ? cost * lotOf(rule) : SHARES[cost](rule.quota.burst)
}

/** Costs that are rarely too high: if several rules count, one rule that can never admit a request refuses it for all. */
const costsOfSeveral: fc.Arbitrary<Cost> = fc.oneof(
  { weight: 30, arbitrary: fc.constantFrom(1, 1, 1, 1, 2, 0) },
  { weight: 1, arbitrary: fc.constant(14) },
)

/** Holdings of a few isolates, in any order. Late messages have small numbers and early epochs. */
const holdings: fc.Arbitrary<Holding> = fc
  .record({
    holder: fc.constantFrom('isolateA', 'isolateB', 'isolateC'),
    epoch: fc.integer({ min: 0, max: 3 }),
    ended: fc.integer({ min: 0, max: 6 }),
    held: fc.integer({ min: 0, max: 3 }),
    // The current value of an adaptive limit.
    limit: fc.option(fc.integer({ min: 1, max: 12 }), { freq: 4, nil: undefined }),
  })
  .map(({ held, limit, ...others }) => ({
    ...{ ...others, started: others.ended + held },
    ...(limit !== undefined && { limit }),
  }))

/** The caller for which a rule counts a request, and the units. */
export interface Count {
  caller: number
  cost: Cost
  /** For a rule that counts requests in flight: the holding that the isolate sends. */
  holding?: Holding | undefined
}

/** A count for each rule. If there are fewer counts than rules, they repeat. */
export const counts: fc.Arbitrary<Count[]> = listOf(
  fc.record({ caller: fc.integer({ min: 1, max: 3 }), cost: costsOfSeveral }),
  3,
)

/** Counts with holdings of isolates. */
export const countsOfIsolates: fc.Arbitrary<Count[]> = listOf(
  fc.record({
    caller: fc.integer({ min: 1, max: 3 }),
    cost: costsOfSeveral,
    holding: fc.option(holdings, { freq: 3, nil: undefined }),
  }),
  3,
)

export function boundRules(
  rules: readonly Rule[],
  counts: readonly Count[],
  caller: string,
  now: number,
): BoundRule[] {
  return rules.map((rule, i) => {
    const { caller: number, cost, holding } = counts[i % counts.length]!
    const boundRule = bound(rule, consumerStateKey(`${caller}-${number}`), unitsFor(rule, cost), now / 1e3)
    return holding && countsInFlight(rule) ? { ...boundRule, holding } : boundRule
  })
}

export function evaluationOf(rules: readonly BoundRule[], now: number): TimedEvaluation {
  return { rules, plans: ['free'], now }
}

/** Rules, and requests under them. */
export interface Traffic {
  numbers: NumbersInput[]
  steps: { pause: Pause; counts: Count[] }[]
}

/**
 * @param most the most requests
 * @param pauses by default those of a clock that is sometimes set back
 */
export const traffic = (most: number, pauses = pausesToAndFro): fc.Arbitrary<Traffic> =>
  fc.record({ numbers: ruleNumbers, steps: listOf(fc.record({ pause: pauses, counts }), most) })

/** Evaluates the requests one after the other, and yields each evaluation with its outcome. */
export async function* played(
  { numbers, steps }: Traffic,
  caller: string,
  evaluate: (evaluation: TimedEvaluation) => Promise<Outcome>,
): AsyncGenerator<{ evaluation: TimedEvaluation; outcome: Outcome }> {
  const rules = namedRules(numbers)
  let now = NOON
  let verdicts: readonly Verdict[] = []
  for (const { pause, counts } of steps) {
    now = after(pause, now, rules, verdicts)
    const evaluation = evaluationOf(boundRules(rules, counts, caller, now), now)
    const outcome = await evaluate(evaluation)
    verdicts = outcome.verdicts
    yield { evaluation, outcome }
  }
}
