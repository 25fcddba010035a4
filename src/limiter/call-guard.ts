/**
 * A guard: it decides whether a call may be made at all, in the trip of the call. Each guard belongs to one request. The engine makes no
 * answer of its own for a call whose guard is not fresh.
 */
import type { CallFate } from '../errors.ts'
import type { Store } from '../store/store.ts'
import type { DegradedMark } from './decision.ts'

/** Why the store has not answered, and whether the call may have run. */
export interface CallFailure extends Pick<DegradedMark, 'cause'> {
  fate: CallFate
}

export interface CallGuard {
  /** Whether the store has admitted the caller so lately that the isolate may answer by itself. */
  isFresh(): boolean
  /**
   * The store for the calls of this request: each script runs behind a check, in the same run; on a cluster, after a trip for the check. If the
   * check refuses, a trip fails with a GatewayError, and nothing has run.
   */
  on(store: Store): Store
  /**
   * Called if the store has not answered the call.
   * @throws an error that the engine passes on, if the check has refused, or the guard is not fresh
   */
  passFailure(failure: CallFailure): void
}
