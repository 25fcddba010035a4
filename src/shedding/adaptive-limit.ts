/** The adaptive limit of the origin in one isolate: what it has measured, and the limit that all isolates share. */
import type { Adaptive } from '../config/compile-shedding.ts'
import { adaptiveController } from './adaptive.ts'
import type { AdaptiveMethod } from './adaptive-method.ts'
import { aimd } from './aimd.ts'
import { gradient } from './gradient.ts'
import { createSignalBoard, type SignalBoardOptions, type SignalReporter } from './signal-board.ts'

/** A request that the origin has answered, or has not. */
export interface Answered {
  /** An error of the server, or no answer at all. */
  hasFailed: boolean
  latencyMs: number
  /** What the whole fleet had in flight, this request included. */
  inFlight: number
}

export interface AdaptiveLimitOfOrigin {
  limit(): number
  observe(answered: Answered): void
  /** The limit has refused a request. */
  observeRefusal(): void
  readonly board: SignalReporter
}

const METHODS: Record<Adaptive['method'], AdaptiveMethod> = { gradient, aimd }

/** Of a window (ms): all isolates' measurements of a second move the limit once. */
const WINDOW_MS = 1000

/** Requests that ended, those that failed, the latency of the others (ms), what was in flight, and requests that were refused. */
const SUMS = 5

/** One for an isolate. */
export function createAdaptiveLimit(
  { method, ...settings }: Adaptive,
  surroundings: Pick<SignalBoardOptions<never>, 'now' | 'script' | 'reportAt'>,
): AdaptiveLimitOfOrigin {
  const controller = adaptiveController(settings, METHODS[method])
  const board = createSignalBoard({
    ...{ name: 'adaptive-limit', windowMs: WINDOW_MS, sums: SUMS, controller },
    ...surroundings,
  })
  return {
    limit: () => Math.floor(board.state().limit),
    observe: ({ hasFailed, latencyMs, inFlight }) =>
      board.add([1, hasFailed ? 1 : 0, hasFailed ? 0 : latencyMs, inFlight, 0]),
    observeRefusal: () => board.add([0, 0, 0, 0, 1]),
    board,
  }
}
