/**
 * Additive increase, multiplicative decrease, as TCP does it (RFC 5681): the limit grows by a little while it is used, and shrinks by a
 * tenth when responses are too slow or more of them fail than usual. It never rests: it climbs into a queue and backs off, in a sawtooth.
 */
import type { AdaptiveMethod } from './adaptive-method.ts'

/** Latency may be so much above the baseline. Less, and the noise of a second would look like a queue at each step. */
const TOLERANCE = 1.3

/** The same where the limit is not used up: it refuses nothing then. */
const UNUSED_TOLERANCE = 1.5

const DECREASE = 0.1

export const aimd: AdaptiveMethod = ({ limit, slowness, isFailing, isUsed, isUsedUp, pace, certainty }) => {
  const isSlow = slowness > (isUsedUp ? TOLERANCE : UNUSED_TOLERANCE)
  if (isSlow || isFailing) return limit * (1 - DECREASE * pace * certainty)
  // In proportion to the square root, so that a limit of 1,000 needs a minute to double and not a quarter of an hour.
  return isUsed ? limit + Math.max(1, Math.sqrt(limit) / 2) * pace : limit
}
