/** Creates the measurements that a config asks for. */
import type { Config } from '../config/compile.ts'
import type { Log } from '../log.ts'
import type { createMeasurements, Measurements } from './measurements.ts'
import type { createOtlpMeasurements } from './otlp.ts'

export interface MeasurementParts {
  /** With `metrics`. */
  createMeasurements: typeof createMeasurements
  /** With `metrics: { otlp }`. */
  createOtlpMeasurements: typeof createOtlpMeasurements
}

/**
 * @param variables of the environment
 * @param now ms since the epoch
 */
export function createMetrics(
  { metrics, stats, environment }: Pick<Config, 'metrics' | 'stats' | 'environment'>,
  parts: MeasurementParts,
  log: Log,
  variables: Readonly<Record<string, unknown>> | undefined,
  now: () => number,
): Measurements | undefined {
  if (!metrics?.otlp) return metrics && parts.createMeasurements()
  const { everyMs } = stats!
  return parts.createOtlpMeasurements(metrics.otlp, { everyMs, log, variables, environment, now })
}
