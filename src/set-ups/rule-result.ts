/** What one rule says about a decision: the public shape of a verdict, the same in every set-up. */
import type { Verdict } from '../script/evaluation.ts'

/** What one rule says about a decision. Plain data. Times are whole ms, rounded up. */
export interface RuleResult {
  /** Name of the rule in the config. */
  name: string
  /** A rule in mode `shadow` never refuses; its result shows what it would have done. */
  mode: 'enforce' | 'shadow'
  allowed: boolean
  /** Units per period, or units in flight. */
  limit: number
  /**
   * Units left after this decision, all of which another call could take at once: of the burst (`gcra`,
   * `token-bucket`), of the window or log, of the units in flight (`concurrency`), or of the queue, including the unit
   * that departs (`leaky-bucket`).
   */
  remaining: number
  /** Until the whole budget is back, if nothing else is spent. */
  resetAfterMs: number
  /** Until the rule would allow the same cost; 0 if it is allowed now, -1 if never. */
  retryAfterMs: number
  /** Of a rule that reserves: the units above the limit. Nothing is allowed until they are worked off. */
  debt?: number
}

export function ruleResultOf(verdict: Verdict): RuleResult {
  const { rule, mode, allowed, remaining, resetAfter, retryAfter, debt } = verdict
  return {
    ...{ name: rule.name, mode, allowed, limit: rule.limit, remaining },
    ...{ resetAfterMs: milliseconds(resetAfter), retryAfterMs: milliseconds(retryAfter) },
    ...(debt !== undefined && { debt }),
  }
}

/** Converts µs to whole ms, rounded up. -1 (never) stays -1. */
export const milliseconds = (microseconds: number) => (microseconds < 0 ? -1 : Math.ceil(microseconds / 1e3))
