/** Policies with scripts that are compiled here: for limits by name that were not built, administration and tests. Each is made once. */
import type { GatewayRule, LimitRule, Rule } from '../config/compile-rule.ts'
import { createGatewayPolicy, createLimitPolicy } from './policy.ts'
import type { Policy } from './policy-shape.ts'
import { compileScripts } from './scripts.ts'

/** The policy of the gateway with this config. */
export function gatewayPolicy(config: { rules: readonly GatewayRule[]; plans: readonly string[] }): Policy {
  return remembered(config.rules, () => createGatewayPolicy(config, compileScripts))
}

/** The policy of one limit by name. @param rules as they are in a config */
export function limitPolicy(rules: readonly LimitRule[]): Policy {
  return remembered(rules, () => createLimitPolicy(rules, compileScripts))
}

/** Plain data, for as long as the config lives. */
const policies = new WeakMap<readonly Rule[], Policy>()

function remembered(rules: readonly Rule[], make: () => Policy): Policy {
  const policy = policies.get(rules) ?? make()
  policies.set(rules, policy)
  return policy
}
