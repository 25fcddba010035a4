/**
 * The gradient method: the limit shrinks in proportion to how much slower than the baseline responses are, and leaves room for a queue
 * of its square root. After Gradient2 of Netflix (https://github.com/Netflix/concurrency-limits, Gradient2Limit).
 *
 * As published, `limit × gradient + queue` grows without end under overload (Netflix/concurrency-limits#134): it comes to rest where
 * `limit × (1 - gradient) = queue`, and the long-term latency that the gradient compares with follows the overload, so that the gradient
 * returns to 1 and nothing holds the limit. Here it cannot, for two reasons:
 *
 * - The baseline does not follow a queue (baseline.ts). While k requests at a time keep the origin busy, latency is `baseline × limit / k`
 *   for every limit above k, so the gradient is `TOLERANCE × k / limit`, and the limit rests where `limit = TOLERANCE × k + √limit`:
 *   for k = 100 that is 121. Above it every step goes down, whatever the queue term.
 * - The queue term is added only while the limit is used.
 */
import type { AdaptiveMethod } from './adaptive-method.ts'

/** Latency may be so much above the baseline: the mean of a second varies by a few percent. */
const TOLERANCE = 1.1

/** The same where the limit is not used up: it refuses nothing then, and need not shrink for a latency that passes. */
const UNUSED_TOLERANCE = 1.5

/** One window never takes more than this much of the way, before smoothing: a single slow second does not make an overload. */
const LOWEST_GRADIENT = 0.5

/** More failures than usual count like a latency that is too high by a quarter. */
const FAILING_GRADIENT = 0.8

/** How much of the way a window goes. */
const SMOOTHING = 0.5

export const gradient: AdaptiveMethod = ({
  limit,
  slowness,
  isFailing,
  isUsed,
  isUsedUp,
  pace,
  certainty,
}) => {
  const tolerance = isUsedUp ? TOLERANCE : UNUSED_TOLERANCE
  const byLatency = Math.min(1, Math.max(LOWEST_GRADIENT, tolerance / slowness))
  const ratio = isFailing ? Math.min(byLatency, FAILING_GRADIENT) : byLatency
  const mayGrow = isUsed && !isFailing && (isUsedUp || slowness < TOLERANCE)
  const change = ratio * limit + (mayGrow ? Math.sqrt(limit) : 0) - limit
  return limit + SMOOTHING * pace * (change < 0 ? certainty : 1) * change
}
