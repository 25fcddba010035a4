/** The decision on a demand, for all edges. Pure. */
import { GatewayError } from '../errors.ts'
import { type Outcome, onlyEnforced, type Verdict } from '../script/evaluation.ts'

export type Decision = Allowed | Denied | UnknownCredential | Blocked | Unavailable

/** Why the store has not evaluated the limits. */
export type DegradedCause =
  | 'store-timeout'
  | 'store-unreachable'
  | 'store-refused'
  | 'store-quota'
  | 'store-reply-invalid'
  | 'breaker-open'
  /** The isolate has more requests than it can handle. This says nothing about the store. */
  | 'overload'
  | 'internal'
  | 'kill-switch'

/** Marks a decision that comes from a lease or a remembered refusal, and not from the store. */
export interface WithoutTrip {
  /** `refusals`: repeats a remembered refusal (refusals.ts). `leases`: uses units that were spent before (leases.ts). */
  from?: 'refusals' | 'leases'
}

/** The cause of a degraded decision, for a header and a log line. */
export interface DegradedMark {
  cause: DegradedCause
  /** For the log, never for the caller. Contains no key, identity or credential. */
  detail: string
}

/** A decision by the limits. */
interface ByLimits extends WithoutTrip {
  /**
   * The plan, as verified by the store, or that of signed keys in an outage. Absent for anonymous callers, and for credentials that were
   * not checked.
   */
  plan?: string
  /** The consumer that the credential belongs to, if only the store knew it. */
  consumer?: string
  /** One for each rule that applies, shadows included. */
  verdicts: readonly Verdict[]
  /** Set if the store has not evaluated the limits, so the isolate has counted, or if they are switched off. */
  degraded?: DegradedMark
}

export interface Allowed extends ByLimits {
  kind: 'allowed'
  /** How long to delay the request (µs). */
  delay: number
  /** Set if at least one rule that applies has not been counted. */
  isUncounted?: boolean
}

/** At least one enforced rule refuses the request. */
export interface Denied extends ByLimits {
  kind: 'denied'
  /** The enforced verdicts that refused; at least one, unless the limit is paused. */
  violated: readonly Verdict[]
  /**
   * The time until they would admit this cost if nothing else is spent (µs); -1: never. Limits of the whole system count only if no
   * other limit refuses.
   */
  retryAfter: number
  /** Of a limit by name that is paused: when the pause ends (µs, by the clock of the store). */
  pausedUntil?: number
}

export interface UnknownCredential extends WithoutTrip {
  kind: 'unknown-credential'
  /** The verdicts of the rules that count bad credentials. */
  verdicts: readonly Verdict[]
}

/** The consumer is blocked, whatever its limits. */
export interface Blocked extends WithoutTrip {
  kind: 'blocked'
}

/** The store has not answered, and the fallbacks do not let the request pass without it. */
export interface Unavailable {
  kind: 'unavailable'
  /** What could not be checked. */
  what: 'limits' | 'credential'
  degraded: DegradedMark
}

/** @throws GatewayError for an outcome after which the rules have to be bound again */
export function toDecision(outcome: Outcome): Decision {
  switch (outcome.status) {
    case 'unknown-credential':
      return { kind: 'unknown-credential', verdicts: outcome.verdicts }
    case 'blocked':
      return { kind: 'blocked' }
    case 'other-mode':
      throw new GatewayError('ERR_STORE_REPLY_INVALID', 'The key has changed its mode during the decision.')
    case 'admitted': {
      const { plan, consumer, verdicts } = outcome
      return { ...toAllowed(verdicts), ...(plan && { plan }), ...(consumer && { consumer }) }
    }
    case 'refused': {
      const { verdicts, plan, consumer } = hideGuessResult(outcome)
      return { ...toDenied(verdicts, outcome), ...(plan && { plan }), ...(consumer && { consumer }) }
    }
  }
}

export function toAllowed(verdicts: readonly Verdict[]): Allowed {
  const delays = onlyEnforced(verdicts).map(({ delay }) => delay)
  return { kind: 'allowed', verdicts, delay: Math.max(0, ...delays) }
}

/**
 * @param verdicts at least one enforced rule refuses, unless the limit is paused
 * @param pause when a pause ends, and the time now (µs)
 */
export function toDenied(
  verdicts: readonly Verdict[],
  { pausedUntil, at }: Pick<Outcome, 'pausedUntil' | 'at'> = { at: 0 },
): Denied {
  const violated = onlyEnforced(verdicts).filter(({ allowed }) => !allowed)
  // A limit of the caller has a known retry time. How long the whole system stays full is unknown.
  const ofCaller = violated.filter(({ rule }) => !rule.isSystemLimit)
  const waits = (ofCaller.length > 0 ? ofCaller : violated).map(({ retryAfter }) => retryAfter)
  if (pausedUntil !== undefined) waits.push(pausedUntil - at)
  const retryAfter = waits.includes(-1) ? -1 : Math.max(...waits)
  return {
    ...{ kind: 'denied', verdicts, violated, retryAfter },
    ...(pausedUntil !== undefined && { pausedUntil }),
  }
}

/**
 * Keeps only the verdicts on guesses if there were too many guesses. The other rules apply to valid credentials only, so their
 * verdicts would show which guess was right.
 */
function hideGuessResult(outcome: Outcome): Pick<Outcome, 'verdicts' | 'plan' | 'consumer'> {
  const { verdicts } = outcome
  if (!refusesGuesses(verdicts)) return outcome
  return { verdicts: verdicts.filter(({ rule }) => rule.on === 'auth-failure'), plan: '' }
}

/** Whether there were too many bad credentials. Then the reply must not depend on the credential of the request. */
export const refusesGuesses = (verdicts: readonly Verdict[]): boolean =>
  verdicts.some(({ rule, mode, allowed }) => rule.on === 'auth-failure' && mode === 'enforce' && !allowed)
