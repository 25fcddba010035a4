/** The schema of `metrics`: what an isolate measures beside the statistics. Messages as in rule-schema.ts. */
import type * as v from 'valibot'
import type { Mistake } from '../config-error.ts'
import { settings } from './values.ts'

export interface MetricsInput extends v.InferInput<typeof metrics> {}

export const metrics = settings({}, 'is not an object. Write {}.')

/** Measurements are sent with the statistics. */
export function mistakesOfMetrics({
  metrics,
  stats,
}: {
  metrics?: MetricsInput | undefined
  stats?: { keep?: boolean | undefined } | undefined
}): Mistake[] {
  if (!metrics || stats?.keep !== false) return []
  const message = 'has no effect with stats: { keep: false }. Leave one of them out.'
  return [{ path: 'metrics', message }]
}
