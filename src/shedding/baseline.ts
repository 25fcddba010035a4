/**
 * How fast an origin responds when nothing waits in it. Only then is "slow" a word for a queue that the limit allows. The latency alone
 * cannot tell a queue from an origin that has become slower for good, and both mistakes are known from other limiters:
 *
 * - A baseline that follows what is measured learns the overload: it rises with the queue, the limit with it, and the queue with the
 *   limit. Uber calls it the ever drifting target latency (https://www.uber.com/blog/cinnamon-auto-tuner-adaptive-concurrency-in-the-wild/).
 * - A baseline that is measured with the limit pinned to a floor refuses requests to measure (envoyproxy/envoy#8337, #9007, #46532).
 *
 * What tells them apart is what latency does when the number in flight changes. A queue grows and shrinks with it; the time that the
 * origin itself takes does not. The limit moves anyway, so every time that it has moved what is in flight by a fifth, the latency of
 * both moments is compared:
 *
 * - Latency stayed: it is the origin's own, and becomes the baseline. After an origin has become slower for good, this is so as soon as
 *   the limit has shrunk by a fifth or two.
 * - Latency followed: there is a queue, and the baseline stays. If it had been raised on trial, it goes back, and a little below.
 *
 * While the limit is used up, the baseline rises slowly on trial, so that there is a next move, and no state from which it does not
 * recover. Cinnamon compares throughput with what is in flight for the same purpose, by their covariance.
 */
import { rounded } from './rounded.ts'

export interface Baseline {
  /** The latency without a queue (ms), as far as it is known or tried. 0: nothing was measured yet. */
  readonly baselineMs: number
  /** The baseline before the trial, if there is one. */
  readonly provenMs: number
  /** Means of the last few hundred requests. */
  readonly latencyMs: number
  readonly inFlight: number
  /** Both, when they were last compared. */
  readonly markLatencyMs: number
  readonly markInFlight: number
}

export const NO_BASELINE: Baseline = {
  baselineMs: 0,
  provenMs: 0,
  latencyMs: 0,
  inFlight: 0,
  markLatencyMs: 0,
  markInFlight: 0,
}

export interface Sample {
  /** Sum (ms) and number of the latencies. */
  readonly latencyMs: number
  readonly samples: number
  /** The mean that requests saw when they began. */
  readonly inFlight: number
  /** How many may be. */
  readonly limit: number
}

/** At this share of the limit it is used up: the mean of a second is below its peaks. What is in flight then follows the limit. */
const FULL = 0.85

/** Below this share it leaves the origin alone: what is in flight is what callers want. */
const FREE = 0.7

/** A window of so many requests counts half. The mean of 100 latencies of an ordinary spread is exact to some 5 %. */
const HALF_WEIGHT = 100

/** What is in flight has moved (in logarithms, 0.2 is a fifth): less is lost in the noise of the latency. */
const MOVED = 0.2

/** Latency cannot change by more than what is in flight, and this, unless the origin itself has changed. */
const OWN_CHANGE = 0.1

/** Up to this part of the move, latency has stayed; from `FOLLOWED`, it followed. In between nothing is learnt. */
const STAYED = 0.3
const FOLLOWED = 0.6

/** So far it goes below the proven baseline when the latency has followed: what was learnt too high by chance does not add up. */
const CORRECTION = 0.03

/** Towards the measured latency, per window: on trial, and while the limit is not used. */
const TRIAL = 0.01

/** Towards a latency that is lower than the baseline, per window. */
const FASTER = 0.1

/** The baseline is at most so much above what is measured: an origin that became much faster must not be flooded meanwhile. */
const MOST_ABOVE = 1.5

/** Whether the limit is what keeps more requests from being in flight. */
export function isUsedUp(inFlight: number, limit: number): boolean {
  return inFlight >= FULL * Math.floor(limit)
}

/** The baseline after a window. Without a latency in it, nothing changes. */
export function nextBaseline(
  known: Baseline,
  { latencyMs: sum, samples, inFlight: seen, limit }: Sample,
): Baseline {
  if (samples < 1) return only(known)
  const [mean, now] = [rounded(sum / samples), rounded(seen)]
  if (known.baselineMs === 0) return learnt(mean, mean, markedAt(mean, now))
  const weight = samples / (samples + HALF_WEIGHT)
  // Both by the same weight, or one would seem to stay behind the other.
  const latencyMs = rounded(known.latencyMs + weight * (mean - known.latencyMs))
  const inFlight = rounded(known.inFlight + weight * (now - known.inFlight))
  const measured = { latencyMs, inFlight }
  const { markLatencyMs, markInFlight } = known
  const kept = { ...measured, markLatencyMs, markInFlight }
  const marked = markedAt(latencyMs, inFlight)

  const faster = (ms: number) => {
    const most = Math.min(ms, MOST_ABOVE * latencyMs)
    return latencyMs < most ? most + FASTER * (latencyMs - most) : most
  }
  const proven = faster(known.provenMs)
  const current = faster(known.baselineMs)
  const tried = current + TRIAL * Math.max(0, latencyMs - current)
  // Callers get what they want, so this latency is nothing that the limit has caused.
  if (seen < FREE * Math.floor(limit)) return learnt(tried, tried, marked)
  // What is in flight is up to callers as well as to the limit. It says nothing of a queue.
  if (!isUsedUp(seen, limit)) return learnt(tried, proven, kept)

  const moved = logRatio(inFlight, markInFlight)
  const changed = logRatio(latencyMs, markLatencyMs)
  // The mean of the last requests is still on its way to what this window says, and would seem to rise for other reasons.
  if (Math.abs(changed) > Math.abs(moved) + OWN_CHANGE) return learnt(tried, proven, markedAt(mean, now))
  if (Math.abs(moved) < MOVED) return learnt(tried, proven, kept)
  const followed = Math.max(0, changed / moved)
  if (followed < STAYED) {
    const own = tried + (1 - followed / STAYED) * Math.max(0, latencyMs - tried)
    return learnt(own, own, marked)
  }
  // With fewer in flight, latency falls as it should.
  if (moved < 0) return learnt(tried, proven, marked)
  const back = Math.min(tried, proven) * (followed >= FOLLOWED ? 1 - CORRECTION : 1)
  return learnt(back, Math.min(back, proven), marked)
}

/** How much more, in logarithms. What rounds to 0 counts as the least that does not. */
function logRatio(now: number, before: number): number {
  return Math.log(Math.max(now, 0.001) / Math.max(before, 0.001))
}

type Measured = Omit<Baseline, 'baselineMs' | 'provenMs'>

function learnt(baselineMs: number, provenMs: number, measured: Measured): Baseline {
  return { baselineMs: rounded(baselineMs), provenMs: rounded(provenMs), ...measured }
}

function markedAt(latencyMs: number, inFlight: number): Measured {
  return { latencyMs, inFlight, markLatencyMs: latencyMs, markInFlight: inFlight }
}

/** Without what else is in the state that it comes with. */
function only({
  baselineMs,
  provenMs,
  latencyMs,
  inFlight,
  markLatencyMs,
  markInFlight,
}: Baseline): Baseline {
  return { baselineMs, provenMs, latencyMs, inFlight, markLatencyMs, markInFlight }
}
