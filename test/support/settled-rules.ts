/** Rules that reserve units. */
import type { RuleInput } from '../../src/config/check/schema.ts'
import type { Rule, SettlementTerms } from '../../src/config/compile-rule.ts'
import { settledCounting } from '../../src/config/compile-units.ts'
import { rulesOf } from './engines.ts'

export const TERMS: SettlementTerms = { ttlMs: 10_000, onUnsettled: 'keep', aboveLimit: 'clamp' }

/** The rule, whose units are reserved. */
export const settled = <R extends Rule>(rule: R, terms: Partial<SettlementTerms> = {}): R => ({
  ...rule,
  settlement: { ...TERMS, ...terms },
  counting: settledCounting(rule.counting, { ...TERMS, ...terms }),
})

export const settledRule = (input: RuleInput, terms?: Partial<SettlementTerms>): Rule =>
  settled(rulesOf(input)[0]!, terms)
