/**
 * The gradient method: the limit moves in proportion to the ratio of the tolerated latency to the measured one, and leaves room for a queue
 * of its square root. After Gradient2 of Netflix (https://github.com/Netflix/concurrency-limits, Gradient2Limit), with three changes:
 *
 * - The baseline does not follow a queue (baseline.ts). As published, the long-term latency that the gradient compares with follows the
 *   overload, so nothing holds the limit (Netflix/concurrency-limits#134). Here, while k requests at a time keep the origin busy, the
 *   gradient is `tolerance × k / limit`, and the limit rests where `limit = tolerance × k + √limit`: at 215 for k = 100 and a tolerance of
 *   2.
 * - The queue term is added only while the limit is used.
 * - The gradient can be 2, and not at most 1, because a tolerance well above 1 leaves a margin that the noise of a second does not bridge.
 *   Otherwise, the limit would need a minute from 20 to 400.
 */
import type { AdaptiveMethod } from './adaptive-method.ts'

/** The range of the gradient of one window, before smoothing: a single slow or fast second says little. */
const MIN_GRADIENT = 0.5
const MAX_GRADIENT = 2

/** More failures than usual count like a latency that is a quarter too high. */
const FAILING_GRADIENT = 0.8

/** The share of the change that one window makes. */
const SMOOTHING = 0.5

export const gradient: AdaptiveMethod = measured => {
  const { limit, slowness, tolerated, isFailing } = measured
  const { mayGrow, mayMultiply, pace, certainty } = measured
  const byLatency = Math.min(mayMultiply ? MAX_GRADIENT : 1, Math.max(MIN_GRADIENT, tolerated / slowness))
  const ratio = isFailing ? Math.min(byLatency, FAILING_GRADIENT) : byLatency
  const change = ratio * limit + (mayGrow ? Math.sqrt(limit) : 0) - limit
  return limit + SMOOTHING * pace * (change < 0 ? certainty : 1) * change
}
