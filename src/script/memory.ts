/** All or nothing over plain memory, with the TypeScript models: check all, then commit all. No I/O, no clock. */
import { IDLE, type Model, type State } from '../algorithms/algorithm.ts'
import type { Rule } from '../config/compile-rule.ts'
import type { BoundRule, Verdict } from './evaluation.ts'
import type { RefundedRule } from './refund.ts'

/** States of rules by tag, by the key of the identity. */
export interface StateMemory {
  get(key: string): Map<string, State> | undefined
  set(key: string, states: Map<string, State>): unknown
}

/** The model that counts a rule. */
export type ModelOf = (rule: Rule) => Model

export interface RuleToCount {
  bound: BoundRule
  /** The rule as the verdict shows it; it may be counted by other numbers. */
  shown: Rule
  /** Its cost is checked, and not spent. */
  isOnlyChecked?: boolean
  /** How often its cost is spent, where there is room for all of them (default 1). */
  times?: number
}

/** @returns a verdict for each rule, as things stand then */
export function decideInMemory(
  modelOf: ModelOf,
  memory: StateMemory,
  rules: readonly RuleToCount[],
  now: number,
  isPeek = false,
): { admitted: boolean; verdicts: Verdict[] } {
  const checked = rules.map(({ bound, shown, isOnlyChecked, times = 1 }) => {
    const { rule, key, cost, role, mode } = bound
    const model = modelOf(rule)
    const reading = readingOf(memory, bound, now)
    const check =
      role === 'report'
        ? { retryAfter: 0, ...model.peek(reading) }
        : model.decide({ ...reading, cost, times })
    const { after, ...standing } = { after: undefined, ...check }
    return { rule, key, shown, mode, standing, ...(after && !isOnlyChecked && !isPeek && { after }) }
  })
  const admitted = checked.every(({ standing, mode }) => standing.retryAfter === 0 || mode === 'shadow')

  const spent = admitted ? checked.flatMap(({ rule, key, after }) => (after ? { rule, key, after } : [])) : []
  dropIdle(memory, new Set(spent.filter(({ after }) => !isApart(after.state)).map(({ key }) => key)), now)
  for (const { rule, key, after } of spent) store(memory, key, rule.tag, after.state)

  const verdicts = checked.map(({ shown, mode, standing, after }): Verdict => {
    const { retryAfter } = standing
    const { remaining, resetAfter, delay } = admitted && after ? after : { ...standing, delay: 0 }
    return { rule: shown, mode, allowed: retryAfter === 0, remaining, resetAfter, retryAfter, delay }
  })
  return { admitted, verdicts }
}

/** Gives back units of each rule; a rule with none to give back only reports how things stand. */
export function refundInMemory(
  modelOf: ModelOf,
  memory: StateMemory,
  rules: readonly (RefundedRule & { shown: Rule })[],
  spentAt: number,
  now: number,
): Verdict[] {
  const changed = rules.map(({ units, spent, shown, ...refunded }) => {
    const model = modelOf(refunded.rule)
    const reading = readingOf(memory, refunded, now)
    const after = units > 0 ? model.refund({ ...reading, units, spent, spentAt }) : undefined
    return { refunded, shown, after, standing: after ?? model.peek(reading) }
  })
  const written = changed.filter(({ after }) => after)
  const rewritten = written.filter(({ after }) => !isApart(after!.state))
  dropIdle(memory, new Set(rewritten.map(({ refunded }) => refunded.key)), now)
  for (const { refunded, after } of written) store(memory, refunded.key, refunded.rule.tag, after!.state)
  return changed.map(({ refunded: { mode }, shown, standing: { remaining, resetAfter } }) => ({
    ...{ rule: shown, mode, allowed: true, remaining, resetAfter },
    ...{ retryAfter: 0, delay: 0 },
  }))
}

function readingOf(
  memory: StateMemory,
  { rule, key, ends, holding }: Pick<BoundRule, 'rule' | 'key' | 'ends' | 'holding'>,
  now: number,
) {
  return { quota: rule.quota, ends, holding, state: memory.get(key)?.get(rule.tag) ?? IDLE, now }
}

function dropIdle(memory: StateMemory, keys: ReadonlySet<string>, now: number): void {
  for (const key of keys) {
    const states = memory.get(key)
    for (const [tag, state] of states ?? []) if (isIdle(state, now)) states!.delete(tag)
  }
}

/** Holders lie under a key of their own, which is not written with the records of other rules. */
const isApart = ([, , , holders]: State) => holders !== undefined

export const isIdle = (state: State, now: number) => state[0] <= now && !isApart(state)

function store(memory: StateMemory, key: string, tag: string, state: State): void {
  if (!memory.get(key)) memory.set(key, new Map())
  memory.get(key)!.set(tag, state)
}
