/** Converts a ruling to the values that are counted, logged and sent. Pure. */
import type { CallerMode } from '../../config/caller-mode.ts'
import type { TrafficClass } from '../../config/compile-shedding.ts'
import type { Observation, RequestOutcome } from '../../metrics/observation.ts'
import type { Verdict } from '../../script/evaluation.ts'
import type { ShedVerdict } from '../../shedding/worker-utilization.ts'
import { FLEET_RETRY_SECONDS, retryAfterSeconds } from './deny.ts'
import { isReducedCapacity, type Ruling } from './ruling.ts'

/** Values that the ruling does not have. */
export type RequestDetails = Pick<Observation, 'requestId' | 'storeMs'> & {
  route: string | undefined
  /** The verdict of the shedder, if it did not refuse the request. */
  shed?: ShedVerdict | undefined
  trafficClass?: TrafficClass | undefined
  /** The mode of the caller. Default: live. */
  mode?: CallerMode
}

export function observe(
  ruling: Ruling,
  { route, shed, trafficClass, mode, ...details }: RequestDetails,
): Observation {
  const degraded = 'degraded' in ruling ? ruling.degraded : undefined
  const plan = 'plan' in ruling ? ruling.plan : undefined
  const retryAfter = retryAfterOf(ruling)
  const reason = reasonOf(ruling)
  return {
    ...details,
    ...(route !== undefined && { route }),
    outcome: outcomeOf(ruling),
    ...(degraded && { cause: degraded.cause, detail: degraded.detail }),
    ...(ruling.kind === 'unauthenticated' && ruling.detail && { detail: ruling.detail }),
    ...(reason && { reason }),
    ...('from' in ruling && { from: ruling.from }),
    ...(plan && { plan }),
    // The store does not know this credential, so its mode is made up.
    ...(mode === 'test' && ruling.kind !== 'unknown-credential' && { mode }),
    ...(trafficClass?.isCritical &&
      ruling.kind === 'allowed' && {
        critical: { name: trafficClass.name, isOver: ruling.verdicts.some(isOver) },
      }),
    verdicts: verdictsOf(ruling, shed),
    ...(retryAfter !== undefined && { retryAfter }),
  }
}

/** Whether more requests are in flight than a shedder allows other classes. */
const isOver = ({ rule: { limit, exceedableLimit = limit }, remaining }: Verdict) =>
  limit - remaining > exceedableLimit

function verdictsOf(ruling: Ruling, shed: ShedVerdict | undefined): Observation['verdicts'] {
  if (ruling.kind === 'shed') return [ruling.verdict]
  const verdicts = 'verdicts' in ruling ? ruling.verdicts : []
  return shed ? [shed, ...verdicts] : verdicts
}

function retryAfterOf(ruling: Ruling): number | undefined {
  switch (ruling.kind) {
    case 'denied':
      return isReducedCapacity(ruling) ? FLEET_RETRY_SECONDS : retryAfterSeconds(ruling.retryAfter)
    case 'shed':
      return retryAfterSeconds(ruling.verdict.retryAfter)
    default:
      return undefined
  }
}

function outcomeOf(ruling: Ruling): RequestOutcome {
  switch (ruling.kind) {
    case 'allowed':
      return ruling.isUncounted ? 'failed_open' : 'allowed'
    case 'denied':
      return isReducedCapacity(ruling) ? 'shed' : 'limited'
    case 'shed':
      return 'shed'
    case 'unauthenticated':
      return ruling.reason === 'unverifiable' ? 'unverifiable' : 'unauthenticated'
    case 'unknown-credential':
      return 'unauthenticated'
    case 'forbidden':
    case 'blocked':
      return 'forbidden'
    case 'unavailable':
      return 'failed_closed'
    case 'unread':
      return ruling.problem.status === 503 ? 'shed' : 'forbidden'
  }
}

function reasonOf(ruling: Ruling): string | undefined {
  switch (ruling.kind) {
    case 'unauthenticated':
      return ruling.reason
    case 'unknown-credential':
      return 'unknown'
    case 'forbidden':
    case 'unavailable':
      return ruling.what
    case 'blocked':
      return 'consumer'
    case 'unread':
      return 'body'
    case 'allowed':
    case 'denied':
    case 'shed':
      return undefined
  }
}
