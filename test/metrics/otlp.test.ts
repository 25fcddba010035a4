/** Metrics that are pushed to an OpenTelemetry collector: their form, their timing, and what a dead collector costs. */
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { JsonMetricsSerializer } from '@opentelemetry/otlp-transformer'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { GatewayError } from '../../src/errors.ts'
import { createStatsRecorder } from '../../src/metrics/flush.ts'
import { createOtlpMeasurements, type OtlpPlatform, type OtlpSettings } from '../../src/metrics/otlp.ts'
import type { Store } from '../../src/store/store.ts'
import { rulesOf } from '../support/engines.ts'
import { listen } from '../support/listen.ts'
import { UNBOUNDED_LOG } from '../support/log.ts'

const START = Date.UTC(2026, 10, 21, 9)

const [RULE] = rulesOf({ name: 'minute', by: 'address', algorithm: 'fixed-window', limit: 100, period: '1m' })

interface Push {
  headers: IncomingHttpHeaders
  body: string
}

let pushes: Push[]
let warnings: string[]
let respond: ((status: (code: number) => void) => void) | undefined
const collector = createServer((request, response) => {
  let body = ''
  request.on('data', chunk => {
    body += chunk
  })
  request.on('end', () => {
    pushes.push({ headers: request.headers, body })
    const answer = (code: number) =>
      void response.writeHead(code, { 'content-type': 'application/json' }).end('{}')
    if (respond) respond(answer)
    else answer(200)
  })
})
beforeEach(async () => {
  pushes = []
  warnings = []
  respond = undefined
  await listen(collector, 0)
  vi.spyOn(console, 'warn').mockImplementation(line => void warnings.push(String(line)))
})
afterEach(async () => {
  vi.restoreAllMocks()
  collector.closeAllConnections()
  await new Promise(resolve => collector.close(resolve))
})

const urlOf = () => `http://127.0.0.1:${(collector.address() as AddressInfo).port}/v1/metrics`

/** An isolate with its own clock, which only the test moves. */
function isolate(settings: Partial<OtlpSettings> = {}, platform: Partial<OtlpPlatform> = {}) {
  let now = START
  let isStoreUp = true
  const sleepers: { at: number; wake: () => void }[] = []
  const tasks: Promise<unknown>[] = []
  const store: Store = {
    run: async () => {
      if (!isStoreUp) throw new GatewayError('ERR_STORE_UNREACHABLE', 'for the test')
      return [null]
    },
    ping: () => store.run([]).then(() => {}),
  }
  const measurements = createOtlpMeasurements(
    { url: urlOf(), ...settings },
    { everyMs: 10_000, now: () => now, log: UNBOUNDED_LOG, ...platform },
  )
  const timer = (ms: number, wake: () => void) => {
    sleepers.push({ at: now + ms, wake })
    return () => {}
  }
  const watched = measurements.watch(store)
  const stats = createStatsRecorder(watched, { everyMs: 10_000, now: () => now, timer, measurements })
  return {
    measurements,
    stats,
    breakStore() {
      isStoreUp = false
    },
    request(storeMs = 3, remaining = 40) {
      const verdicts = [{ rule: RULE!, mode: 'enforce' as const, allowed: true, remaining }]
      const observation = { outcome: 'allowed' as const, route: 'reports', plan: 'pro', storeMs, verdicts }
      stats.count(observation, false, task => void tasks.push(task))
      measurements.recordOrigin(20)
    },
    call: () =>
      stats.count(
        { limit: 'mail', outcome: 'limited', cause: 'store-timeout', verdicts: [] },
        false,
        task => {
          tasks.push(task)
        },
      ),
    /** Time passes, and all work that it brings is done. */
    async pass(ms: number) {
      now += ms
      for (const sleeper of sleepers.splice(0)) {
        if (sleeper.at <= now) sleeper.wake()
        else sleepers.push(sleeper)
      }
    },
    /** Until the isolate waits for time to pass. It may still get the reply to a push. */
    waits: () => vi.waitFor(() => expect(sleepers).not.toEqual([]), { timeout: 10_000 }),
    done: () => Promise.all(tasks),
  }
}

const arrived = (count: number) => vi.waitFor(() => expect(pushes).toHaveLength(count))

interface Json {
  resourceMetrics: {
    resource: { attributes: unknown[] }
    scopeMetrics: { scope: { name: string }; metrics: Metric[] }[]
  }[]
}
interface Point {
  attributes: { key: string; value: { stringValue: string } }[]
  startTimeUnixNano: string
  timeUnixNano: string
  asInt?: number
  asDouble?: number
  count?: number
  sum?: number
  bucketCounts?: number[]
  explicitBounds?: number[]
}
interface Metric {
  name: string
  description: string
  unit: string
  sum?: { dataPoints: Point[]; isMonotonic: boolean; aggregationTemporality: number }
  gauge?: { dataPoints: Point[] }
  histogram?: { dataPoints: Point[]; aggregationTemporality: number }
}

const metricsOf = ({ body }: Push) => (JSON.parse(body) as Json).resourceMetrics[0]!.scopeMetrics[0]!.metrics
const pointsOf = (push: Push, name: string) => {
  const metric = metricsOf(push).find(metric => metric.name === name)
  return (metric?.sum ?? metric?.gauge ?? metric?.histogram)?.dataPoints ?? []
}

/** What OpenTelemetry's own serializer writes for the same metrics. */
function asOpenTelemetryWrites(text: string): unknown {
  const [{ resource, scopeMetrics }] = (JSON.parse(text) as Json).resourceMetrics as [
    Json['resourceMetrics'][0],
  ]
  const attributesOf = (attributes: unknown[]) =>
    Object.fromEntries((attributes as Point['attributes']).map(({ key, value }) => [key, value.stringValue]))
  const hrTime = (nanoseconds: string) => [Number(nanoseconds.slice(0, -9)), Number(nanoseconds.slice(-9))]
  const dataOf = (metric: Metric) => {
    const { name, description, unit, sum, gauge, histogram } = metric
    const { dataPoints } = (sum ?? gauge ?? histogram)!
    return {
      descriptor: { name, description, unit, valueType: sum ? 0 : 1 },
      // DELTA, and the types SUM, GAUGE and HISTOGRAM, in the enums of the SDK.
      aggregationTemporality: 0,
      dataPointType: sum ? 3 : gauge ? 2 : 0,
      ...(sum && { isMonotonic: true }),
      dataPoints: dataPoints.map(point => ({
        attributes: attributesOf(point.attributes),
        startTime: hrTime(point.startTimeUnixNano),
        endTime: hrTime(point.timeUnixNano),
        value: histogram
          ? {
              buckets: { counts: point.bucketCounts, boundaries: point.explicitBounds },
              ...{ count: point.count, sum: point.sum },
            }
          : (point.asInt ?? point.asDouble),
      })),
    }
  }
  const given = {
    resource: { attributes: attributesOf(resource.attributes) },
    scopeMetrics: scopeMetrics.map(({ scope, metrics }) => ({ scope, metrics: metrics.map(dataOf) })),
  }
  const bytes = JsonMetricsSerializer.serializeRequest(
    given as unknown as Parameters<typeof JsonMetricsSerializer.serializeRequest>[0],
  )
  return JSON.parse(new TextDecoder().decode(bytes))
}

describe('metrics that are pushed to a collector', () => {
  it('have the form that the package of OpenTelemetry gives the same metrics', async () => {
    const { request, call, pass, done } = isolate({}, { environment: 'live' })
    request(0)
    request(250, 10)
    call()
    await pass(10_000)
    await arrived(1)
    await done()
    const [push] = pushes as [Push]
    expect(asOpenTelemetryWrites(push.body)).toEqual(JSON.parse(push.body))
    expect(metricsOf(push).map(({ name }) => name)).toEqual([
      ...[
        'sluice.requests',
        'sluice.decisions',
        'sluice.calls',
        'sluice.store.trips',
        'sluice.store.commands',
      ],
      ...['sluice.decision.duration', 'sluice.origin.duration', 'sluice.limit.usage'],
    ])
    expect(pointsOf(push, 'sluice.limit.usage')).toMatchObject([{ asDouble: 0.9 }])
    expect(pointsOf(push, 'sluice.decision.duration')).toMatchObject([{ count: 2, sum: 0.25 }])
    expect(push.headers['content-type']).toBe('application/json')
  })

  it('have what became of reservations', async () => {
    const { stats, request, pass } = isolate()
    request()
    stats.counters.add('reservation made tokens', 3)
    stats.counters.add('units cost tokens', 700)
    await pass(10_000)
    await arrived(1)
    const labels = (what: string, value: string) => [
      { key: 'policy', value: { stringValue: 'tokens' } },
      { key: what, value: { stringValue: value } },
    ]
    const made = { attributes: labels('state', 'made'), asInt: 3 }
    expect(pointsOf(pushes[0]!, 'sluice.reservations')).toMatchObject([made])
    const cost = { attributes: labels('what', 'cost'), asInt: 700 }
    expect(pointsOf(pushes[0]!, 'sluice.reservation.units')).toMatchObject([cost])
  })

  it('have only labels of the config, and what was counted since the last push', async () => {
    const { request, pass, done } = isolate()
    request()
    request()
    await pass(9999)
    expect(pushes).toEqual([])
    await pass(1)
    await arrived(1)
    await done()
    request()
    await pass(10_000)
    await arrived(2)
    const labels = { outcome: 'allowed', route: 'reports' }
    for (const [i, count, from, to] of [
      [0, 2, 0, 10_000],
      [1, 1, 10_000, 20_000],
    ] as const) {
      const [point] = pointsOf(pushes[i]!, 'sluice.requests')
      expect(point!.asInt).toBe(count)
      expect(Object.fromEntries(point!.attributes.map(({ key, value }) => [key, value.stringValue]))).toEqual(
        labels,
      )
      expect([point!.startTimeUnixNano, point!.timeUnixNano]).toEqual([
        `${START + from}000000`,
        `${START + to}000000`,
      ])
    }
    // The flush to the store in between.
    expect(pointsOf(pushes[1]!, 'sluice.store.trips')).toMatchObject([{ asInt: 1 }])
  })

  it('go on in an outage of the store', async () => {
    const { request, pass, waits, breakStore } = isolate()
    breakStore()
    for (let i = 1; i <= 3; i++) {
      request()
      await waits()
      await pass(10_000)
      await arrived(i)
      expect(pointsOf(pushes[i - 1]!, 'sluice.requests')).toMatchObject([{ asInt: 1 }])
    }
  })

  it('have headers from variables; without one, nothing is pushed, and one line says so', async () => {
    const headers = { 'x-api-key': 'OTLP_TOKEN' }
    const known = isolate({ headers }, { variables: { OTLP_TOKEN: 'a secret' } })
    known.request()
    await known.stats.flush()
    expect(pushes.map(({ headers }) => headers['x-api-key'])).toEqual(['a secret'])
    const unknown = isolate({ headers })
    for (let i = 0; i < 3; i++) {
      unknown.request()
      await unknown.stats.flush()
    }
    expect(pushes).toHaveLength(1)
    expect(warnings).toEqual([
      '{"level":"warn","event":"otlp","reason":"the variable OTLP_TOKEN is missing","skipped":0}',
    ])
  })

  it('are dropped by a dead collector, which is logged once until it is back', async () => {
    const { request, stats, measurements } = isolate()
    const push = async () => {
      request()
      await stats.flush()
    }
    respond = answer => answer(503)
    for (let i = 0; i < 5; i++) await push()
    expect(warnings).toEqual(['{"level":"warn","event":"otlp","reason":"HTTP 503","skipped":0}'])
    respond = undefined
    await push()
    // What the dead collector did not take is gone.
    expect(pointsOf(pushes.at(-1)!, 'sluice.requests')).toMatchObject([{ asInt: 1 }])
    respond = answer => answer(500)
    await push()
    expect(warnings).toHaveLength(2)
    expect(measurements.exporter).toBeDefined()
  })

  it('delay no counters of the store, and no request, while the collector hangs', async () => {
    let answer = (_: number) => {}
    respond = given => {
      answer = given
    }
    const tasks: Promise<unknown>[] = []
    const calls: unknown[] = []
    const { measurements } = isolate()
    const store: Store = {
      run: async sent => {
        calls.push(sent)
        return [null]
      },
      ping: async () => {},
    }
    const wakes: (() => void)[] = []
    const timer = (_: number, wake: () => void) => {
      wakes.push(wake)
      return () => {}
    }
    const stats = createStatsRecorder(store, { everyMs: 10_000, now: () => START, timer, measurements })
    stats.count({ outcome: 'allowed', verdicts: [] }, false, task => void tasks.push(task))
    for (const wake of wakes.splice(0)) wake()
    await arrived(1)
    await vi.waitFor(() => expect(calls).toHaveLength(1))
    answer(200)
    await Promise.all(tasks)
  })
})
