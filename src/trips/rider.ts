/**
 * A rider: something that the isolate wants to tell the store, or to ask it, with a trip that leaves anyway. Live switches, signals of
 * the origin, returned leases, hand-overs of an outage and messages about units in flight are riders.
 *
 *     a trip leaves       each rider adds its load
 *     no trip leaves      the scheduler makes one for the rider alone, when it has waited long enough
 *     the trip is lost    the rider learns it, with the fate of its calls (errors.ts), and decides what to send again (trips.ts)
 */
import { GatewayError } from '../errors.ts'
import type { StoreCall } from '../store/store.ts'

/** A trip that leaves now: one HTTP request to the store. */
export interface TripInfo {
  /** What the trip is made for: the calls of decisions, or of another rider. */
  readonly calls: readonly StoreCall[]
  /** Whether it is made for this rider alone. */
  readonly isAlone: boolean
  /** Whether the store has answered the last trip. If not, this one may be lost too. */
  readonly isAnswering: boolean
  /** The most keys in one call: 1 on a cluster, where each of them can be in another slot. */
  readonly keysPerCall: number
}

export const keysOf = (call: StoreCall) => ('keys' in call ? call.keys : [call.key])

/** What a rider adds to a trip. */
export interface Load {
  readonly calls: readonly StoreCall[]
  /** Whether they run before the calls of the decisions, which then take them into account. Otherwise after them. */
  readonly isFirst?: boolean
  /** Whether it has also added arguments to calls of the trip. */
  readonly isInCalls?: boolean
  /**
   * Called once, when the trip has ended; never if the platform ends the request before that. So what is on its way must count as lost after a while.
   * @param replies to the calls, in order. The place of a call that has failed has the GatewayError, with its fate
   * @param carried the replies to the calls that the trip is made for (`TripInfo.calls`), in the same form
   */
  done(replies: readonly unknown[], carried?: readonly unknown[]): void
}

export interface Rider {
  /** What to add to a trip that leaves now; undefined: nothing. It may add arguments to calls. If it throws, the trip leaves without it. */
  load(trip: TripInfo): Load | undefined
  /**
   * After which time a trip is to be made for this rider, unless another one has carried its load (ms). 0: now; undefined: there is
   * nothing to send, or it can wait for ever.
   */
  aloneAfterMs?(): number | undefined
  /** Whether the breaker measures trips for this rider alone. If not, such trips are only made while it is closed. */
  readonly isMeasured?: boolean
  /** Whether it never travels with a probe, because whether the store is back must not depend on how much this rider has to say. */
  readonly isOffProbes?: boolean
  /** Whether a process may exit before the trip for this rider alone is made. */
  readonly isOptional?: boolean
  /** Whether the request that makes a trip for this rider alone tries again if the trip fails. Otherwise, a later request does. */
  readonly isRepeated?: boolean
  /** Whether its last call has had no reply. On a cluster, its node may hang, so it does not ride with decisions then. */
  isUnanswered?(): boolean
}

/** What a trip that has failed as a whole answers to each of its calls. */
export const failureOf = (error: unknown): GatewayError =>
  error instanceof GatewayError
    ? error
    : new GatewayError('ERR_STORE_UNREACHABLE', 'The trip to the store failed.', { cause: error })
