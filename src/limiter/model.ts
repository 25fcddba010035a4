/**
 * The decision of main.lua over plain memory, with the TypeScript models. It is the script's specification in
 * the parity tests, and replays traffic without a store. Lua twin: src/lua/main.lua, same steps in the same order.
 */
import { IDLE, type State } from '../algorithms/algorithm.ts'
import { algorithms } from '../algorithms/index.ts'
import type { Evaluation, Outcome } from './wire.ts'

export class Model {
  /** What the store would hold: rule records by state key and tag. */
  readonly #states = new Map<string, Map<string, State>>()
  /** Plans by key of the credential's record. */
  readonly #credentials = new Map<string, string>()

  addCredential(key: string, plan: string): void {
    this.#credentials.set(key, plan)
  }

  evaluate({ rules, credentialKey, plans, now }: Evaluation & { now: number }): Outcome {
    // Who calls? A plan that the config does not know counts as the default plan.
    let plan = ''
    if (credentialKey) {
      const recorded = this.#credentials.get(credentialKey)
      if (recorded === undefined) return { status: 'unknown-credential', plan: '', verdicts: [] }
      plan = plans.includes(recorded) ? recorded : plans[0]!
    }

    // Check all.
    const applying = rules.filter(({ rule }) => rule.match.plans?.includes(plan) ?? true)
    const checked = applying.map(({ rule, key }) => {
      const records = this.#records(key)
      const check = algorithms[rule.algorithm](rule.quota, records.get(rule.tag) ?? IDLE, now)
      return { rule, records, check }
    })
    const admitted = checked.every(({ check }) => check.retryAfter === 0)
    const spending = admitted ? checked.filter(({ rule }) => rule.quota.cost > 0) : []

    // Commit all, or nothing.
    for (const { rule, records, check } of spending) records.set(rule.tag, check.next!)
    for (const { records } of spending) {
      for (const [tag, [idleAt]] of records) if (idleAt <= now) records.delete(tag)
    }

    // Report how things stand now.
    const verdicts = checked.map(({ rule, check: { retryAfter, remaining, resetAfter, next } }) => {
      const { cost } = rule.quota
      const isSpent = admitted && cost > 0
      return {
        rule,
        allowed: retryAfter === 0,
        remaining: isSpent ? remaining - cost : remaining,
        resetAfter: isSpent ? next![0] - now : resetAfter,
        retryAfter,
      }
    })
    return { status: admitted ? 'admitted' : 'refused', plan, verdicts }
  }

  #records(key: string): Map<string, State> {
    const records = this.#states.get(key) ?? new Map<string, State>()
    this.#states.set(key, records)
    return records
  }
}
