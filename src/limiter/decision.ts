/** The decision on a demand of any edge. Pure. */
import { enforced, type Outcome, type Verdict } from '../script/evaluation.ts'

export type Decision = Allowed | Denied | UnknownCredential | Blocked | Unavailable

/** Why the store has not decided. */
export type DegradedCause =
  | 'store-timeout'
  | 'store-unreachable'
  | 'store-refused'
  | 'store-quota'
  | 'store-reply-invalid'
  | 'breaker-open'
  /** The isolate has more requests than it can handle: this says nothing about the store. */
  | 'overload'
  | 'internal'
  | 'kill-switch'

/** Set on a decision that no trip to the store was made for. */
export interface WithoutTrip {
  /** `refusals`: the store has refused the same before (refusals.ts). `leases`: its units were spent before (leases.ts). */
  from?: 'refusals' | 'leases'
}

/** Goes into a header and a log line. */
export interface DegradedMark {
  cause: DegradedCause
  /** For the log, never for the caller. Holds no key, identity or credential. */
  detail: string
}

export interface Allowed extends WithoutTrip {
  kind: 'allowed'
  /** The plan that the store vouches for; absent for anonymous callers, and for credentials that the store has not checked. */
  plan?: string
  /** The consumer that the credential belongs to, where only the store knew. */
  consumer?: string
  /** One for each rule that applies, shadows included. */
  verdicts: readonly Verdict[]
  /** µs to wait before the request goes on. */
  delay: number
  /** Set when the store has not evaluated the limits, or they are switched off. */
  degraded?: DegradedMark
  /** At least one rule that applies has not been counted. */
  isUncounted?: boolean
}

export interface Denied extends WithoutTrip {
  kind: 'denied'
  /** As for an allowed request. */
  plan?: string
  verdicts: readonly Verdict[]
  /** The enforced verdicts that refused; at least one. */
  violated: readonly Verdict[]
  /** µs after which all of them would admit this cost, if nothing is spent meanwhile; -1 never. */
  retryAfter: number
  /** Set when the isolate has counted instead of the store. */
  degraded?: DegradedMark
}

/** The store does not know the credential. */
export interface UnknownCredential extends WithoutTrip {
  kind: 'unknown-credential'
  /** Of the rules that have counted the bad credential. */
  verdicts: readonly Verdict[]
}

/** The consumer is blocked; its limits do not matter. */
export interface Blocked extends WithoutTrip {
  kind: 'blocked'
}

/** The store has not answered, and without its answer this request must not pass. */
export interface Unavailable {
  kind: 'unavailable'
  /** What could not be checked. */
  what: 'limits' | 'credential'
  degraded: DegradedMark
}

export function decisionOf(outcome: Outcome): Decision {
  switch (outcome.status) {
    case 'unknown-credential':
      return { kind: 'unknown-credential', verdicts: outcome.verdicts }
    case 'blocked':
      return { kind: 'blocked' }
    case 'admitted': {
      const { plan, consumer, verdicts } = outcome
      return {
        ...allowed(enforced(verdicts), verdicts),
        ...(plan && { plan }),
        ...(consumer && { consumer }),
      }
    }
    case 'refused': {
      const { verdicts, plan } = withoutHints(outcome)
      return { ...denied(enforced(verdicts), verdicts), ...(plan && { plan }) }
    }
  }
}

/** @param counting the verdicts that count, `all` those that are shown */
export function allowed(counting: readonly Verdict[], all = counting): Allowed {
  return { kind: 'allowed', verdicts: all, delay: Math.max(0, ...counting.map(({ delay }) => delay)) }
}

export function denied(counting: readonly Verdict[], all = counting): Denied {
  const violated = counting.filter(({ allowed }) => !allowed)
  // How long the system stays full is not known, and a limit of the caller's own is.
  const own = violated.filter(({ rule }) => !rule.isSystemLimit)
  const waits = (own.length > 0 ? own : violated).map(({ retryAfter }) => retryAfter)
  const retryAfter = waits.includes(-1) ? -1 : Math.max(...waits)
  return { kind: 'denied', verdicts: all, violated, retryAfter }
}

/**
 * A caller that has guessed too often learns that and nothing else: the other rules apply to good credentials only, so
 * their verdicts would show which guess was right.
 */
function withoutHints({ verdicts, plan }: Outcome): Pick<Outcome, 'verdicts' | 'plan'> {
  const ofGuesses = verdicts.filter(({ rule }) => rule.on === 'auth-failure')
  const hasGuessedTooOften = enforced(ofGuesses).some(({ allowed }) => !allowed)
  return hasGuessedTooOften ? { verdicts: ofGuesses, plan: '' } : { verdicts, plan }
}
