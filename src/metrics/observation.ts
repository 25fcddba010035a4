/**
 * The values of one request that are counted, logged and sent. All of them come from the config or from fixed lists, none from the caller.
 */
import type { Rule } from '../config/compile-rule.ts'
import type { DegradedCause } from '../limiter/decision.ts'
import type { Verdict } from '../script/evaluation.ts'

/**
 * The outcome of a request, exactly one for each. The status of the origin does not matter.
 *
 * - `allowed`, `limited`: decided by the rules.
 * - `shed`: refused because the system is full (503).
 * - `failed_open`: admitted although a rule that applies was not counted. `failed_closed`: refused for that reason (503).
 * - `unauthenticated` (401): the credential is missing or not valid. `forbidden`: the caller is blocked (403), or its body cannot be
 *   read for an estimate (400, 408, 415).
 * - `unverifiable`: the issuer of its token did not answer (503).
 *
 * If the store should have decided the request but did not, the request also has a cause, even if the isolate counted by itself and the
 * outcome is `allowed` or `limited`.
 */
export type RequestOutcome =
  | 'allowed'
  | 'limited'
  | 'shed'
  | 'failed_open'
  | 'failed_closed'
  | 'unauthenticated'
  | 'unverifiable'
  | 'forbidden'

/** The part of a verdict that is counted. A shedder has no limit of which anything remains. */
export type ObservedVerdict = Pick<Verdict, 'mode' | 'allowed' | 'agrees'> &
  Partial<Pick<Verdict, 'remaining' | 'reserved' | 'debt'>> & {
    rule: { name: string } & Partial<Pick<Rule, 'limit' | 'quota' | 'adaptiveShare' | 'exceedableLimit'>>
  }

/** The part of an observation that is counted, of a request or of a call of a limit by name. */
export interface Counted {
  /** Of a call: the name of its limit. Absent for requests. */
  limit?: string
  outcome: RequestOutcome
  /** Why the store has not decided, for any outcome; or `paused`. */
  cause?: string
  /** Set if no trip to the store was made: remembered `refusals` or `leases` decided. */
  from?: string
  route?: string
  /** Absent for anonymous callers, and if the plan is unknown. */
  plan?: string
  /** Set if a request of a critical class was admitted: the class, and whether a shedder would have refused another class. */
  critical?: { name: string; isOver: boolean }
  /** Set for a test caller. */
  mode?: 'test'
  /** Verdicts of the rules that applied, including shadow rules. */
  verdicts: readonly ObservedVerdict[]
  /** How long the decision waited for the store (ms). Absent for calls. */
  storeMs?: number
}

export interface Observation extends Counted {
  requestId: string
  /** For the log only. */
  detail?: string
  /** Why the request was refused, if no rule refused it. */
  reason?: string
  /** In whole seconds. Absent for a refusal that never ends. */
  retryAfter?: number
  /** How long the decision waited for the store (ms). */
  storeMs: number
}

/** Names of the rules that refused; with mode `shadow`, of those that would have. */
export function refusingRuleNames(verdicts: readonly ObservedVerdict[], mode: Verdict['mode']): string[] {
  return verdicts.filter(verdict => verdict.mode === mode && !verdict.allowed).map(({ rule }) => rule.name)
}

export const KILLED = 'kill-switch' satisfies DegradedCause

/** A limit by name is paused. */
export const PAUSED = 'paused'

/** Whether the store has failed; it has not if the limits are switched off or paused. */
export const isStoreFailure = (cause: string | undefined) =>
  cause !== undefined && cause !== KILLED && cause !== PAUSED

/** All outcomes and causes, as the compiler checks: for metrics, and for the bounds of `stats`. */
export const OUTCOMES: Readonly<Record<RequestOutcome, true>> = {
  ...{ allowed: true, limited: true, shed: true, failed_open: true, failed_closed: true },
  ...{ unauthenticated: true, forbidden: true, unverifiable: true },
}

export const CAUSES: Readonly<Record<DegradedCause, true>> = {
  ...{ 'store-timeout': true, 'store-unreachable': true, 'store-refused': true, 'store-quota': true },
  ...{ 'store-reply-invalid': true, 'breaker-open': true, overload: true, internal: true },
  [KILLED]: true,
}
