/** Compares every reply to the requests of one caller with the reply of the reference. */
import * as fc from 'fast-check'
import { expect } from 'vitest'
import type { Rule } from '../../src/config/compile.ts'
import type { Outcome } from '../../src/script/evaluation.ts'
import { consumerStateKey } from '../../src/store/keys.ts'
import { bound } from '../support/bound.ts'
import type { Engine, TimedEvaluation } from '../support/engines.ts'
import { type Cost, costs, evaluationOf, NOON, newCaller, unitsFor } from '../support/traffic.ts'
import { after, type Pause, pauses } from '../support/waits.ts'
import { ReferenceLimiter } from './reference.ts'

/** One request, with the same cost for all of its rules. */
export interface Step {
  pause: Pause
  cost: Cost
}

export const steps: fc.Arbitrary<Step> = fc.record({ pause: pauses, cost: costs })

/** Any instant within a year from NOON on (µs). */
export const starts: fc.Arbitrary<number> = fc.nat(366 * 86400).map(seconds => NOON + seconds * 1e6)

export type Answered = { evaluation: TimedEvaluation; outcome: Outcome }[]

/**
 * Fails at the first reply that differs from that of the reference.
 * @param rulesOf returns the rules of the i-th request
 */
export async function expectReference<S extends Step>(
  engine: Engine,
  steps: readonly S[],
  rulesOf: (step: S, i: number) => readonly Rule[],
  start = NOON,
): Promise<Answered> {
  const reference = new ReferenceLimiter()
  const key = consumerStateKey(newCaller())
  const answered: Answered = []
  let now = start
  for (const [i, step] of steps.entries()) {
    const rules = rulesOf(step, i)
    now = after(step.pause, now, rules, answered.at(-1)?.outcome.verdicts ?? [])
    const evaluation = evaluationOf(
      rules.map(rule => bound(rule, key, unitsFor(rule, step.cost), now / 1e3)),
      now,
    )
    const expected = reference.evaluate(evaluation)
    const outcome = await engine.evaluate(evaluation)
    expect(outcome, `step ${i}`).toEqual(expected)
    answered.push({ evaluation, outcome })
  }
  return answered
}

export const refusedOf = (answered: Answered): number =>
  answered.filter(({ outcome }) => outcome.status === 'refused').length
