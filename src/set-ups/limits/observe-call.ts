/** Converts the decision about a call of a limit by name to what is counted. Pure. */
import type { Allowed, Denied, Unavailable } from '../../limiter/decision.ts'
import { type Counted, PAUSED } from '../../metrics/observation.ts'

export interface ObservedCall extends Counted {
  limit: string
}

export function observeCall(limit: string, decision: Allowed | Denied | Unavailable): ObservedCall {
  return {
    limit,
    outcome: outcomeOf(decision),
    ...causeOf(decision),
    ...('from' in decision && decision.from && { from: decision.from }),
    verdicts: 'verdicts' in decision ? decision.verdicts : [],
  }
}

/** Why the rules alone have not decided. */
function causeOf(decision: Allowed | Denied | Unavailable): { cause?: string } {
  if (decision.degraded) return { cause: decision.degraded.cause }
  return decision.kind === 'denied' && decision.pausedUntil !== undefined ? { cause: PAUSED } : {}
}

function outcomeOf(decision: Allowed | Denied | Unavailable): ObservedCall['outcome'] {
  if (decision.kind === 'unavailable') return 'failed_closed'
  if (decision.kind === 'denied') return 'limited'
  return decision.isUncounted ? 'failed_open' : 'allowed'
}
