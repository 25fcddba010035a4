/**
 * GET /_sluice/metrics: the metrics of the whole fleet, for Prometheus.
 *
 *     curl https://gateway.example/_sluice/metrics -H "authorization: Bearer $SLUICE_METRICS_TOKEN"
 */
import type { Clock } from '../../clock.ts'
import type { Config } from '../../config/compile.ts'
import { mistakeText } from '../../config/config-error.ts'
import { METRICS_TOKEN, weaknessOf } from '../../config/metrics-token.ts'
import {
  createMetricsReader,
  METRICS_READER_PARTS,
  type MetricsReaderParts,
  type MetricsSource,
} from '../../metrics/metrics-reader.ts'
import { createBearerCheck } from '../http/bearer.ts'

/** The parts that the path needs, as far as the config uses them. */
export interface MetricsParts extends Omit<MetricsReaderParts, 'signalScript'> {
  createMetricsEndpoint: typeof createMetricsEndpoint
}

/**
 * Creates the handler of /_sluice/metrics.
 * @param variables of the environment
 * @returns undefined without a secret: the path does not exist
 */
export function createMetricsEndpoint(
  config: Pick<Config, 'rules' | 'shedding' | 'adaptive' | 'stats'>,
  source: MetricsSource,
  parts: Partial<MetricsReaderParts>,
  variables: Readonly<Record<string, unknown>> | undefined,
  clock: Clock,
): ((request: Request) => Promise<Response>) | undefined {
  const token = variables?.[METRICS_TOKEN]
  const refuse = createBearerCheck(token)
  if (!refuse) return undefined
  const weakness = weaknessOf(token)
  // biome-ignore lint/suspicious/noConsole: at the start, as for a variable that is not valid.
  if (weakness) console.warn(mistakeText(weakness))
  const read = createMetricsReader(config, source, parts, clock)
  return async request =>
    refuse(request) ??
    new Response(await read(), {
      headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8', 'cache-control': 'no-store' },
    })
}

/** All of them, for a gateway without a build. */
export const METRICS_PARTS: MetricsParts = { createMetricsEndpoint, ...METRICS_READER_PARTS }
