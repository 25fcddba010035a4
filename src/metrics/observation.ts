/** The values of one request that are counted, logged and sent. All of them come from the config or closed lists, none from the caller. */
import type { Verdict } from '../script/evaluation.ts'

/**
 * The outcome of a request, exactly one for each: `allowed` or `limited` by its rules; `shed`, since the system was full (503); `failed_open`, let through although
 * a rule that applies was not counted, and `failed_closed`, refused for that reason (503); `unauthenticated` (401) and
 * `forbidden` (403); `unverifiable`, because the issuer of its token did not answer (503). A request that the store should have
 * decided and has not has a cause, also where the isolate counted by itself and `allowed` or `limited` it. The status of the
 * origin plays no part.
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

/** What is counted of a rule. */
export type ObservedVerdict = Pick<Verdict, 'mode' | 'allowed' | 'agrees'> & { rule: { name: string } }

export interface Observation {
  requestId: string
  outcome: RequestOutcome
  /** Why the store has not decided; for any outcome. */
  cause?: string
  /** For the log only. */
  detail?: string
  /** In the place of a trip to the store: `refusals` that are remembered, or `leases`. */
  from?: string
  /** What was wrong, for a refusal that no rule made. */
  reason?: string
  route?: string
  /** Absent: the caller is anonymous, or its plan is unknown. */
  plan?: string
  /** Of the rules that applied, shadows included. */
  verdicts: readonly ObservedVerdict[]
  /** Whole seconds; absent for a refusal that never ends. */
  retryAfter?: number
  /** How long the decision waited for the store. */
  storeMs: number
}

/** Names of the rules that refused; of shadows, those that would have. */
export function refusing(verdicts: readonly ObservedVerdict[], mode: Verdict['mode']): string[] {
  return verdicts.filter(verdict => verdict.mode === mode && !verdict.allowed).map(({ rule }) => rule.name)
}
