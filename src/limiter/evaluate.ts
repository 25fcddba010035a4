/**
 * The only await on the store: one decision, one trip. Also the only place where a failure of the store becomes
 * an outcome; nothing above it sees a store error.
 */
import { GatewayError, traceOf } from '../errors.ts'
import type { Store } from '../store/store.ts'
import { evaluateOnCluster } from './slots.ts'
import { ask, type Evaluation, type Outcome } from './wire.ts'

/** Why a decision could not be made; goes into a header and a log line. */
export type DegradedCause =
  | 'store-timeout'
  | 'store-unreachable'
  | 'store-refused'
  | 'store-quota'
  | 'store-reply-invalid'
  | 'breaker-open'
  /** The isolate has more requests than it can handle: this says nothing about the store. */
  | 'overload'
  | 'internal'
  | 'kill-switch'

export interface Degraded {
  status: 'degraded'
  cause: DegradedCause
  /** For the log, never for the caller. Holds no key, identity or credential. */
  detail: string
}

export async function evaluate(store: Store, evaluation: Evaluation): Promise<Outcome | Degraded> {
  // Nothing to count and nobody to look up: decided without a trip.
  if (evaluation.rules.length === 0 && !evaluation.who) {
    return { status: 'admitted', plan: '', at: 0, verdicts: [] }
  }
  try {
    if (store.isCluster) return await evaluateOnCluster(store, evaluation)
    const [answer] = await ask(store, [evaluation])
    if (answer instanceof GatewayError) throw answer
    return answer!
  } catch (error) {
    return degradedBy(error)
  }
}

/** What the log says of an error in limiting code, the store's or our own. */
export function degradedBy(error: unknown): Degraded {
  // Messages of foreign errors may quote keys and tokens: only ours are passed on.
  if (!(error instanceof GatewayError)) {
    return { status: 'degraded', cause: 'internal', detail: traceOf(error) }
  }
  return { status: 'degraded', cause: causeOf(error), detail: error.message }
}

export function causeOf(error: GatewayError): DegradedCause {
  switch (error.code) {
    case 'ERR_STORE_TIMEOUT':
      return 'store-timeout'
    case 'ERR_STORE_UNREACHABLE':
      return 'store-unreachable'
    case 'ERR_STORE_REFUSED':
      return 'store-refused'
    case 'ERR_STORE_QUOTA':
      return 'store-quota'
    case 'ERR_STORE_BREAKER_OPEN':
      return 'breaker-open'
    case 'ERR_STORE_REPLY_INVALID':
      return 'store-reply-invalid'
    case 'ERR_STORE_OVERLOAD':
      return 'overload'
    case 'ERR_CONFIG_INVALID':
      return 'internal'
  }
}
