/** Makes policies from rules that do not come from one config. */
import type { Rule } from '../../src/config/compile-rule.ts'
import { createPolicy } from '../../src/script/policy.ts'
import type { Policy, PolicyShape } from '../../src/script/policy-shape.ts'
import { compileScripts } from '../../src/script/scripts.ts'

/**
 * Rules with the same key share an identity.
 * @param loopsFrom the size from which the scripts have loops (policy-text.ts)
 */
export function policyOf(
  rules: readonly { rule: Rule; key: string }[],
  { plans = [], hasSubject = false }: Partial<Pick<PolicyShape, 'plans' | 'hasSubject'>> = {},
  loopsFrom?: number,
): Policy {
  const counted = rules.map(({ rule, key }) => ({ rule, identity: key }))
  return createPolicy(counted, { plans, hasSubject }, shape => compileScripts(shape, loopsFrom))
}
