/** From a ruling to the values that are counted, logged and sent. Pure. */
import type { Observation, RequestOutcome } from '../../metrics/observation.ts'
import { retryAfterSeconds } from './deny.ts'
import type { Ruling } from './ruling.ts'

/** Values beside the ruling. */
export type Circumstances = Pick<Observation, 'requestId' | 'storeMs'> & { route: string | undefined }

export function observe(ruling: Ruling, { route, ...circumstances }: Circumstances): Observation {
  const degraded = 'degraded' in ruling ? ruling.degraded : undefined
  const plan = 'plan' in ruling ? ruling.plan : undefined
  const retryAfter = ruling.kind === 'denied' ? retryAfterSeconds(ruling.retryAfter) : undefined
  const reason = reasonOf(ruling)
  return {
    ...circumstances,
    ...(route !== undefined && { route }),
    outcome: outcomeOf(ruling),
    ...(degraded && { cause: degraded.cause, detail: degraded.detail }),
    ...(ruling.kind === 'unauthenticated' && ruling.detail && { detail: ruling.detail }),
    ...(reason && { reason }),
    ...(plan && { plan }),
    verdicts: 'verdicts' in ruling ? ruling.verdicts : [],
    ...(retryAfter !== undefined && { retryAfter }),
  }
}

function outcomeOf(ruling: Ruling): RequestOutcome {
  switch (ruling.kind) {
    case 'allowed':
      return ruling.isUncounted ? 'failed_open' : 'allowed'
    case 'denied':
      return 'limited'
    case 'unauthenticated':
      return ruling.reason === 'unverifiable' ? 'unverifiable' : 'unauthenticated'
    case 'unknown-credential':
      return 'unauthenticated'
    case 'forbidden':
    case 'blocked':
      return 'forbidden'
    case 'unavailable':
      return 'failed_closed'
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
    case 'allowed':
    case 'denied':
      return undefined
  }
}
