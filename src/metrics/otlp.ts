/**
 * Pushes metrics to an OpenTelemetry collector: OTLP over HTTP, as JSON (https://opentelemetry.io/docs/specs/otlp/), with the scheduler of
 * the statistics. Each push has what the isolate has counted since the last one (delta temporality), so isolates need no common memory.
 *
 * A push that fails is dropped, and logged once until one succeeds. No request waits for it. Attributes come from the config and from
 * fixed lists, as in counters.ts.
 */
import { SYSTEM_CLOCK } from '../clock.ts'
import type { Log } from '../log.ts'
import { choreEvery } from '../trips/scheduler.ts'
import { type Counters, createCounters } from './counters.ts'
import { BUCKETS_MS, createMeasurements, type Measurements } from './measurements.ts'
import { type MeasuredSums, type ReservationCounts, type Sums, sumFields, sumMeasurements } from './sums.ts'

export interface OtlpSettings {
  url: string
  /** The variables with the values of headers, by the name of the header. */
  headers?: Readonly<Record<string, string>> | undefined
}

export interface OtlpPlatform {
  everyMs: number
  log: Log
  /** Of the environment. */
  variables?: Readonly<Record<string, unknown>> | undefined
  environment?: string | undefined
  /** ms since the epoch */
  now?: () => number
}

/** How long a collector may take (ms). */
const DEADLINE_MS = 5000

/** Creates measurements that are also pushed. */
export function createOtlpMeasurements(
  { url, headers = {} }: OtlpSettings,
  { everyMs, log, variables = {}, environment, now = SYSTEM_CLOCK.now }: OtlpPlatform,
): Measurements {
  const forStore = createMeasurements()
  const pushed = createMeasurements()
  const { forStore: countersForStore, forPush: counters } = createSharedCounters()
  const missing = Object.values(headers).filter(name => typeof variables[name] !== 'string')
  let since = now()
  let hasFailed = false
  /** Workers may not make random numbers before the first request. */
  let instance: string | undefined

  function logOnce(reason: string): void {
    if (!hasFailed) log('warn', 'otlp', { reason })
    hasFailed = true
  }

  async function push(): Promise<void> {
    if (counters.size === 0) return
    const sums = sumFields(counters.take(Number.POSITIVE_INFINITY))
    const { usage, totals } = pushed.take()
    if (missing.length > 0) return logOnce(`the variable ${missing.join(', ')} is missing`)
    const measured = sumMeasurements(totals, usage)
    instance ??= crypto.randomUUID()
    const until = now()
    const body = otlpRequest(sums, measured, { since, until, environment, instance })
    since = until
    try {
      const response = await fetch(url, {
        method: 'POST',
        headers: {
          ...Object.fromEntries(
            Object.entries(headers).map(([header, name]) => [header, String(variables[name])]),
          ),
          'content-type': 'application/json',
        },
        body: JSON.stringify(body),
        redirect: 'manual',
        signal: AbortSignal.timeout(DEADLINE_MS),
      })
      await response.body?.cancel()
      if (response.ok) hasFailed = false
      else logOnce(`HTTP ${response.status}`)
    } catch (error) {
      // Messages of `fetch` can quote the URL.
      logOnce((error as Error).name === 'TimeoutError' ? 'timeout' : 'unreachable')
    }
  }

  const chore = choreEvery(everyMs, counters, push)

  return {
    ...forStore,
    record(observation) {
      forStore.record(observation)
      pushed.record(observation)
    },
    recordOrigin(ms) {
      forStore.recordOrigin(ms)
      pushed.recordOrigin(ms)
    },
    watch: store => pushed.watch(forStore.watch(store)),
    noteStoreChange(isOpen) {
      forStore.noteStoreChange(isOpen)
      pushed.noteStoreChange(isOpen)
    },
    exporter: { counters: countersForStore, chore, push },
  }
}

/** Counters that are recorded once, and taken twice: by the statistics and by pushes. */
function createSharedCounters(): { forStore: Counters; forPush: Counters } {
  const recorded = createCounters()
  const both = [createCounters(), createCounters()] as const
  /** The counters, with what was recorded since they were last read. */
  function read(counters: Counters): Counters {
    const batch = recorded.take(Number.POSITIVE_INFINITY)
    for (const each of both) each.putBack(batch)
    return counters
  }
  const [forStore, forPush] = both.map(
    (counters): Counters => ({
      ...counters,
      record: recorded.record,
      add: recorded.add,
      get size() {
        return read(counters).size
      },
      all: () => read(counters).all(),
      take: max => read(counters).take(max),
    }),
  ) as [Counters, Counters]
  return { forStore, forPush }
}

interface Interval {
  /** ms since the epoch */
  since: number
  until: number
  environment: string | undefined
  /** Of the isolate: random. Deltas of several isolates must not look like those of one. */
  instance: string
}

type Attributes = Readonly<Record<string, string | undefined>>

type Points = readonly (readonly [Attributes, number])[]

/** DELTA of the enum AggregationTemporality. */
const DELTA = 1

/** The body of a request: ExportMetricsServiceRequest in the JSON form of Protocol Buffers. */
export function otlpRequest(sums: Sums, measured: MeasuredSums, interval: Interval): object {
  const { environment, instance } = interval
  const timing = { startTimeUnixNano: nanoseconds(interval.since), timeUnixNano: nanoseconds(interval.until) }
  const pointsOf = (points: Points, type: 'asInt' | 'asDouble') =>
    points.map(([attributes, value]) => ({ attributes: attributesOf(attributes), ...timing, [type]: value }))
  const sum = (name: string, unit: string, description: string, points: Points) => ({
    ...{ name, description, unit },
    sum: {
      ...{ aggregationTemporality: DELTA, isMonotonic: true },
      dataPoints: pointsOf(
        points.filter(([, value]) => value > 0),
        'asInt',
      ),
    },
  })
  const duration = (what: 'decision' | 'origin', description: string) => {
    const { buckets, sumMs } = measured.times.get(what)!
    const count = buckets.reduce((sum, inBucket) => sum + inBucket, 0)
    const point = {
      attributes: [],
      ...{ bucketCounts: buckets, explicitBounds: BUCKETS_MS.map(ms => ms / 1e3), count, sum: sumMs / 1e3 },
      ...timing,
    }
    return {
      ...{ name: `sluice.${what}.duration`, description, unit: 's' },
      histogram: { aggregationTemporality: DELTA, dataPoints: count > 0 ? [point] : [] },
    }
  }
  const highest = (what: 'usage' | 'reserved' | 'debt', description: string) => ({
    ...{ name: `sluice.limit.${what}`, description, unit: '1' },
    gauge: {
      dataPoints: pointsOf(
        [...measured[what]].map(([policy, share]) => [{ policy }, share]),
        'asDouble',
      ),
    },
  })
  const { reservations = {} } = sums
  const ofReservations = (whats: readonly (keyof ReservationCounts)[], label: string): Points =>
    Object.entries(reservations).flatMap(([policy, counts]) =>
      whats.map(what => [{ policy, [label]: what }, counts[what]] as const),
    )
  const metrics = [
    sum(
      'sluice.requests',
      '{request}',
      'Outcomes of requests.',
      sums.requests.map(({ count, ...labels }) => [labels, count]),
    ),
    sum(
      'sluice.decisions',
      '{decision}',
      'Verdicts of rules.',
      sums.rules.flatMap(({ rule: policy, route, plan, mode, ...counts }) =>
        (
          [
            ['allowed', counts.allowed],
            ['limited', counts.limited],
            ['shadow_allowed', counts.shadowAllowed],
            ['shadow_limited', counts.shadowLimited],
          ] as const
        ).map(
          ([outcome, count]) =>
            [{ policy, route, plan, mode: mode === 'test' ? mode : '-', outcome }, count] as const,
        ),
      ),
    ),
    sum(
      'sluice.critical.requests',
      '{request}',
      'Admitted requests of critical classes; over: while a shedder would have refused others.',
      Object.entries(sums.critical ?? {}).flatMap(([name, counts]) =>
        (['within', 'over'] as const).map(capacity => [{ class: name, capacity }, counts[capacity]] as const),
      ),
    ),
    sum(
      'sluice.calls',
      '{call}',
      'Outcomes of calls of limits by name.',
      sums.calls.map(({ count, ...labels }) => [labels, count]),
    ),
    sum(
      'sluice.reservations',
      '{reservation}',
      'Reservations, and how they ended.',
      ofReservations(['made', 'settled', 'late', 'unsettled'], 'state'),
    ),
    sum(
      'sluice.reservation.units',
      '{unit}',
      'Units that were reserved, that requests have cost (background responses and batches with their estimates), and that were spent above the limit.',
      ofReservations(['reserved', 'cost', 'debt'], 'what'),
    ),
    sum('sluice.store.trips', '{request}', 'HTTP requests to the store.', [[{}, measured.trips]]),
    sum('sluice.store.commands', '{command}', 'Commands that the store has billed, at most.', [
      [{}, measured.commands],
    ]),
    sum('sluice.breaker.opened', '{event}', 'How often the isolate has stopped calling the store.', [
      [{}, measured.breakerOpened],
    ]),
    duration('decision', 'Time until a request was decided.'),
    duration('origin', 'Time until the origin sent the head of its response.'),
    highest('usage', 'The highest share of its limit that any identity has used.'),
    highest('reserved', 'The highest share of its limit that one request has reserved.'),
    highest('debt', 'The highest debt of any identity, as a share of the limit.'),
  ]
  const hasPoints = (metric: object) =>
    Object.values(metric).some(value => (value as { dataPoints?: unknown[] }).dataPoints?.length)
  const resource = {
    'service.name': 'sluice',
    'service.instance.id': instance,
    'deployment.environment.name': environment,
  }
  return {
    resourceMetrics: [
      {
        resource: { attributes: attributesOf(resource), droppedAttributesCount: 0 },
        scopeMetrics: [{ scope: { name: 'sluicegate' }, metrics: metrics.filter(hasPoints) }],
      },
    ],
  }
}

/** As text: a number of JSON would lose the last digits. */
const nanoseconds = (ms: number) => `${Math.round(ms)}000000`

/** `-` stands for a label that is missing. */
const attributesOf = (attributes: Attributes) =>
  Object.entries(attributes).flatMap(([key, value]) =>
    value === undefined || value === '-' ? [] : [{ key, value: { stringValue: value } }],
  )
