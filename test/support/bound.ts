/** Rules bound to identities, with the defaults that tests want. */
import type { Rule } from '../../src/config/compile-rule.ts'
import { bindRule } from '../../src/limiter/bind-rule.ts'
import type { BoundRule } from '../../src/script/evaluation.ts'

/** @param cost default: that of the rule; 0 only reports */
export function bound(rule: Rule, key: string, cost = rule.cost, nowMs = Date.now()): BoundRule {
  return bindRule(rule, key, cost, nowMs)
}
