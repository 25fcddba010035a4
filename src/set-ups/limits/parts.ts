/** Parts that a Worker carries only if its limits by name use them. src/built/binding.generated.ts selects them. */

import type { EngineParts } from '../../limiter/engine-with-parts.ts'
import type { preparePause, prepareReset } from '../../limiter/prepared-call.ts'
import type { MeasurementParts } from '../../metrics/create-metrics.ts'
import type { createStatsRecorder } from '../../metrics/flush.ts'
import type { createMetricsReader } from '../../metrics/metrics-reader.ts'
import type { createTopCallers } from '../../metrics/top-callers.ts'
import type { createGiveNumbers, NumbersParts } from './numbers.ts'
import type { createReserving } from './reserve.ts'

export interface LimiterParts extends EngineParts, MeasurementParts, NumbersParts {
  /** For `reset`, which the service binding does not offer. */
  prepareReset: typeof prepareReset
  preparePause: typeof preparePause
  /** With rules that reserve units. */
  createReserving: typeof createReserving
  /** With rules whose numbers each call gives. */
  createGiveNumbers: typeof createGiveNumbers
  /** For `metrics`, which the service binding does not offer. */
  createMetricsReader?: typeof createMetricsReader
  /** Unless nothing is counted (`stats: { keep: false }`). */
  createStatsRecorder: typeof createStatsRecorder
  /** Unless `stats: { topCallers: 'off' }`. */
  createTopCallers: typeof createTopCallers
}
