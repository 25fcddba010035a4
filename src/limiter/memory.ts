/** All or nothing over plain memory, with the TypeScript models: check all, then commit all. No I/O, no clock. */
import { type Algorithm, type Check, IDLE, type State } from '../algorithms/algorithm.ts'
import type { AlgorithmName } from '../algorithms/index.ts'
import type { Rule } from '../config/compile-rule.ts'
import type { CountedRule } from './count.ts'
import type { Verdict } from './wire.ts'

/** States of rules by tag, by the key of the identity. */
export interface StateMemory {
  get(key: string): Map<string, State> | undefined
  set(key: string, states: Map<string, State>): unknown
}

/** A rule to count by, and how it is told of. */
export interface Counted {
  counted: CountedRule
  told: Rule
  /** Checked, and never spent. */
  isPeek?: boolean
}

/** @returns a verdict for each rule, as things stand then */
export function countInMemory(
  algorithms: Readonly<Record<AlgorithmName, Algorithm>>,
  memory: StateMemory,
  rules: readonly Counted[],
  now: number,
  spentAt?: number,
): { admitted: boolean; verdicts: Verdict[] } {
  const checked = rules.map(({ counted: { rule, key, cost, spent, mode, ends }, told, isPeek }) => {
    const quota = { ...rule.quota, cost, ...(spent !== undefined && { spent }), ...(ends && { ends }) }
    const state = memory.get(key)?.get(rule.tag) ?? IDLE
    const check = algorithms[rule.algorithm](quota, state, now, spentAt)
    return { rule, key, told, mode, check: isPeek ? withoutSpending(check) : check }
  })
  const admitted = checked.every(({ check, mode }) => check.retryAfter === 0 || mode === 'shadow')

  const spending = admitted ? checked.filter(({ check }) => check.after) : []
  for (const key of new Set(spending.map(({ key }) => key))) {
    const states = memory.get(key)
    if (!states) memory.set(key, new Map())
    for (const [tag, [idleAt]] of states ?? []) if (idleAt <= now) states!.delete(tag)
  }
  for (const { rule, key, check } of spending) memory.get(key)!.set(rule.tag, check.after!.state)

  const verdicts = checked.map(({ told, mode, check }): Verdict => {
    const { retryAfter } = check
    const { remaining, resetAfter } = (admitted && check.after) || check
    const delay = (admitted && check.after?.delay) || 0
    return { rule: told, mode, allowed: retryAfter === 0, remaining, resetAfter, retryAfter, delay }
  })
  return { admitted, verdicts }
}

function withoutSpending({ after: _, ...check }: Check): Check {
  return check
}
