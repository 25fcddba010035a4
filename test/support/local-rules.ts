/** Rules and identities for tests of what an isolate counts by itself. */
import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import type { LimitRuleInput } from '../../src/config/check/schema.ts'
import { compileLimitRule } from '../../src/config/compile-rule.ts'
import type { BoundRule } from '../../src/script/evaluation.ts'
import { bound } from './bound.ts'

/** A rule for ten units with each algorithm, and two with other windows. All periods are long. */
export const RULES_FOR_TEN: readonly LimitRuleInput[] = [
  ...(['gcra', 'token-bucket', 'leaky-bucket', 'fixed-window', 'sliding-window', 'sliding-log'] as const).map(
    algorithm => ({ name: algorithm, algorithm, limit: 10, period: '7d' }) as LimitRuleInput,
  ),
  { name: 'calendar', algorithm: 'fixed-window', limit: 10, period: 'month' },
  { name: 'first-request', algorithm: 'fixed-window', limit: 10, period: '7d', start: 'first-request' },
]

/** Ten units, one of which refills each second. */
export const TEN = {
  name: 'ten',
  algorithm: 'gcra',
  limit: 10,
  period: '10s',
} as const satisfies LimitRuleInput

export const KEY = 'sluice:{ip:192.0.2.1}:state'
export const OTHER_KEY = 'sluice:{ip:192.0.2.2}:state'

/** A rule as one request binds it. @param nowMs selects the windows of a calendar */
export const counted = (rule: LimitRuleInput, cost: number, key = KEY, nowMs = Date.now()): BoundRule =>
  bound(compileLimitRule(rule, ALL_ALGORITHMS), key, cost, nowMs)
