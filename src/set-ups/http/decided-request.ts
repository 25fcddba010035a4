/** What the steps after the decision need to know of a request. */
import type { Decided } from '../../limiter/engine-shape.ts'
import type { Reservation } from '../../limiter/reservations/reservation.ts'
import type { ShedVerdict } from '../../shedding/worker-utilization.ts'
import type { Caller } from './caller.ts'
import type { EstimatedRequest } from './estimate-amounts.ts'
import type { Matched } from './match.ts'
import type { Ruling } from './ruling.ts'

/** A decided request. */
export interface DecidedRequest {
  ruling: Ruling
  /** Absent, like the caller, if an exception came first. */
  matched?: Matched
  caller?: Caller
  /** The verdict of the worker utilization shedder, if it did not refuse the request. */
  shed?: ShedVerdict
  /** How long the decision took (ms); 0 if the engine did not make it. */
  storeMs: number
  /** If true, something depends on how and when the request ends. */
  awaitsEnding: boolean
  /** What the request has reserved. Absent: nothing. */
  reservation?: Reservation | undefined
  /** Absent: the amounts of the request did not need its body, so the request is the given one. */
  estimated?: EstimatedRequest
  /** Call this exactly once, when the request is over. */
  finish: Decided['finish']
}
