/** Rule sets with scripts that are compiled at run time: for administration, the build and tests. Cached. */
import type { GatewayRule, LimitRule, Rule } from '../config/compile-rule.ts'
import { createGatewayRuleSet, createLimitRuleSet } from './rule-set.ts'
import type { RuleSet } from './rule-set-shape.ts'
import { compileScripts } from './scripts.ts'

/** The rule set of the gateway with this config. */
export function gatewayRuleSet(config: { rules: readonly GatewayRule[]; plans: readonly string[] }): RuleSet {
  return findOrCreate(config.rules, () => createGatewayRuleSet(config, compileScripts))
}

/** The rule set of one limit by name. @param rules the same array for each call, because it is the key of the cache */
export function limitRuleSet(rules: readonly LimitRule[]): RuleSet {
  return findOrCreate(rules, () => createLimitRuleSet(rules, compileScripts))
}

/** Plain data. An entry lives as long as its config. */
const ruleSets = new WeakMap<readonly Rule[], RuleSet>()

function findOrCreate(rules: readonly Rule[], make: () => RuleSet): RuleSet {
  const ruleSet = ruleSets.get(rules) ?? make()
  ruleSets.set(rules, ruleSet)
  return ruleSet
}
