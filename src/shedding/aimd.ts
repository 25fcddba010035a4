/**
 * Additive increase, multiplicative decrease, as in TCP (RFC 5681): the limit grows slowly while it is used, and
 * shrinks by a tenth if responses are too slow or more of them fail than usual. It never settles: it grows until a
 * queue forms and then backs off, in a sawtooth.
 */
import type { AdaptiveMethod } from './adaptive-method.ts'

/** Tolerated latency, as a multiple of the baseline. With less, the noise of a second would look like a queue. */
const TOLERANCE = 1.3

/** The same while the limit is not used up, because then it refuses nothing. */
const UNUSED_TOLERANCE = 1.5

const DECREASE = 0.1

export const aimd: AdaptiveMethod = ({ limit, slowness, isFailing, isUsed, isUsedUp, pace, certainty }) => {
  const isSlow = slowness > (isUsedUp ? TOLERANCE : UNUSED_TOLERANCE)
  if (isSlow || isFailing) return limit * (1 - DECREASE * pace * certainty)
  // In proportion to the square root, so that a limit of 1,000 doubles in a minute and not in a quarter of an hour.
  return isUsed ? limit + Math.max(1, Math.sqrt(limit) / 2) * pace : limit
}
