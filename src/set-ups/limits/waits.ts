/** How long calls of `acquire` wait before they ask the store again. Pure. */
import { countsInFlight, type Rule } from '../../config/compile-rule.ts'
import { onlyEnforced, type Verdict } from '../../script/evaluation.ts'
import { milliseconds } from '../rule-result.ts'
import type { Answer } from './waiting-line.ts'

/** A decision, and its verdicts with times in µs. */
export interface Decided<Decision = { allowed: boolean; retryAfterMs: number; pausedUntil?: number }> {
  decision: Decision
  verdicts: readonly Verdict[]
}

/** The wait in the queues that a call would join (µs). */
export function queueWait(verdicts: readonly Verdict[]): number {
  const queues = onlyEnforced(verdicts).filter(({ rule }) => rule.counting.isQueue)
  return Math.max(0, ...queues.map(({ resetAfter }) => resetAfter))
}

/**
 * The longest wait of a call in a queue (µs). undefined: no call of a queue waits longer.
 * @param longestMs that the call accepts
 */
export function waitIn(
  { counting, quota: { rate, period, burst }, isOverridable }: Rule,
  longestMs: number,
): number | undefined {
  // How long a queue under an override is, only the store knows.
  const longest = isOverridable ? Number.POSITIVE_INFINITY : (burst * period) / rate
  if (!counting.isQueue || longestMs * 1e3 >= longest) return undefined
  return Math.max(0, Math.floor(longestMs * 1e3))
}

/**
 * How long a call would have to wait for its turn in a queue (ms), if that has refused it because it is longer than the call can wait.
 * @param longestMs how long it can wait
 */
export function lateTurnMs({ verdicts }: Pick<Decided, 'verdicts'>, longestMs: number): number | undefined {
  const late = onlyEnforced(verdicts).filter(
    ({ rule, retryAfter, resetAfter }) =>
      rule.counting.isQueue && retryAfter > 0 && resetAfter / 1e3 > longestMs,
  )
  return late.length > 0 ? milliseconds(queueWait(late)) : undefined
}

/**
 * How long to wait before the next attempt (ms). Units in flight are often released long before `retryAfterMs`, so
 * the next attempt comes soon, and later ones less and less often, but none before the other rules that refuse can admit.
 */
export function waitAfter(
  { decision: { retryAfterMs, pausedUntil }, verdicts }: Decided,
  attempt: number,
): number {
  // Someone may end the pause.
  if (pausedUntil !== undefined) return Math.min(retryAfterMs, MAX_PAUSED_MS)
  const refusing = onlyEnforced(verdicts).filter(({ allowed }) => !allowed)
  const others = refusing.filter(({ rule }) => !countsInFlight(rule))
  if (others.length === refusing.length) return retryAfterMs
  const othersMs = Math.max(0, ...others.map(({ retryAfter }) => milliseconds(retryAfter)))
  return Math.min(retryAfterMs, Math.max(othersMs, FIRST_PAUSE_MS * 2 ** Math.min(attempt, 5)))
}

/** What a decision says about calls of the same cost that wait behind it. */
export function answerFor(
  { decision: { allowed }, verdicts }: Decided<{ allowed: boolean }>,
  costOf: (rule: Rule) => number,
  pauseMs: number,
): Answer {
  const all = onlyEnforced(verdicts)
  const enforced = all.filter(({ rule }) => costOf(rule) > 0)
  // A cost of 0 and a store that does not answer say nothing about the calls behind, so one asks after the other.
  if (enforced.length === 0 && (!allowed || all.length > 0))
    return { allowed, further: 0, pauseMs, paceMs: Number.POSITIVE_INFINITY, isEstimate: false }
  const furtherOf = ({ rule, remaining }: Verdict) => Math.floor(remaining / costOf(rule))
  const further = Math.min(...enforced.map(furtherOf))
  // The rules that refuse, or will refuse first. Any other rule holds no call up: 5,000 a day are one in 17 s only on average.
  const first = enforced.filter(verdict => (allowed ? furtherOf(verdict) === further : !verdict.allowed))
  const binding = first.length > 0 ? first : enforced
  const paceMs = Math.max(0, ...binding.map(({ rule }) => paceOf(rule, costOf(rule)) / 1e3))
  if (!allowed) return { allowed, further: 0, pauseMs, paceMs, isEstimate: false }
  const used = enforced.filter(({ rule, remaining }) => remaining < costOf(rule))
  const waits = used.map(verdict => waitFor(verdict, costOf(verdict.rule)) / 1e3)
  const isEstimate = used.some(({ rule }) => !countsInFlight(rule) && !rule.counting.waitFor)
  return { allowed, further, pauseMs: Math.max(0, ...waits), paceMs, isEstimate }
}

/** How often a rule admits a cost, on average (µs). */
const paceOf = (rule: Rule, cost: number) =>
  countsInFlight(rule) ? Number.POSITIVE_INFINITY : (cost * quotaOf(rule).period) / quotaOf(rule).rate

/** The quota with the limit of an override, whose rate is not in the rule of a verdict. */
const quotaOf = ({ isOverridable, limit, period, quota }: Rule) =>
  isOverridable ? { ...quota, rate: limit, period } : quota

/** How long a rule that an admission has used up refuses the same cost (µs); for windows that slide, the average. */
function waitFor({ rule, ...standing }: Verdict, cost: number): number {
  if (countsInFlight(rule)) return FIRST_PAUSE_MS * 1e3
  return rule.counting.waitFor?.(quotaOf(rule), standing, cost) ?? paceOf(rule, cost)
}

/** While a limit is paused, the first call looks again after this time (ms). */
const MAX_PAUSED_MS = 60_000

/** The first pause (ms). The pause doubles five times, to 1.6 s. */
const FIRST_PAUSE_MS = 50
