/**
 * GET /_sluice/metrics: the metrics of the whole fleet, for Prometheus.
 *
 *     curl https://gateway.example/_sluice/metrics -H "authorization: Bearer $SLUICE_METRICS_TOKEN"
 *
 * One HTTP request to the store reads the counters, and how much room the origin has: up to 3 commands, and 4 more for each of fleet usage,
 * an adaptive limit and worker utilization. While the store does not answer, the reply has what this isolate has counted.
 */
import type { Clock } from '../../clock.ts'
import type { Config } from '../../config/compile.ts'
import { isShared } from '../../config/compile-shedding.ts'
import { mistakeText } from '../../config/config-error.ts'
import { METRICS_TOKEN, weaknessOf } from '../../config/metrics-token.ts'
import { GatewayError } from '../../errors.ts'
import { type PreparedCall, runCalls } from '../../limiter/prepared-call.ts'
import {
  type AdaptiveLoad,
  prepareAdaptive,
  prepareFleet,
  prepareUtilization,
  type UtilizationLoad,
} from '../../metrics/current-load.ts'
import { isolateText, prometheusText } from '../../metrics/prometheus.ts'
import { mostRefused, recentHours } from '../../metrics/recorded-callers.ts'
import { countsIn, type Hash, highestIn, sumFields, sumMeasurements } from '../../metrics/sums.ts'
import { callersKey, STATS_TOTAL_KEY } from '../../store/keys.ts'
import type { Script } from '../../store/store.ts'
import { createBearerCheck } from '../http/bearer.ts'
import type { MetricsSource } from '../http/handle.ts'

/** The parts that the path needs, as far as the config uses them. */
export interface MetricsParts {
  createMetricsEndpoint: typeof createMetricsEndpoint
  /** With `shedding.fleetUsage`. */
  prepareFleet: typeof prepareFleet
  /** With an adaptive limit. */
  prepareAdaptive: typeof prepareAdaptive
  /** With `shedding.workerUtilization`. */
  prepareUtilization: typeof prepareUtilization
}

/** How long a reply is reused (ms), so that scrapes cannot load the store. */
const FRESH_MS = 5000

const MINUTE_MS = 60e3

/**
 * Creates the handler of /_sluice/metrics. It remembers its last reply: plain data, so it may outlive a request.
 * @param variables of the environment
 * @returns undefined without a secret: the path does not exist
 */
export function createMetricsEndpoint(
  config: Pick<Config, 'rules' | 'shedding' | 'adaptive' | 'stats'>,
  { store, stats, measurements, ruleSet }: MetricsSource,
  parts: Partial<MetricsParts> & { signalScript: () => Script },
  variables: Readonly<Record<string, unknown>> | undefined,
  { now }: Clock,
): ((request: Request) => Promise<Response>) | undefined {
  const token = variables?.[METRICS_TOKEN]
  const refuse = createBearerCheck(token)
  if (!refuse) return undefined
  const weakness = weaknessOf(token)
  // biome-ignore lint/suspicious/noConsole: at the start, as for a variable that is not valid.
  if (weakness) console.warn(mistakeText(weakness))
  let last: { at: number; text: string } | undefined

  async function read(): Promise<string> {
    try {
      return isolateText(true, measurements.isBreakerOpen()) + (await readStore())
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error
      return isolateText(false, measurements.isBreakerOpen(), sumFields(stats.counters.all()))
    }
  }

  async function readStore(): Promise<string> {
    const at = now()
    const { workerUtilization } = config.shedding ?? {}
    const hasFleet = config.rules.some(({ match }) => match.fromRank !== undefined)
    const options = { now, script: parts.signalScript }
    const hours = config.stats?.topCallers ? recentHours(at) : []
    const callers = hours.map(hour => prepareHash(callersKey(hour)))
    const calls = [
      prepareRecord(STATS_TOTAL_KEY),
      hasFleet ? parts.prepareFleet!(config, ruleSet, at) : undefined,
      config.adaptive && parts.prepareAdaptive!(config.adaptive, options),
      workerUtilization && isShared(workerUtilization)
        ? parts.prepareUtilization!(workerUtilization, options)
        : undefined,
    ] as const
    const sent = [...calls, ...callers].filter(call => call !== undefined)
    const results = await runCalls<unknown>(store, sent)
    /** The result of a call; undefined if it was not sent, or if it failed by itself. */
    const resultOf = <T>(call: PreparedCall<T> | undefined) => {
      const result = call && results[(sent as readonly unknown[]).indexOf(call)]
      return result instanceof GatewayError ? undefined : (result as T | undefined)
    }
    const [total, fleet, adaptive, utilization] = calls
    const record = resultOf(total)
    if (!record) throw results[0]
    const totals = countsIn(record)
    const adaptiveLoad: AdaptiveLoad | undefined = resultOf(adaptive)
    const utilizationLoad: UtilizationLoad | undefined = resultOf(utilization)
    const fleetUsage = resultOf(fleet)?.(adaptiveLoad?.limit)
    const load = {
      ...(fleetUsage && { fleetUsage }),
      ...(adaptiveLoad && { adaptive: adaptiveLoad }),
      ...(utilizationLoad && { workerUtilization: utilizationLoad }),
    }
    const measured = sumMeasurements(totals, highestIn(record, Math.floor(at / MINUTE_MS) - 1))
    const hashes = callers.map(call => resultOf(call) ?? [])
    return prometheusText(sumFields(totals), load, {
      ...measured,
      mostRefused: mostRefused(hours, hashes, at),
    })
  }

  return async request => {
    const refusal = refuse(request)
    if (refusal) return refusal
    if (!last || now() - last.at >= FRESH_MS) {
      // Until the store answers, other scrapes get the previous reply. The first one has none, so it waits.
      if (last) last.at = now()
      last = { text: await read(), at: now() }
    }
    return new Response(last.text, {
      headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8', 'cache-control': 'no-store' },
    })
  }
}

const isHash = (reply: unknown): reply is string[] =>
  Array.isArray(reply) && reply.length % 2 === 0 && reply.every(text => typeof text === 'string')

const invalid = () => new GatewayError('ERR_STORE_REPLY_INVALID', "The store's reply is not a hash.")

function prepareHash(key: string): PreparedCall<Hash> {
  return {
    call: { command: 'HGETALL', key },
    decode(reply) {
      if (isHash(reply)) return reply
      throw invalid()
    },
  }
}

function prepareRecord(key: string): PreparedCall<Hash> {
  const { call, decode } = prepareHash(key)
  return {
    call,
    decode(reply) {
      const record = decode(reply)
      if (countsIn(record).every(([, count]) => count >= 0)) return record
      throw invalid()
    },
  }
}

/** All of them, for a gateway without a build. */
export const METRICS_PARTS: MetricsParts = {
  createMetricsEndpoint,
  prepareFleet,
  prepareAdaptive,
  prepareUtilization,
}
