/** Binds rules to identities, with defaults for tests. */
import type { Rule } from '../../src/config/compile-rule.ts'
import { bindRule } from '../../src/limiter/bind.ts'
import type { BoundRule } from '../../src/script/evaluation.ts'

/** @param cost 0 only reports what is left */
export function bound(rule: Rule, key: string, cost = rule.cost, nowMs = Date.now()): BoundRule {
  return bindRule(rule, key, cost, nowMs)
}
