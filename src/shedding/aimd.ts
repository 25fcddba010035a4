/**
 * Additive increase, multiplicative decrease, as in TCP (RFC 5681): the limit grows slowly while it is used, and shrinks by a twentieth if
 * responses are too slow or more of them fail than usual. It never settles: it grows until the queue is too long and then backs off, in a
 * sawtooth. Far below the tolerated latency, it grows much faster, as TCP does in its slow start: by 50 % in each second.
 */
import type { AdaptiveMethod } from './adaptive-method.ts'

/** With a tenth, two slow seconds in a row would put the limit below what the origin can do. */
const DECREASE = 0.05

/** Slow start: up to this share of the tolerated latency, the limit grows by half. */
const SLOW_START_SHARE = 0.75
const SLOW_START_GROWTH = 0.5

export const aimd: AdaptiveMethod = measured => {
  const { limit, slowness, tolerated, isFailing } = measured
  const { mayGrow, mayMultiply, pace, certainty } = measured
  if (slowness > tolerated || isFailing) return limit * (1 - DECREASE * pace * certainty)
  if (mayMultiply && slowness < SLOW_START_SHARE * tolerated) return limit * (1 + SLOW_START_GROWTH * pace)
  // In proportion to the square root, so that a limit of 1,000 doubles in a minute and not in a quarter of an hour.
  return mayGrow ? limit + Math.max(1, Math.sqrt(limit) / 2) * pace : limit
}
