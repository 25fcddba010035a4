/** The adaptive limit of the origin in one isolate: collects its measurements, and follows the limit that all isolates share. */
import type { Adaptive } from '../config/compile-shedding.ts'
import type { Rider } from '../trips/rider.ts'
import { adaptiveController } from './adaptive.ts'
import type { AdaptiveMethod } from './adaptive-method.ts'
import { aimd } from './aimd.ts'
import { gradient } from './gradient.ts'
import { createSignalBoard, type SignalBoardOptions } from './signal-board.ts'

/** A request to the origin that has ended. */
export interface EndedRequest {
  /** The origin answered with a 5xx status, or did not answer. */
  hasFailed: boolean
  latencyMs: number
  /** Requests of the whole fleet that were in flight, including this one. */
  inFlight: number
}

const METHODS: Record<Adaptive['method'], AdaptiveMethod> = { gradient, aimd }

/** Sums of a window: requests that ended, failed requests, latency of the others (ms), requests in flight, refused requests. */
const SUMS = 5

/** Creates the adaptive limit of an isolate. */
export function createAdaptiveLimit(
  { method, ...settings }: Adaptive,
  boardOptions: Pick<SignalBoardOptions<never>, 'now' | 'script' | 'reportAt'>,
) {
  const controller = adaptiveController(settings, METHODS[method])
  const board = createSignalBoard({
    ...{ name: 'adaptive-limit', sums: SUMS, controller },
    ...boardOptions,
  })
  return {
    limit: () => Math.floor(board.state().limit),
    observe: ({ hasFailed, latencyMs, inFlight }: EndedRequest) =>
      board.add([1, hasFailed ? 1 : 0, hasFailed ? 0 : latencyMs, inFlight, 0]),
    /** Call this when the limit has refused a request. */
    observeRefusal: () => board.add([0, 0, 0, 0, 1]),
    board: board as Rider,
  }
}
