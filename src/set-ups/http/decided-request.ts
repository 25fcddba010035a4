/** What the steps after the decision need to know of a request. */
import type { TrafficClass } from '../../config/compile-shedding.ts'
import type { Decided } from '../../limiter/engine-shape.ts'
import type { ShedVerdict } from '../../shedding/worker-utilization.ts'
import type { Caller } from './caller.ts'
import type { Forward } from './forward.ts'
import type { Matched } from './match.ts'
import type { Ruling } from './ruling.ts'

/** A decided request. */
export interface DecidedRequest {
  ruling: Ruling
  /** Absent, like the caller, if an exception came first. */
  matched?: Matched
  caller?: Caller
  /** Its class, if the config sheds load and the engine has decided. */
  trafficClass?: TrafficClass | undefined
  /** The verdict of the worker utilization shedder, if it did not refuse the request. */
  shed?: ShedVerdict | undefined
  /** How long the decision took (ms); 0 if the engine did not make it. */
  storeMs: number
  /** If true, something depends on how and when the request ends. */
  awaitsEnding: boolean
  /** Forwards the request in this way, and finds what it costs. Absent: its cost is known. */
  forward?: (...args: [...Parameters<Forward>, forward: Forward]) => ReturnType<Forward>
  /** Call this exactly once, when the request is over. */
  finish: Decided['finish']
}
