/** The schema of `metrics`: what an isolate measures beside the statistics. Messages as in rule-schema.ts. */
import * as v from 'valibot'
import type { Mistake } from '../config-error.ts'
import { isOriginUrl } from '../forms.ts'
import { headerName, record, settings, text } from './values.ts'

export interface MetricsInput extends v.InferInput<typeof metrics> {}

const COLLECTOR = "is not the URL of a collector. Write it like 'https://otlp.example.com/v1/metrics'."
const VARIABLE = "is not the name of a variable. Write it in capitals, as in 'OTLP_TOKEN'."

const otlp = settings(
  {
    /** The URL of a collector for metrics by OTLP/HTTP, such as `'https://otlp.example.com/v1/metrics'`. */
    url: v.pipe(v.string(COLLECTOR), v.check(isOriginUrl, COLLECTOR)),
    /**
     * Headers of each push, with the names of the variables that have their values: `{ authorization: 'OTLP_TOKEN' }`. Default:
     * none.
     */
    headers: v.optional(
      record(
        headerName,
        v.pipe(text(VARIABLE), v.regex(/^[A-Z][A-Z0-9_]*$/, VARIABLE)),
        "is not an object. Write it like { authorization: 'OTLP_TOKEN' }.",
      ),
    ),
  },
  "is not an object. Write it like { url: 'https://otlp.example.com/v1/metrics' }.",
)

export const metrics = settings(
  {
    /** Also push metrics to an OpenTelemetry collector, with the counters of `stats` (docs/operations.md). Default: none. */
    otlp: v.optional(otlp),
  },
  "is not an object. Write {}, or { otlp: { url: 'https://otlp.example.com/v1/metrics' } }.",
)

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
