/**
 * The adaptive concurrency limit of an origin: how many requests may be in flight. It grows while it is used and responses are fast, and
 * shrinks while they are slow or fail. gradient.ts and aimd.ts are two methods for this; baseline.ts decides which latency is fast. The
 * limit is never lowered only to measure (envoyproxy/envoy#46532).
 *
 * The limit rests above the capacity of the origin: where responses take `tolerance` times as long as usual. So it holds a queue while
 * callers want more than the origin can do. With a short queue, no controller could see at once that capacity is back.
 */
import type { Adaptive } from '../config/compile-shedding.ts'
import type { AdaptiveMethod } from './adaptive-method.ts'
import { type Baseline, isUsedUp, lowerWhileFailing, NO_BASELINE, nextBaseline } from './baseline.ts'
import { type Controller, elapsedMs, numbersAsText, roundForStore, sumAt } from './controller.ts'

export type AdaptiveSettings = Omit<Adaptive, 'method'>

export interface AdaptiveLimitState extends Baseline {
  /** With a fraction, so that slow growth is not lost. The whole part is enforced. */
  readonly limit: number
  /** The usual share of failures. */
  readonly usualFailures: number
}

/** A share of failures that exceeds the usual one by this much means overload. */
const FAILURE_MARGIN = 0.1

/**
 * How fast the usual share follows the measured share, per window. A route that always fails says nothing about the load: after about
 * twenty seconds it no longer shrinks the limit. Failures of an overload end sooner, because the limit shrinks.
 */
const FAILURES_DRIFT = 0.05

/**
 * The limit grows only while at least this share of it is in flight, or while it refuses: less important classes may use only a part of
 * it. Otherwise it would grow to its maximum every quiet night. Half, because requests come in bursts: a limit of twice the mean leaves
 * room for them.
 */
const USED_SHARE = 0.5

/**
 * The tolerated latency while the limit is not used up: `tolerance` times the first factor, and at least the second, as multiples of the
 * baseline. More than `tolerance`, because the limit refuses nothing then, and need not shrink for a short peak of latency.
 */
const UNUSED_FACTOR = 1.1
const MIN_UNUSED_TOLERANCE = 1.5

/**
 * A latency below this multiple of the baseline shows that the baseline, the latency without a queue, is too high.
 * Until the baseline has followed, the limit does not multiply.
 */
const STALE_SLOWNESS = 0.9

/** From this many ended requests in a window, certainty is 1. */
const CERTAIN_SAMPLES = 200

/**
 * Creates the controller of the adaptive limit.
 *
 * Sums: ended requests; failed ones among them (5xx, timeout, connection error); the latency of the others (ms); the requests in flight
 * that each of them counted at its start, including itself; and the requests that the limit refused.
 *
 * Failures have no latency: a full queue refuses within a millisecond, and an overloaded origin would look fast. Requests in flight are
 * counted at the start, because that is the queue that a request waits in and that its latency belongs to.
 */
export function adaptiveController(
  { min, max, initial: firstLimit, tolerance }: AdaptiveSettings,
  method: AdaptiveMethod,
): Controller<AdaptiveLimitState> {
  const clamp = (limit: number) => roundForStore(Math.min(Math.max(min, limit), max))
  const initial: AdaptiveLimitState = { limit: clamp(firstLimit), usualFailures: 0, ...NO_BASELINE }
  return {
    initial,
    next(state, window) {
      const ended = sumAt(window, 0)
      // Without time, nothing changes. A window that stands for more time counts once, so that a gap does not make the limit jump.
      if (elapsedMs(window) === 0) return state
      // The limit is full of requests that do not end, such as streams. One more is admitted, to measure the origin again.
      if (ended < 1) return sumAt(window, 4) > 0 ? { ...state, limit: clamp(state.limit + 1) } : state
      const failures = Math.min(sumAt(window, 1), ended)
      const inFlight = sumAt(window, 3) / ended
      const { limit } = state
      const sample = { latencyMs: sumAt(window, 2), samples: ended - failures, inFlight, limit }
      const isUsed = inFlight >= USED_SHARE * limit || sumAt(window, 4) > 0
      const isFull = isUsedUp(inFlight, limit)
      const isFailing = isUsed && failures / ended > state.usualFailures + FAILURE_MARGIN
      const measured = nextBaseline(state, sample)
      const baseline = isFailing && isFull ? lowerWhileFailing(measured) : measured
      const slowness = baseline.baselineMs > 0 ? baseline.latencyMs / baseline.baselineMs : 1
      const next = method({
        ...{ limit, slowness, isFailing },
        tolerated: isFull ? tolerance : Math.max(MIN_UNUSED_TOLERANCE, UNUSED_FACTOR * tolerance),
        mayGrow: isUsed && !isFailing && (isFull || slowness < tolerance),
        mayMultiply: isFull && slowness > STALE_SLOWNESS,
        pace: Math.min(1, 1000 / Math.max(1, baseline.latencyMs)),
        certainty: Math.min(1, (1.5 * ended) / (ended + CERTAIN_SAMPLES / 2)),
      })
      const usualFailures = state.usualFailures + FAILURES_DRIFT * (failures / ended - state.usualFailures)
      return { ...baseline, limit: clamp(next), usualFailures: roundForStore(usualFailures) }
    },
    ...numbersAsText(initial, state => ({ ...state, limit: clamp(state.limit) })),
  }
}
