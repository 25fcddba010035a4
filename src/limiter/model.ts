/**
 * The decision of main.lua over plain memory, with the TypeScript models. It is the script's specification in
 * the parity tests, and replays traffic without a store. Lua twin: src/lua/main.lua, same steps in the same order.
 */
import { IDLE, type State } from '../algorithms/algorithm.ts'
import { algorithms } from '../algorithms/index.ts'
import { type Evaluation, type Outcome, withAgreement } from './wire.ts'

export class Model {
  /** What the store would hold: rule records by state key and tag. */
  readonly #states = new Map<string, Map<string, State>>()
  /** Plans by key of the credential's record. */
  readonly #credentials = new Map<string, string>()

  addCredential(key: string, plan: string): void {
    this.#credentials.set(key, plan)
  }

  evaluate({ rules, credentialKey, plans, now, spentAt }: Evaluation & { now: number }): Outcome {
    // Who calls? A plan that the config does not know counts as the default plan.
    let plan = ''
    if (credentialKey) {
      const recorded = this.#credentials.get(credentialKey)
      if (recorded === undefined) return { status: 'unknown-credential', plan: '', at: now, verdicts: [] }
      plan = plans.includes(recorded) ? recorded : plans[0]!
    }

    // Check all.
    const applying = rules.filter(({ rule }) => rule.match.plans?.includes(plan) ?? true)
    const checked = applying.map(({ rule, key, cost, spent, mode, ends }) => {
      const records = this.#records(key)
      const quota = { ...rule.quota, cost, ...(spent !== undefined && { spent }), ...(ends && { ends }) }
      const check = algorithms[rule.algorithm](quota, records.get(rule.tag) ?? IDLE, now, spentAt)
      return { rule, mode, records, check }
    })
    const admitted = checked.every(({ check, mode }) => check.retryAfter === 0 || mode === 'shadow')

    // Commit all, or nothing.
    const spending = admitted ? checked.filter(({ check }) => check.after) : []
    for (const { records } of spending) {
      for (const [tag, [idleAt]] of records) if (idleAt <= now) records.delete(tag)
    }
    for (const { rule, records, check } of spending) records.set(rule.tag, check.after!.state)

    // Report how things stand now.
    const verdicts = checked.map(({ rule, mode, check }) => {
      const { retryAfter } = check
      const { remaining, resetAfter } = (admitted && check.after) || check
      const delay = (admitted && check.after?.delay) || 0
      return { rule, mode, allowed: retryAfter === 0, remaining, resetAfter, retryAfter, delay }
    })
    return { status: admitted ? 'admitted' : 'refused', plan, at: now, verdicts: withAgreement(verdicts) }
  }

  #records(key: string): Map<string, State> {
    const records = this.#states.get(key) ?? new Map<string, State>()
    this.#states.set(key, records)
    return records
  }
}
