/**
 * Reads the metrics of the whole fleet, as text for Prometheus. One HTTP request to the store reads the counters, and how much room the
 * origin has: up to 3 commands, and 4 more for each of fleet usage, an adaptive limit and worker utilization. While the store does not
 * answer, the text has what this isolate has counted.
 */
import type { Clock } from '../clock.ts'
import type { Config } from '../config/compile.ts'
import { isShared } from '../config/compile-shedding.ts'
import { GatewayError } from '../errors.ts'
import { type PreparedCall, runCalls } from '../limiter/prepared-call.ts'
import type { RuleSet } from '../script/rule-set-shape.ts'
import { callersKey, STATS_TOTAL_KEY } from '../store/keys.ts'
import type { Script, Store } from '../store/store.ts'
import {
  type AdaptiveLoad,
  prepareAdaptive,
  prepareFleet,
  prepareUtilization,
  type UtilizationLoad,
} from './current-load.ts'
import type { StatsRecorder } from './flush.ts'
import type { Measurements } from './measurements.ts'
import { isolateText, prometheusText } from './prometheus.ts'
import { mostRefused, recentHours } from './recorded-callers.ts'
import { countsIn, type Hash, highestIn, sumFields, sumMeasurements } from './sums.ts'

/** What the isolate has for metrics. */
export interface MetricsSource {
  /** With its trips counted, and without the breaker, as for health checks. */
  store: Store
  stats: Pick<StatsRecorder, 'counters'>
  measurements: Measurements
  /** That of the gateway or guard. Limits by name have no fleet usage. */
  ruleSet?: RuleSet
}

/** The parts that reading needs, as far as the config uses them. */
export interface MetricsReaderParts {
  /** With `shedding.fleetUsage`. */
  prepareFleet: typeof prepareFleet
  /** With an adaptive limit. */
  prepareAdaptive: typeof prepareAdaptive
  /** With `shedding.workerUtilization`. */
  prepareUtilization: typeof prepareUtilization
  /** With `shedding.workerUtilization` or an adaptive limit. */
  signalScript: () => Script
}

/** For set-ups without a build. */
export const METRICS_READER_PARTS = { prepareFleet, prepareAdaptive, prepareUtilization }

/** How long a text is reused (ms), so that scrapes cannot load the store. */
const FRESH_MS = 5000

const MINUTE_MS = 60e3

/** Shows what a set-up has measured. */
export interface WithMetrics {
  /**
   * Returns the metrics of all processes and isolates with this store, as text for Prometheus (version 0.0.4). The app serves it where it
   * likes, to whom it likes: the text can name refused consumers (`stats: { topCallers }`). It is read from the store at most every 5 s.
   *
   *     app.get('/metrics', async (req, res) => res.type('text/plain; version=0.0.4').send(await limit.metrics()))
   *
   * @throws TypeError if the config has no `metrics`
   */
  metrics(): Promise<string>
}

/** @param create undefined: the config has no `metrics`. Called with the first call of `metrics` */
export function withMetrics(create: () => (() => Promise<string>) | undefined): WithMetrics {
  let read: (() => Promise<string>) | undefined
  return {
    async metrics() {
      read ??= create()
      if (!read) throw new TypeError('The config has no metrics. Add metrics: {} to it.')
      return await read()
    },
  }
}

/** Creates a reader. It remembers the last text: plain data, so it may outlive a request. */
export function createMetricsReader(
  config: Partial<Pick<Config, 'rules' | 'shedding' | 'adaptive' | 'stats'>>,
  { store, stats, measurements, ruleSet }: MetricsSource,
  parts: Partial<MetricsReaderParts>,
  { now }: Pick<Clock, 'now'>,
): () => Promise<string> {
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
    const hasFleet = config.rules?.some(({ match }) => match.fromRank !== undefined)
    const options = { now, script: parts.signalScript! }
    const hours = config.stats?.topCallers ? recentHours(at) : []
    const callers = hours.map(hour => prepareHash(callersKey(hour)))
    const calls = [
      prepareRecord(STATS_TOTAL_KEY),
      hasFleet ? parts.prepareFleet!(config as Config, ruleSet!, at) : undefined,
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

  return async () => {
    if (!last || now() - last.at >= FRESH_MS) {
      // Until the store answers, other scrapes get the previous text. The first one has none, so it waits.
      if (last) last.at = now()
      last = { text: await read(), at: now() }
    }
    return last.text
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
