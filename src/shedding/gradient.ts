/**
 * The gradient method: the limit shrinks in proportion to how much slower responses are than the baseline, and leaves
 * room for a queue of its square root. After Gradient2 of Netflix (https://github.com/Netflix/concurrency-limits,
 * Gradient2Limit).
 *
 * As published, `limit × gradient + queue` grows without end under overload (Netflix/concurrency-limits#134). It
 * rests where `limit × (1 - gradient) = queue`. But the long-term latency that the gradient compares with follows the
 * overload, so the gradient returns to 1 and nothing holds the limit. This implementation avoids that in two ways:
 *
 * - The baseline does not follow a queue (baseline.ts). While k requests at a time keep the origin busy, latency is
 *   `baseline × limit / k` for every limit above k. So the gradient is `TOLERANCE × k / limit`, and the limit rests
 *   where `limit = TOLERANCE × k + √limit`: at 121 for k = 100. Above it every step goes down, whatever the queue
 *   term.
 * - The queue term is added only while the limit is used.
 */
import type { AdaptiveMethod } from './adaptive-method.ts'

/** Tolerated latency, as a multiple of the baseline: the mean of a second varies by a few percent. */
const TOLERANCE = 1.1

/** The same while the limit is not used up: then it refuses nothing, and need not shrink for a short peak of latency. */
const UNUSED_TOLERANCE = 1.5

/** The lowest gradient of one window, before smoothing: a single slow second is not an overload. */
const MIN_GRADIENT = 0.5

/** More failures than usual count like a latency that is a quarter too high. */
const FAILING_GRADIENT = 0.8

/** The share of the change that one window makes. */
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
  const byLatency = Math.min(1, Math.max(MIN_GRADIENT, tolerance / slowness))
  const ratio = isFailing ? Math.min(byLatency, FAILING_GRADIENT) : byLatency
  const mayGrow = isUsed && !isFailing && (isUsedUp || slowness < TOLERANCE)
  const change = ratio * limit + (mayGrow ? Math.sqrt(limit) : 0) - limit
  return limit + SMOOTHING * pace * (change < 0 ? certainty : 1) * change
}
