/** Writes the counters in the text format of Prometheus (version 0.0.4). Dashboards depend on the names. */
import type { CurrentLoad, LevelLoad } from './origin-load.ts'
import type { Stats } from './stats.ts'

type Labels = Readonly<Record<string, string>>
type Sample = readonly [labels: Labels, value: number]

/** Midnight (UTC), at which the counters restart from 0. Prometheus accepts a counter that restarts, but not one that shrinks. */
export function startOfDay(now: Date): Date {
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate()))
}

export function prometheusText(
  { rules, requests, withoutTrip, test, lost, calls, callsWithoutTrip, lostCalls }: Stats,
  load: CurrentLoad = {},
): string {
  const verdicts = rules.flatMap(({ rule, route, plan, ...counts }) => {
    const labels = { policy: rule, route: labelValue(route), plan: labelValue(plan) }
    return [
      [{ ...labels, outcome: 'allowed' }, counts.allowed],
      [{ ...labels, outcome: 'limited' }, counts.limited],
      [{ ...labels, outcome: 'shadow_allowed' }, counts.shadowAllowed],
      [{ ...labels, outcome: 'shadow_limited' }, counts.shadowLimited],
    ] satisfies Sample[]
  })
  const agreements = rules.flatMap(({ rule, route, plan, agreed, disagreed }) => {
    const labels = { policy: rule, route: labelValue(route), plan: labelValue(plan) }
    return [
      [{ ...labels, agreement: 'agreed' }, agreed],
      [{ ...labels, agreement: 'disagreed' }, disagreed],
    ] satisfies Sample[]
  })
  const outcomes = requests.map(
    ({ outcome, cause, route, count }): Sample => [
      { outcome, cause: labelValue(cause), route: labelValue(route) },
      count,
    ],
  )
  const errors = new Map<string, number>()
  for (const { cause, count } of requests) {
    const reason = /^store-(.+)/.exec(cause)?.[1]
    if (reason) errors.set(reason, (errors.get(reason) ?? 0) + count)
  }
  return [
    counter('decisions', 'Verdicts of rules.', verdicts.filter(isCounted)),
    counter(
      'candidate_verdicts',
      'Verdicts of candidates, compared with those of the replaced rule.',
      agreements.filter(isCounted),
    ),
    counter('requests', 'Outcomes of requests.', outcomes),
    counter(
      'store_errors',
      'Requests that the store failed to decide.',
      [...errors].map(([reason, count]): Sample => [{ reason }, count]),
    ),
    counter(
      'without_trip',
      'Requests that were decided without a trip to the store.',
      Object.entries(withoutTrip).map(([from, count = 0]): Sample => [{ from }, count]),
    ),
    counter(
      'test_requests',
      'Requests of test callers, which are also in requests.',
      Object.entries(test).map(([outcome, count = 0]): Sample => [{ outcome }, count]),
    ),
    counter('lost_requests', 'Requests whose counters may not have arrived.', [[{}, lost]]),
    counter(
      'calls',
      'Outcomes of calls of limits by name.',
      calls.map(
        ({ limit, outcome, cause, count }): Sample => [{ limit, outcome, cause: labelValue(cause) }, count],
      ),
    ),
    counter(
      'calls_without_trip',
      'Calls of limits by name that were decided without a trip to the store.',
      Object.entries(callsWithoutTrip).map(([from, count = 0]): Sample => [{ from }, count]),
    ),
    counter(
      'lost_calls',
      'Calls of limits by name whose counters may not have arrived.',
      calls.length + lostCalls > 0 ? [[{}, lostCalls]] : [],
    ),
    ...gaugesOf(load),
  ].join('')
}

function gaugesOf({ fleetUsage = [], adaptive, workerUtilization }: CurrentLoad): string[] {
  const levels = (of: (level: LevelLoad) => number) =>
    fleetUsage.map((level): Sample => [{ policy: level.rule }, of(level)])
  const one = (value: number | undefined): Sample[] => (value === undefined ? [] : [[{}, value]])
  const seconds = (ms: number | undefined) => one(ms && ms / 1000)
  return [
    gauge(
      'fleet_in_flight',
      'Requests in flight.',
      levels(({ inFlight }) => inFlight),
    ),
    gauge(
      'fleet_limit',
      'Requests that may be in flight.',
      levels(({ limit }) => limit),
    ),
    gauge('adaptive_limit', 'The adaptive limit: requests that may be in flight.', one(adaptive?.limit)),
    gauge('origin_latency_seconds', 'Latency of the origin.', seconds(adaptive?.latencyMs)),
    gauge('origin_usual_latency_seconds', 'Usual latency of the origin.', seconds(adaptive?.baselineMs)),
    gauge('worker_utilization', 'Mean utilization of the origin.', one(workerUtilization?.utilization)),
    gauge('pressure_seconds', 'Pressure of worker utilization.', seconds(workerUtilization?.pressureMs)),
    gauge(
      'refused_share',
      'Share of callers that worker utilization refuses.',
      (workerUtilization?.classes ?? []).map(({ rule, refused }): Sample => [{ policy: rule }, refused]),
    ),
  ]
}

const isCounted = ([, value]: Sample) => value > 0

/** The value of a label. Prometheus treats an empty label like a missing one. */
const labelValue = (label: string) => (label === '-' ? '' : label)

const counter = (name: string, help: string, samples: readonly Sample[]) =>
  metric(`gateway_rate_limit_${name}_total`, 'counter', help, samples)

const gauge = (name: string, help: string, samples: readonly Sample[]) =>
  metric(`gateway_rate_limit_${name}`, 'gauge', help, samples)

function metric(name: string, type: string, help: string, samples: readonly Sample[]): string {
  if (samples.length === 0) return ''
  const lines = samples.map(([labels, value]) => `${name}${labelText(labels)} ${value}`)
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...lines, ''].join('\n')
}

function labelText(labels: Labels): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escapedLabel(value)}"`)
  return pairs.length > 0 ? `{${pairs.join(',')}}` : ''
}

function escapedLabel(value: string): string {
  return value.replace(/\\/g, '\\\\').replace(/"/g, '\\"').replace(/\n/g, '\\n')
}
