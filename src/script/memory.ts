/** Decides and refunds over plain memory, with the TypeScript models: checks all rules, then commits all or none. No I/O, no clock. */
import { change, IDLE, type Model, type RefundedUnits, type State } from '../algorithms/algorithm.ts'
import type { Rule } from '../config/compile-rule.ts'
import type { BoundRule, Verdict } from './evaluation.ts'
import type { RefundedRule } from './refund.ts'

/** The states of rules, by key of the identity and by tag. */
export interface StateMemory {
  get(key: string): Map<string, State> | undefined
  set(key: string, states: Map<string, State>): unknown
}

/** The model that counts a rule. */
export type ModelOf<Counted extends { rule: Rule } = { rule: Rule }> = (counted: Counted) => Model

/** A rule as it is counted in memory. */
export interface RuleToCount {
  bound: BoundRule
  /** The rule in the verdict. It may show other numbers than those that count. */
  shown: Rule
  /** Whether the cost is checked and never spent. */
  isOnlyChecked?: boolean
  /** For how many requests the cost is spent, if the rule has room for all of them. Default: 1. */
  times?: number
}

/**
 * Decides the rules, all or nothing.
 * @param now µs
 * @param isPeek spends nothing
 * @returns a verdict for each rule, with the state afterwards
 */
export function decideInMemory(
  modelOf: ModelOf<BoundRule>,
  memory: StateMemory,
  rules: readonly RuleToCount[],
  now: number,
  isPeek = false,
): { admitted: boolean; verdicts: Verdict[] } {
  const checked = rules.map(({ bound, shown, isOnlyChecked, times = 1 }) => {
    const { rule, key, cost, role, mode } = bound
    const model = modelOf(bound)
    const reading = toReading(memory, bound, now)
    const check =
      role === 'peek' ? { retryAfter: 0, ...model.peek(reading) } : model.decide({ ...reading, cost, times })
    const { after, ...standing } = { after: undefined, ...check }
    return { rule, key, shown, mode, standing, ...(after && !isOnlyChecked && !isPeek && { after }) }
  })
  const admitted = checked.every(({ standing, mode }) => standing.retryAfter === 0 || mode === 'shadow')

  const spent = admitted ? checked.flatMap(({ rule, key, after }) => (after ? { rule, key, after } : [])) : []
  dropIdle(
    memory,
    new Set(spent.filter(({ after }) => !isStoredApart(after.state)).map(({ key }) => key)),
    now,
  )
  for (const { rule, key, after } of spent) setState(memory, key, rule.tag, after.state)

  const verdicts = checked.map(({ shown, mode, standing, after }): Verdict => {
    const { retryAfter } = standing
    const { state: _, ...left } = {
      state: undefined,
      ...(admitted && after ? after : { ...standing, delay: 0 }),
    }
    return { ...left, rule: shown, mode, allowed: retryAfter === 0, retryAfter }
  })
  return { admitted, verdicts }
}

/**
 * Makes the changes of each rule.
 * @param now µs
 * @returns the states afterwards
 */
export function changeInMemory(
  modelOf: ModelOf,
  memory: StateMemory,
  rules: readonly {
    bound: Pick<BoundRule, 'rule' | 'key' | 'ends' | 'holding' | 'wait' | 'mode'>
    shown: Rule
    changes: readonly (RefundedUnits | { cost: number })[]
  }[],
  now: number,
): Verdict[] {
  const changed = rules.map(({ bound, shown, changes }) => {
    const model = modelOf(bound)
    const reading = toReading(memory, bound, now)
    const after = changes.length > 0 ? change(model, reading, changes) : undefined
    return { bound, shown, after, standing: after ?? model.peek(reading) }
  })
  dropIdle(memory, new Set(changed.filter(({ after }) => after).map(({ bound }) => bound.key)), now)
  for (const { bound, after } of changed) if (after) setState(memory, bound.key, bound.rule.tag, after.state)
  return changed.map(({ bound: { mode }, shown, standing: { remaining, resetAfter, debt } }) => ({
    ...{ rule: shown, mode, allowed: true, remaining, resetAfter, retryAfter: 0, delay: 0 },
    ...(debt !== undefined && { debt }),
  }))
}

/**
 * Gives back units of each rule. A rule with no units to give back only reports its state.
 * @param spentAt when the units were spent (µs)
 * @param now µs
 */
export function refundInMemory(
  modelOf: ModelOf,
  memory: StateMemory,
  rules: readonly (RefundedRule & { shown: Rule })[],
  spentAt: number,
  now: number,
): Verdict[] {
  const changed = rules.map(({ units, spent, shown, ...refunded }) => {
    const model = modelOf(refunded)
    const reading = toReading(memory, refunded, now)
    const after = units > 0 ? change(model, reading, [{ units, spent, spentAt }]) : undefined
    return { refunded, shown, after, standing: after ?? model.peek(reading) }
  })
  const written = changed.filter(({ after }) => after)
  const rewritten = written.filter(({ after }) => !isStoredApart(after!.state))
  dropIdle(memory, new Set(rewritten.map(({ refunded }) => refunded.key)), now)
  for (const { refunded, after } of written) setState(memory, refunded.key, refunded.rule.tag, after!.state)
  return changed.map(({ refunded: { mode }, shown, standing: { remaining, resetAfter } }) => ({
    ...{ rule: shown, mode, allowed: true, remaining, resetAfter },
    ...{ retryAfter: 0, delay: 0 },
  }))
}

/** What a model reads. */
function toReading(
  memory: StateMemory,
  { rule, key, ends, holding, wait }: Pick<BoundRule, 'rule' | 'key' | 'ends' | 'holding' | 'wait'>,
  now: number,
) {
  return { quota: rule.quota, ends, holding, wait, state: memory.get(key)?.get(rule.tag) ?? IDLE, now }
}

function dropIdle(memory: StateMemory, keys: ReadonlySet<string>, now: number): void {
  for (const key of keys) {
    const states = memory.get(key)
    for (const [tag, state] of states ?? []) if (isIdle(state, now)) states!.delete(tag)
  }
}

/** Whether the state is stored under a key of its own (holders), and not with the records of other rules. */
const isStoredApart = ([, , , holders]: State) => holders !== undefined

/** Whether the record is idle: it means the same as no record. @param now µs */
export const isIdle = (state: State, now: number) => state[0] <= now && !isStoredApart(state)

function setState(memory: StateMemory, key: string, tag: string, state: State): void {
  if (!memory.get(key)) memory.set(key, new Map())
  memory.get(key)!.set(tag, state)
}
