/** What the user's code may know of a request that was let in. */

import type { DegradedCause } from '../../limiter/decision.ts'
import { enforced, type Verdict } from '../../script/evaluation.ts'
import type { Caller } from '../http/caller.ts'
import type { OnBehalfOf } from '../http/forward.ts'

/** How one rule stands after this request. */
export interface LimitInfo {
  name: string
  /** Units per period, or in flight. */
  limit: number
  remaining: number
  /** ms until all units are back, if nothing else is spent. */
  resetAfterMs: number
}

export interface CallerInfo {
  requestId: string
  /** Absent: anonymous, or not known while the store does not answer. */
  consumer?: string
  /** That the store vouches for. */
  plan?: string
  /** Of the client; absent where the platform does not report it. */
  address?: string
  /** Of the rules that count this caller, those with the least left first. */
  limits: readonly LimitInfo[]
  /** Set where the store has not decided. */
  degraded?: DegradedCause
}

export function callerInfo({ caller, decision, requestId }: OnBehalfOf): CallerInfo {
  const consumer = consumerOf(caller, decision)
  return {
    requestId,
    ...(consumer !== undefined && { consumer }),
    ...(decision?.plan !== undefined && { plan: decision.plan }),
    ...(caller?.address !== undefined && { address: caller.address }),
    limits: enforced(decision?.verdicts ?? [])
      .filter(({ rule }) => !rule.isSystemLimit && rule.on === 'request')
      .map(limitInfo)
      .sort((a, b) => a.remaining / a.limit - b.remaining / b.limit),
    ...(decision?.degraded && { degraded: decision.degraded.cause }),
  }
}

const limitInfo = ({ rule, remaining, resetAfter }: Verdict): LimitInfo => ({
  ...{ name: rule.name, limit: rule.limit, remaining },
  resetAfterMs: Math.ceil(resetAfter / 1e3),
})

/** Only a verified consumer: while degraded, the consumer of a key is what the key says. */
function consumerOf(caller: Caller | undefined, decision: OnBehalfOf['decision']): string | undefined {
  const credential = caller?.credential
  if (!credential || !(decision?.plan || credential.isVouched)) return undefined
  return decision?.consumer ?? credential.consumer
}
