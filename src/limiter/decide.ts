/** From what the store said to what happens to the request. Pure. */
import type { DegradedCause } from './evaluate.ts'
import type { Outcome, Verdict } from './wire.ts'

export type Decision = Allowed | Denied | Unauthenticated | Forbidden | Unavailable

/** Why a decision was made without the store. */
export interface DegradedMark {
  cause: DegradedCause
  /** For the log, never for the caller. */
  detail: string
}

export interface Allowed {
  kind: 'allowed'
  /** What the store vouches for; absent for anonymous callers and while degraded. */
  plan?: string
  /** Whose credential it was, where only the store knew. */
  consumer?: string
  /** Of every rule that applies, shadows included. */
  verdicts: readonly Verdict[]
  /** µs to hold the request before it goes on to the origin. */
  delay: number
  /** Set when the store has not evaluated the limits, or they are switched off. */
  degraded?: DegradedMark
  /** A rule that applies has been counted nowhere. */
  isUncounted?: boolean
}

export interface Denied {
  kind: 'denied'
  /** As of who is allowed. */
  plan?: string
  verdicts: readonly Verdict[]
  /** The enforced verdicts that refused; at least one. */
  violated: readonly Verdict[]
  /** µs after which all of them would admit this cost, if nobody spends meanwhile; -1 never. */
  retryAfter: number
  /** Set when the isolate has counted by itself. */
  degraded?: DegradedMark
}

export interface Unauthenticated {
  kind: 'unauthenticated'
  /** `unknown` to the store; `not-accepted` on this route; the others need no store to tell. */
  reason: 'missing' | 'malformed' | 'unknown' | 'not-accepted' | 'expired' | 'unverifiable'
  /** For the log, never for the caller. Holds nothing of the credential. */
  detail?: string
  /** What is taken here, in words, where the caller is told. */
  taken?: readonly string[]
  /** Of the rules that have counted the bad credential, where the store was asked. */
  verdicts?: readonly Verdict[]
}

/** Known, and not let in whatever the limits. */
export interface Forbidden {
  kind: 'forbidden'
  what: 'consumer' | 'address' | 'country'
}

/** The store cannot be asked, and without it this request must not pass. */
export interface Unavailable {
  kind: 'unavailable'
  /** What could not be checked. */
  what: 'limits' | 'credential'
  degraded: DegradedMark
}

export function decide(outcome: Outcome): Decision {
  switch (outcome.status) {
    case 'unknown-credential':
      return { kind: 'unauthenticated', reason: 'unknown', verdicts: outcome.verdicts }
    case 'blocked':
      return { kind: 'forbidden', what: 'consumer' }
    case 'admitted': {
      const { plan, consumer, verdicts } = outcome
      const delay = Math.max(0, ...enforced(verdicts).map(verdict => verdict.delay))
      return { kind: 'allowed', verdicts, delay, ...(plan && { plan }), ...(consumer && { consumer }) }
    }
    case 'refused': {
      const { verdicts, plan } = withoutHints(outcome)
      const violated = enforced(verdicts).filter(verdict => !verdict.allowed)
      const waits = violated.map(verdict => verdict.retryAfter)
      const retryAfter = waits.includes(-1) ? -1 : Math.max(...waits)
      return { kind: 'denied', verdicts, violated, retryAfter, ...(plan && { plan }) }
    }
  }
}

/**
 * Who has guessed too often is told that and nothing else: the other rules apply to good credentials only, so their
 * verdicts would say which guess was right.
 */
function withoutHints({ verdicts, plan }: Outcome): Pick<Outcome, 'verdicts' | 'plan'> {
  const ofGuesses = verdicts.filter(({ rule }) => rule.on === 'auth-failure')
  const hasGuessedTooOften = enforced(ofGuesses).some(({ allowed }) => !allowed)
  return hasGuessedTooOften ? { verdicts: ofGuesses, plan: '' } : { verdicts, plan }
}

/** Verdicts that count. */
export function enforced(verdicts: readonly Verdict[]): readonly Verdict[] {
  return verdicts.filter(({ mode }) => mode === 'enforce')
}
