/** Policies of rules that no config holds together. */
import type { Rule } from '../../src/config/compile-rule.ts'
import { createPolicy } from '../../src/script/policy.ts'
import type { Policy, PolicyShape } from '../../src/script/policy-shape.ts'
import { compileScripts } from '../../src/script/scripts.ts'

/** Rules share an identity where they share a key. */
export function policyOf(
  rules: readonly { rule: Rule; key: string }[],
  { plans = [], hasSubject = false }: Partial<Pick<PolicyShape, 'plans' | 'hasSubject'>> = {},
): Policy {
  const counted = rules.map(({ rule, key }) => ({ rule, identity: key }))
  return createPolicy(counted, { plans, hasSubject }, compileScripts)
}
