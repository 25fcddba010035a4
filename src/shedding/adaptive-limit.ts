/** The adaptive limit of the origin in one isolate: collects its measurements, and follows the limit that all isolates share. */
import type { Adaptive } from '../config/compile-shedding.ts'
import type { Rider } from '../trips/rider.ts'
import { adaptiveController } from './adaptive.ts'
import type { AdaptiveMethod } from './adaptive-method.ts'
import { aimd } from './aimd.ts'
import { gradient } from './gradient.ts'
import { type BoardOptions, createSignalBoard } from './signal-board.ts'

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

/** Creates the board of the adaptive limit, whose state has the current limit. */
export const createAdaptiveBoard = ({ method, ...settings }: Adaptive, options: BoardOptions) =>
  createSignalBoard({
    ...{ name: 'adaptive-limit', sums: SUMS, controller: adaptiveController(settings, METHODS[method]) },
    ...options,
  })

/** Creates the adaptive limit of an isolate. */
export function createAdaptiveLimit(...[adaptive, options]: Parameters<typeof createAdaptiveBoard>) {
  const board = createAdaptiveBoard(adaptive, options)
  return {
    limit: () => Math.floor(board.state().limit),
    observe: ({ hasFailed, latencyMs, inFlight }: EndedRequest) =>
      board.add([1, hasFailed ? 1 : 0, hasFailed ? 0 : latencyMs, inFlight, 0]),
    /** Call this when the limit has refused a request. */
    observeRefusal: () => board.add([0, 0, 0, 0, 1]),
    board: board as Rider,
  }
}
