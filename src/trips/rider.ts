/**
 * A rider: something that the isolate wants to tell the store, or to ask it, with a trip that leaves anyway. trips.ts lists them.
 *
 *     a trip leaves       each rider adds its load
 *     no trip leaves      the scheduler makes a trip for the rider, when the rider has waited long enough
 *     the trip is lost    the rider learns the fate of its calls (errors.ts), and decides what to send again
 */
import { GatewayError } from '../errors.ts'
import type { StoreCall } from '../store/store.ts'
import type { Chore } from './scheduler.ts'

/** A trip that leaves now: one HTTP request to the store. */
export interface TripInfo {
  /** What the trip is made for: the calls of decisions, or of another rider. */
  readonly calls: readonly StoreCall[]
  /** Whether it is made for this rider. If the breaker measures the trip, other riders may join it, and this one is asked for a second load. */
  readonly isAlone: boolean
  /** Whether the store has answered the last trip that riders shared. If not, this one may be lost too. */
  readonly isAnswering: boolean
  /** The most keys in one call: 1 on a cluster, where each of them can be in another slot. */
  readonly keysPerCall: number
}

export const keysOf = (call: StoreCall) => ('keys' in call ? call.keys : [call.key])

/** What a rider adds to a trip. */
export interface Load {
  readonly calls: readonly StoreCall[]
  /** Whether the calls of this load run before those of the decisions, which then take them into account. */
  readonly isFirst?: boolean
  /**
   * Called once, when the trip has ended. Never called if the platform ends the client's request first, so the rider must treat a load
   * that has no reply after a while as one that may have run.
   * @param replies to the calls, in order. The place of a call that has failed has the GatewayError, with its fate
   * @param carried the replies to the calls that the trip is made for (`TripInfo.calls`), in the same form; none if it is made for this rider
   */
  done(replies: readonly unknown[], carried?: readonly unknown[]): void
}

export interface Rider {
  /**
   * What to add to a trip that leaves now; undefined: nothing. A rider may also add arguments to the calls of the trip, as its last step:
   * if it throws, the trip leaves without its calls.
   */
  load(trip: TripInfo): Load | undefined
  /**
   * When a trip must be made for this rider, if no other trip carries its load before that (ms from now). 0: now; undefined: there is
   * nothing to send, or it can wait for ever.
   */
  aloneAfterMs?(): number | undefined
  /**
   * Whether the breaker measures trips for this rider, and probes the store before them if it is open. Otherwise the scheduler makes them
   * only while it is closed.
   */
  readonly isMeasured?: boolean
  /** Whether probes travel without this rider, because the size of its load must not change whether the store seems to be back. */
  readonly isOffProbes?: boolean
  /** Whether a process may exit before the trip for this rider is made. */
  readonly isOptional?: boolean
  /**
   * Changes the chore of making trips for this rider to one that the same client's request repeats if it fails (`repeated`). Absent:
   * another request makes the next trip.
   */
  repeat?(chore: Chore): Chore
  /** Whether its last call has had no reply. On a cluster its node may hang, so only a trip for this rider carries it then. */
  isUnanswered?(): boolean
}

/** What a trip that has failed as a whole answers to each of its calls. */
export const failureOf = (error: unknown): GatewayError =>
  error instanceof GatewayError
    ? error
    : new GatewayError('ERR_STORE_UNREACHABLE', 'The trip to the store failed.', { cause: error })
