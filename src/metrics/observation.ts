/** What is told of one request: counted, logged and sent. Everything in it is from the config or a closed list, nothing from the caller. */
import { retryAfterSeconds } from '../gateway/deny.ts'
import type { Decision } from '../limiter/decide.ts'
import type { Verdict } from '../limiter/wire.ts'

/**
 * What was decided about a request, exactly one for each: `allowed` or `limited` by its rules; `failed_open`, let through though
 * a rule that applies was counted nowhere, and `failed_closed`, refused because of that (503); `unauthenticated` (401) and `forbidden`
 * (403); `unverifiable`, as the issuer of its token did not answer (503). What the store
 * should have decided and has not has a cause, also where an isolate that counted by itself has `allowed` or `limited` it. What the origin
 * answers is no matter here.
 */
export type RequestOutcome =
  | 'allowed'
  | 'limited'
  | 'failed_open'
  | 'failed_closed'
  | 'unauthenticated'
  | 'unverifiable'
  | 'forbidden'

export interface Observation {
  requestId: string
  outcome: RequestOutcome
  /** Why the rules could not be asked, of whatever outcome. */
  cause?: string
  /** For the log only. */
  detail?: string
  /** Of a refusal that no rule has made: what was wrong. */
  reason?: string
  route?: string
  /** Absent: of nobody, or not known. */
  plan?: string
  /** Of the rules that applied, shadows included. */
  verdicts: readonly Verdict[]
  /** Whole seconds, of a refusal that ends. */
  retryAfter?: number
  /** What the decision has waited for the store. */
  storeMs: number
}

/** What the decision does not say. */
export type Circumstances = Pick<Observation, 'requestId' | 'storeMs'> & { route: string | undefined }

export function observe(decision: Decision, { route, ...circumstances }: Circumstances): Observation {
  const degraded = 'degraded' in decision ? decision.degraded : undefined
  const plan = 'plan' in decision ? decision.plan : undefined
  const retryAfter = decision.kind === 'denied' ? retryAfterSeconds(decision.retryAfter) : undefined
  const reason = reasonOf(decision)
  return {
    ...circumstances,
    ...(route !== undefined && { route }),
    outcome: outcomeOf(decision),
    ...(degraded && { cause: degraded.cause, detail: degraded.detail }),
    ...(decision.kind === 'unauthenticated' && decision.detail && { detail: decision.detail }),
    ...(reason && { reason }),
    ...(plan && { plan }),
    verdicts: ('verdicts' in decision && decision.verdicts) || [],
    ...(retryAfter !== undefined && { retryAfter }),
  }
}

function outcomeOf(decision: Decision): RequestOutcome {
  switch (decision.kind) {
    case 'allowed':
      return decision.isUncounted ? 'failed_open' : 'allowed'
    case 'denied':
      return 'limited'
    case 'unauthenticated':
      return decision.reason === 'unverifiable' ? 'unverifiable' : 'unauthenticated'
    case 'forbidden':
      return 'forbidden'
    case 'unavailable':
      return 'failed_closed'
  }
}

function reasonOf(decision: Decision): string | undefined {
  if (decision.kind === 'unauthenticated') return decision.reason
  return 'what' in decision ? decision.what : undefined
}

/** The rules that refused, or as shadows would have. */
export function refusing(verdicts: readonly Verdict[], mode: Verdict['mode']): string[] {
  return verdicts.filter(verdict => verdict.mode === mode && !verdict.allowed).map(({ rule }) => rule.name)
}
