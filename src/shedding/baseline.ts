/**
 * Estimates how fast an origin responds when no request waits in it. Without this baseline, "slow" has no meaning: latency alone does not
 * distinguish a queue from an origin that has become slower for good. A baseline that follows the measured latency learns the overload
 * (https://www.uber.com/blog/cinnamon-auto-tuner-adaptive-concurrency-in-the-wild/), and a limit that is lowered to measure it refuses
 * requests (envoyproxy/envoy#8337, #9007, #46532).
 *
 * The time in a queue grows and shrinks with the number in flight; the time that the origin itself needs does not. So each time that the
 * number in flight has moved by a fifth, the latencies before and after are compared:
 *
 * - Latency stayed: it is the origin's own and becomes the baseline.
 * - Latency followed: there is a queue, and the baseline stays. If it had been raised on trial, it goes back, and a little lower.
 *
 * While the limit is used up, the baseline rises slowly on trial. So there is always a next move, and the limiter recovers from every
 * state. One comparison raises the baseline by a quarter at most, because it can be wrong: if the origin loses capacity in the second in
 * which the limit shrinks, latency seems to stay.
 */
import { roundForStore } from './controller.ts'

export interface Baseline {
  /** The latency without a queue (ms), known or on trial. 0: nothing was measured yet. */
  readonly baselineMs: number
  /** The baseline before the trial; the same as `baselineMs` without a trial. */
  readonly baselineBeforeTrialMs: number
  /** Weighted means of the last few hundred requests. */
  readonly latencyMs: number
  readonly inFlight: number
  /** The values of `latencyMs` and `inFlight` at the last comparison. */
  readonly markLatencyMs: number
  readonly markInFlight: number
}

/** The text of a state (controller.ts) has the fields in this order. */
export const NO_BASELINE: Baseline = {
  baselineMs: 0,
  baselineBeforeTrialMs: 0,
  latencyMs: 0,
  inFlight: 0,
  markLatencyMs: 0,
  markInFlight: 0,
}

export interface Sample {
  /** Sum (ms) and number of the latencies in the window. */
  readonly latencyMs: number
  readonly samples: number
  /** The mean number in flight, as counted at the start of each request. */
  readonly inFlight: number
  /** The limit during the window. */
  readonly limit: number
}

/**
 * From this share on, the limit is used up, and the number in flight follows it. Below 1, because the mean of a
 * second is lower than its peaks.
 */
const USED_UP_SHARE = 0.85

/** Below this share, the limit does not affect the origin: callers alone determine the number in flight. */
const UNAFFECTED_SHARE = 0.7

/** A window with this many requests gets half of the weight. The mean of 100 latencies with an ordinary spread is exact to about 5 %. */
const HALF_WEIGHT = 100

/**
 * The number in flight has moved if its logarithm changed by this much; 0.2 is about a fifth. Smaller moves disappear
 * in the noise of the latency.
 */
const MIN_MOVE = 0.2

/** In logarithms: latency changes at most as much as the number in flight plus this, unless the origin has changed. */
const MAX_EXTRA_CHANGE = 0.1

/**
 * The change in latency divided by the move: up to this, latency stayed; from `FOLLOWED_RATIO` on, it followed. In
 * between nothing is learned.
 */
const STAYED_RATIO = 0.3
const FOLLOWED_RATIO = 0.6

/** One comparison raises the baseline to this multiple at most. */
const MAX_RAISE = 1.25

/**
 * If latency followed, the baseline goes below the proven one, so that random errors do not add up. The step is this number divided by the
 * responses of the window, because few responses have a large error. Steps are small: in a lasting overload, they lower the limit towards
 * the capacity that the origin has now. When more capacity comes back, requests are refused for some seconds.
 */
const CORRECTION_SAMPLES = 1.5
const MIN_CORRECTION = 0.005
const MAX_CORRECTION = 0.06

/** Step down, per window in which the limit is used up and more requests fail than usual. */
const FAILING_STEP = 0.03

/** Above this multiple of the baseline, latency may include a queue. */
const QUEUE_SLOWNESS = 1.2

/** Step towards the measured latency, per window: on trial, and while the limit is not used. */
const TRIAL_STEP = 0.01

/** Step towards a latency below the baseline, per window. */
const FASTER_STEP = 0.5

/**
 * The baseline is at most this multiple of the measured latency, so that an origin that became much faster is not
 * flooded while the baseline follows.
 */
const MAX_ABOVE_MEASURED = 1.5

/** Whether more requests would be in flight without the limit. */
export function isUsedUp(inFlight: number, limit: number): boolean {
  return inFlight >= USED_UP_SHARE * Math.floor(limit)
}

/** Computes the baseline after a window. A window without a latency changes nothing. Pure. */
export function nextBaseline(
  known: Baseline,
  { latencyMs: sum, samples, inFlight: windowInFlight, limit }: Sample,
): Baseline {
  if (samples < 1) return known
  const [mean, meanInFlight] = [roundForStore(sum / samples), roundForStore(windowInFlight)]
  if (known.baselineMs === 0) return withBaseline(mean, mean, withMarkAt(mean, meanInFlight))
  const weight = samples / (samples + HALF_WEIGHT)
  // The same weight for both, so that neither seems to lag behind the other.
  const latencyMs = roundForStore(known.latencyMs + weight * (mean - known.latencyMs))
  const inFlight = roundForStore(known.inFlight + weight * (meanInFlight - known.inFlight))
  const { markLatencyMs, markInFlight } = known
  const sameMark = { latencyMs, inFlight, markLatencyMs, markInFlight }
  const newMark = withMarkAt(latencyMs, inFlight)

  const lowerTowardsLatency = (ms: number) => {
    const bounded = Math.min(ms, MAX_ABOVE_MEASURED * latencyMs)
    return latencyMs < bounded ? bounded + FASTER_STEP * (latencyMs - bounded) : bounded
  }
  const proven = lowerTowardsLatency(known.baselineBeforeTrialMs)
  const current = lowerTowardsLatency(known.baselineMs)
  const tried = current + TRIAL_STEP * Math.max(0, latencyMs - current)
  // The limit refuses nothing, so it has not caused this latency.
  if (windowInFlight < UNAFFECTED_SHARE * Math.floor(limit)) return withBaseline(tried, tried, newMark)
  // Both callers and the limit affect the number in flight, so it says nothing about a queue.
  if (!isUsedUp(windowInFlight, limit)) return withBaseline(tried, proven, sameMark)

  const moved = logRatio(inFlight, markInFlight)
  const changed = logRatio(latencyMs, markLatencyMs)
  // The origin has changed. The weighted mean is still on its way to the new latency, so the comparison starts again from this window.
  if (Math.abs(changed) > Math.abs(moved) + MAX_EXTRA_CHANGE)
    return withBaseline(tried, proven, withMarkAt(mean, meanInFlight))
  if (Math.abs(moved) < MIN_MOVE) return withBaseline(tried, proven, sameMark)
  const followed = Math.max(0, changed / moved)
  if (followed < STAYED_RATIO) {
    const own = tried + (1 - followed / STAYED_RATIO) * Math.max(0, latencyMs - tried)
    const raised = Math.min(own, MAX_RAISE * tried)
    return withBaseline(raised, raised, newMark)
  }
  // Latency falls with fewer requests in flight, as expected of a queue.
  if (moved < 0) return withBaseline(tried, proven, newMark)
  const correction = Math.min(MAX_CORRECTION, Math.max(MIN_CORRECTION, CORRECTION_SAMPLES / samples))
  const back = Math.min(tried, proven) * (followed >= FOLLOWED_RATIO ? 1 - correction : 1)
  return withBaseline(back, Math.min(back, proven), newMark)
}

/**
 * Lowers the baseline after a window in which the limit was used up and more requests failed than usual. Without this,
 * a baseline that was learned from an overloaded origin could keep the limit so high that most requests time out.
 */
export function lowerWhileFailing(baseline: Baseline): Baseline {
  if (baseline.latencyMs <= QUEUE_SLOWNESS * baseline.baselineMs) return baseline
  const baselineMs = roundForStore((1 - FAILING_STEP) * baseline.baselineMs)
  return {
    ...baseline,
    baselineMs,
    baselineBeforeTrialMs: Math.min(baselineMs, baseline.baselineBeforeTrialMs),
  }
}

/** Logarithm of the ratio. Values that round to 0 count as the smallest one that does not. */
function logRatio(after: number, before: number): number {
  return Math.log(Math.max(after, 0.001) / Math.max(before, 0.001))
}

type Means = Omit<Baseline, 'baselineMs' | 'baselineBeforeTrialMs'>

function withBaseline(baselineMs: number, baselineBeforeTrialMs: number, means: Means): Baseline {
  return {
    baselineMs: roundForStore(baselineMs),
    baselineBeforeTrialMs: roundForStore(baselineBeforeTrialMs),
    ...means,
  }
}

function withMarkAt(latencyMs: number, inFlight: number): Means {
  return { latencyMs, inFlight, markLatencyMs: latencyMs, markInFlight: inFlight }
}
