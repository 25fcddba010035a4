/** From demanded rules to rules as they take part in the decision, under the live switches. Pure. */
import type { Rule } from '../config/compile-rule.ts'
import type { BoundRule, Subject } from '../script/evaluation.ts'
import type { Policy } from '../script/policy-shape.ts'
import type { Switches } from '../switches/switches.ts'
import { switchedMode } from './apply-switches.ts'
import { bindRule } from './bind-rule.ts'

/** The input of the engine: may this be done? */
export interface Demand {
  rules: readonly DemandedRule[]
  /** What the credential of the caller is; absent: an anonymous caller, or a limit by name. */
  subject?: Subject
  /** Of an anonymous caller, where a hook of the config names one. */
  plan?: string | undefined
  /** An error of limiting code before: the store is not asked, and each rule is decided as while the store fails. */
  failure?: unknown
  /** All rules that can be demanded together. */
  policy: Policy
}

/** A rule, the identity that it counts, and what the request costs. */
export interface DemandedRule {
  rule: Rule
  /** Key of the state of the identity. */
  key: string
  /** Units; a rule that costs nothing only reports how things stand. */
  cost: number
  /** Decides who is in the share of callers for whom the rule is enforced; default: the key. */
  place?: string
}

/** The name under which a rule is switched. */
export type SwitchName = (rule: Rule) => string

/** @param nowMs by the clock of this machine */
export function bind(
  rules: readonly DemandedRule[],
  switches: Switches,
  switchName: SwitchName,
  nowMs: number,
): BoundRule[] {
  return rules.flatMap(({ rule, key, cost, place }) => {
    const name = switchName(rule)
    const mode = switchedMode(rule, place ?? key, switches, name)
    if (mode === 'off') return []
    const bound = bindRule(rule, key, cost, nowMs, mode)
    const staysShadow = mode === 'shadow' && switches.rules.has(name)
    if (!staysShadow && place === undefined) return [bound]
    return [{ ...bound, ...(staysShadow && { staysShadow }), ...(place !== undefined && { place }) }]
  })
}
