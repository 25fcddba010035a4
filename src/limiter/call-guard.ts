/**
 * A guard: it decides whether a call may be made at all, in the trip of the call. Each guard belongs to one request. The engine makes no
 * answer of its own for a call whose guard is not fresh. A Worker without guards carries nothing but these few calls of them.
 */
import type { CallFate } from '../errors.ts'
import type { CallListener, Store } from '../store/store.ts'
import type { DegradedMark } from './decision.ts'
import type { PreparedCall } from './prepared-call.ts'

/** Why the store has not answered, and whether the call may have run. */
export interface CallFailure extends Pick<DegradedMark, 'cause'> {
  fate: CallFate
}

export interface CallGuard {
  /** Whether the store has admitted the caller so lately that the isolate may answer by itself. */
  isFresh(): boolean
  /**
   * As `runCall`, with the check in the same script; on a cluster, in a trip before.
   * @throws GatewayError as `runCall`, and if the check refuses
   */
  run<Result>(store: Store, call: PreparedCall<Result>, listener?: CallListener): Promise<Result>
  /** Makes the check alone, unless the guard is fresh. @throws GatewayError as `run` */
  check(store: Store): Promise<void>
  /**
   * Called if the store has not answered the call.
   * @throws an error that the engine passes on, if the check has refused, or the guard is not fresh
   */
  passFailure(failure: CallFailure): void
}
