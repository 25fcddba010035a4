/** What the user's code learns about an admitted request. */

import type { CallerMode } from '../../config/caller-mode.ts'
import type { DegradedCause } from '../../limiter/decision.ts'
import { onlyEnforced, type Verdict } from '../../script/evaluation.ts'
import { modeOf, verifiedConsumer } from '../http/caller.ts'
import type { ForwardContext } from '../http/forward.ts'
import { type RuleResult, ruleResultOf } from '../rule-result.ts'

/** The caller of an admitted request, and what is left of its limits: the result of `callerOf(request)`. */
export interface CallerInfo {
  /** Also in the reply, as `X-Request-Id`. */
  requestId: string
  /** The verified consumer. Absent for anonymous callers, and for an API key that the store has not checked. */
  consumer?: string
  /** The mode of its credential. Absent, as `consumer`. */
  mode?: CallerMode
  /** The plan that the store reports for the caller. */
  plan?: string
  /** The client's address; absent if the platform does not report it. */
  address?: string
  /** The rules that count this caller. The smallest share left comes first. */
  limits: readonly RuleResult[]
  /** Why the store has not decided; absent if it has. */
  degraded?: DegradedCause
}

/** Collects what the user's code learns about an admitted request. */
export function callerInfo({ caller, decision, requestId }: ForwardContext): CallerInfo {
  const consumer = verifiedConsumer(caller, decision)
  return {
    requestId,
    ...(consumer !== undefined && { consumer, mode: modeOf(caller?.credential) }),
    ...(decision?.plan !== undefined && { plan: decision.plan }),
    ...(caller?.address !== undefined && { address: caller.address }),
    limits: onlyEnforced(decision?.verdicts ?? [])
      .filter(({ rule }) => !rule.isSystemLimit && rule.on === 'request')
      .sort((a, b) => shareLeft(a) - shareLeft(b))
      .map(ruleResultOf),
    ...(decision?.degraded && { degraded: decision.degraded.cause }),
  }
}

/** The part of the whole budget that is left, from 0 to 1. With `burst` or `queue`, the whole budget is not the limit. */
const shareLeft = ({ rule, remaining }: Verdict) => remaining / rule.quota.burst
