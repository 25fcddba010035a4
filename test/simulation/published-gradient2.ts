/**
 * Gradient2 by its published formula and constants, for comparison. Once a second, the limit moves by a fifth of the way to
 * limit × ratio + 4. The ratio is long-term by current latency, from 0.5 to 1. The 4 are room for a queue. The limit stays unchanged
 * while less than half of it is in flight. The long-term latency is an exponential mean over 600 samples. A sample is a request, or a
 * window of a second if the limit is wrapped in a WindowedLimit.
 */

import type { AdaptiveLimitState, AdaptiveSettings } from '../../src/shedding/adaptive.ts'
import { NO_BASELINE } from '../../src/shedding/baseline.ts'
import type { Controller } from '../../src/shedding/controller.ts'
import { ADAPTIVE_SETTINGS } from '../support/shedding-settings.ts'

const QUEUE = 4
const SMOOTHING = 0.2
const LONG_SAMPLES = 600
/** The first samples have equal weights, before the mean becomes exponential. */
const WARM_UP = 10

/** Does not serialize its states, because it runs only in the simulation. */
export function publishedGradient2(
  sample: 'request' | 'second',
  { min, max, initial }: AdaptiveSettings = ADAPTIVE_SETTINGS,
) {
  let samples = 0
  const texts: AdaptiveLimitState[] = []
  const controller: Controller<AdaptiveLimitState> = {
    initial: { ...NO_BASELINE, limit: initial, usualFailures: 0 },
    next(state, { sums: [ended = 0, failures = 0, latency = 0, inFlight = 0] }) {
      if (ended - failures <= 0) return state
      const current = latency / (ended - failures)
      const isNew = samples++ < WARM_UP
      const own = 1 - (1 - 2 / (LONG_SAMPLES + 1)) ** (sample === 'request' ? ended - failures : 1)
      const weight = isNew ? 1 / samples : own
      const mean = state.baselineMs + weight * (current - state.baselineMs)
      const baselineMs = mean / current > 2 ? 0.9 * mean : mean
      const { limit } = state
      if (inFlight / ended < limit / 2) return { ...state, baselineMs }
      const ratio = Math.max(0.5, Math.min(1, mean / current))
      const next = limit * (1 - SMOOTHING) + (limit * ratio + QUEUE) * SMOOTHING
      return { ...state, baselineMs, limit: Math.max(min, Math.min(max, next)) }
    },
    write: state => String(texts.push(state) - 1),
    read: text => texts[Number(text)],
  }
  return controller
}
