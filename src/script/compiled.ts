/** Policies with scripts that are compiled at run time: for administration, the build and tests. Cached. */
import type { GatewayRule, LimitRule, Rule } from '../config/compile-rule.ts'
import { createGatewayPolicy, createLimitPolicy } from './policy.ts'
import type { Policy } from './policy-shape.ts'
import { compileScripts } from './scripts.ts'

/** The policy of the gateway with this config. */
export function gatewayPolicy(config: { rules: readonly GatewayRule[]; plans: readonly string[] }): Policy {
  return findOrCreate(config.rules, () => createGatewayPolicy(config, compileScripts))
}

/** The policy of one limit by name. @param rules the same array for each call, because it is the key of the cache */
export function limitPolicy(rules: readonly LimitRule[]): Policy {
  return findOrCreate(rules, () => createLimitPolicy(rules, compileScripts))
}

/** Plain data. An entry lives as long as its config. */
const policies = new WeakMap<readonly Rule[], Policy>()

function findOrCreate(rules: readonly Rule[], make: () => Policy): Policy {
  const policy = policies.get(rules) ?? make()
  policies.set(rules, policy)
  return policy
}
