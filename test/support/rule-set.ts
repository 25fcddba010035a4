/** Makes rule sets from rules that do not come from one config. */
import type { Rule } from '../../src/config/compile-rule.ts'
import { createRuleSet } from '../../src/script/rule-set.ts'
import type { RuleSet, RuleSetShape } from '../../src/script/rule-set-shape.ts'
import { compileScripts } from '../../src/script/scripts.ts'

/**
 * Rules with the same key share an identity.
 * @param loopsFrom the size from which the scripts have loops (rule-set-text.ts)
 */
export function ruleSetOf(
  rules: readonly { rule: Rule; key: string }[],
  { plans = [], hasSubject = false }: Partial<Pick<RuleSetShape, 'plans' | 'hasSubject'>> = {},
  loopsFrom?: number,
): RuleSet {
  const counted = rules.map(({ rule, key }) => ({ rule, identity: key }))
  return createRuleSet(counted, { plans, hasSubject }, shape => compileScripts(shape, loopsFrom))
}
