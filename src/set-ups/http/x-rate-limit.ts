/**
 * X-RateLimit-Limit, -Remaining and -Reset, for clients that know no other headers. They can show only one limit of
 * the reply. No standard defines them, and Reset is a number of seconds in one API and a time in another, so the
 * config says which.
 */
import type { Clock } from '../../clock.ts'
import type { HeadersInput } from '../../config/check/schema.ts'
import type { Verdict } from '../../script/evaluation.ts'

export interface XRateLimit {
  /** Sets the headers, replacing those of the origin. */
  set(headers: Headers, verdicts: readonly Verdict[]): void
  /** The names for `Access-Control-Expose-Headers`, with a comma before each. */
  names: string
}

export function createXRateLimit(unit: NonNullable<HeadersInput['xRateLimit']>, { now }: Clock): XRateLimit {
  return {
    set(headers, verdicts) {
      const verdict = verdicts.reduce(stricter)
      const seconds = waitOf(verdict) / 1e6
      // Rounded up, so that a caller that waits until then does not come too early.
      const reset = Math.ceil(unit === 'unix-seconds' ? now() / 1e3 + seconds : seconds)
      headers.set('X-RateLimit-Limit', String(verdict.rule.quota.burst))
      headers.set('X-RateLimit-Remaining', String(verdict.remaining))
      headers.set('X-RateLimit-Reset', String(reset))
    },
    names: ', X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset',
  }
}

/**
 * The stricter of two verdicts. A limit that refuses is stricter than one that admits. Among those that refuse, the
 * longest refusal is strictest; among those that admit, the one with the least left.
 */
function stricter(a: Verdict, b: Verdict): Verdict {
  if (a.allowed !== b.allowed) return a.allowed ? b : a
  const isB = a.allowed && a.remaining !== b.remaining ? b.remaining < a.remaining : waitOf(b) > waitOf(a)
  return isB ? b : a
}

/** µs until the refused request would be admitted, or until the whole budget is back. */
function waitOf({ rule, allowed, resetAfter, retryAfter }: Verdict): number {
  if (allowed) return resetAfter
  return retryAfter < 0 ? rule.period : retryAfter
}
