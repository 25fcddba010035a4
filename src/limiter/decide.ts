/** From what the store said to what happens to the request. Pure. */
import type { Degraded, DegradedCause } from './evaluate.ts'
import type { Outcome, Verdict } from './wire.ts'

export type Decision = Allowed | Denied | Unauthenticated

export interface Allowed {
  kind: 'allowed'
  /** What the store vouches for; absent for anonymous callers and while degraded. */
  plan?: string
  /** Of every rule that applies, shadows included. */
  verdicts: readonly Verdict[]
  /** µs to hold the request before it goes on to the origin. */
  delay: number
  /** Set when the request passes only because the limits could not be evaluated. */
  degraded?: { cause: DegradedCause; detail: string }
}

export interface Denied {
  kind: 'denied'
  verdicts: readonly Verdict[]
  /** The enforced verdicts that refused; at least one. */
  violated: readonly Verdict[]
  /** µs after which all of them would admit this cost, if nobody spends meanwhile; -1 never. */
  retryAfter: number
}

export interface Unauthenticated {
  kind: 'unauthenticated'
  reason: 'missing' | 'malformed' | 'unknown'
}

export function decide(outcome: Outcome | Degraded): Decision {
  switch (outcome.status) {
    case 'unknown-credential':
      return { kind: 'unauthenticated', reason: 'unknown' }
    case 'degraded': {
      const { cause, detail } = outcome
      return { kind: 'allowed', verdicts: [], delay: 0, degraded: { cause, detail } }
    }
    case 'admitted': {
      const { plan, verdicts } = outcome
      const delay = Math.max(0, ...enforced(verdicts).map(verdict => verdict.delay))
      return { kind: 'allowed', verdicts, delay, ...(plan && { plan }) }
    }
    case 'refused': {
      const { verdicts } = outcome
      const violated = enforced(verdicts).filter(verdict => !verdict.allowed)
      const waits = violated.map(verdict => verdict.retryAfter)
      return { kind: 'denied', verdicts, violated, retryAfter: waits.includes(-1) ? -1 : Math.max(...waits) }
    }
  }
}

/** Verdicts that count. */
export function enforced(verdicts: readonly Verdict[]): readonly Verdict[] {
  return verdicts.filter(({ mode }) => mode === 'enforce')
}
