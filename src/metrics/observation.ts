/**
 * The values of one request that are counted, logged and sent. All of them come from the config or from fixed lists, none from the caller.
 */
import type { Verdict } from '../script/evaluation.ts'

/**
 * The outcome of a request, exactly one for each. The status of the origin does not matter.
 *
 * - `allowed`, `limited`: decided by the rules.
 * - `shed`: refused because the system is full (503).
 * - `failed_open`: admitted although a rule that applies was not counted. `failed_closed`: refused for that reason (503).
 * - `unauthenticated` (401): the credential is missing or not valid. `forbidden` (403): the caller is blocked.
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

/** The part of a verdict that is counted. */
export type ObservedVerdict = Pick<Verdict, 'mode' | 'allowed' | 'agrees'> & { rule: { name: string } }

export interface Observation {
  requestId: string
  outcome: RequestOutcome
  /** Why the store has not decided, for any outcome. */
  cause?: string
  /** For the log only. */
  detail?: string
  /** Set if the request made no trip to the store: it was decided by remembered `refusals` or from `leases`. */
  from?: string
  /** Why the request was refused, if no rule refused it. */
  reason?: string
  route?: string
  /** Absent for anonymous callers, and if the plan is unknown. */
  plan?: string
  /** Verdicts of the rules that applied, including shadow rules. */
  verdicts: readonly ObservedVerdict[]
  /** In whole seconds. Absent for a refusal that never ends. */
  retryAfter?: number
  /** How long the decision waited for the store (ms). */
  storeMs: number
}

/** Names of the rules that refused; with mode `shadow`, of those that would have. */
export function refusingRuleNames(verdicts: readonly ObservedVerdict[], mode: Verdict['mode']): string[] {
  return verdicts.filter(verdict => verdict.mode === mode && !verdict.allowed).map(({ rule }) => rule.name)
}
