/**
 * Writes the counters in the text format of Prometheus (version 0.0.4), for `npx sluicegate stats --prometheus` and for
 * GET /_sluice/metrics. Dashboards depend on the names.
 */
import type { CurrentLoad, LevelLoad } from './current-load.ts'
import { BUCKETS_MS } from './measurements.ts'
import { CAUSES, OUTCOMES } from './observation.ts'
import type { MeasuredSums, RequestCount, ReservationCounts, RuleCounts, Sums } from './sums.ts'

type Labels = Readonly<Record<string, string>>
type Sample = readonly [labels: Labels, value: number]

/** Midnight (UTC), at which the counters restart from 0. Prometheus accepts a counter that restarts, but not one that shrinks. */
export function startOfDay(now: Date): Date {
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate()))
}

/** @param measured absent: the config has no metrics */
export function prometheusText(
  {
    rules,
    requests,
    withoutTrip,
    test,
    critical = {},
    lost,
    calls,
    callsWithoutTrip,
    lostCalls,
    reservations = {},
  }: Sums,
  load: CurrentLoad = {},
  measured?: MeasuredSums,
): string {
  const agreements = rules.flatMap(({ agreed, disagreed, ...row }) => {
    const labels = labelsOf(row)
    return [
      [{ ...labels, agreement: 'agreed' }, agreed],
      [{ ...labels, agreement: 'disagreed' }, disagreed],
    ] satisfies Sample[]
  })
  const errors = new Map<string, number>()
  for (const { cause, count } of requests) {
    const reason = /^store-(.+)/.exec(cause)?.[1]
    if (reason) errors.set(reason, (errors.get(reason) ?? 0) + count)
  }
  return [
    counter('decisions', 'Verdicts of rules.', verdictsOf(rules)),
    counter(
      'candidate_verdicts',
      'Verdicts of candidates, compared with those of the replaced rule.',
      agreements.filter(isCounted),
    ),
    counter('requests', 'Outcomes of requests.', outcomesOf(requests)),
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
    metric(
      'sluice_critical_requests_total',
      'counter',
      'Admitted requests of critical classes; over: while a shedder would have refused others.',
      Object.entries(critical).flatMap(([name, { within, over }]): Sample[] => [
        [{ class: name, capacity: 'within' }, within],
        [{ class: name, capacity: 'over' }, over],
      ]),
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
    ...reservationsOf(reservations),
    ...gaugesOf(load),
    ...(measured ? [...sumsOf(requests), ...measuredTexts(measured)] : []),
  ].join('')
}

/** What the isolate that answers knows by itself. @param unsent in an outage: what it has counted, and the store does not have */
export function isolateText(isStoreUp: boolean, isBreakerOpen: boolean, unsent?: Sums): string {
  const isTrue = (value: boolean): Sample[] => [[{}, value ? 1 : 0]]
  return [
    metric('sluice_store_up', 'gauge', 'Whether the store has answered this scrape.', isTrue(isStoreUp)),
    metric(
      'sluice_breaker_open',
      'gauge',
      'Whether the isolate that answers has stopped calling the store.',
      isTrue(isBreakerOpen),
    ),
    ...(unsent
      ? [
          metric(
            'sluice_unsent_requests',
            'gauge',
            'Requests that the isolate that answers has counted, and the store has not.',
            outcomesOf(unsent.requests),
          ),
          metric(
            'sluice_unsent_decisions',
            'gauge',
            'Verdicts that the isolate that answers has counted, and the store has not.',
            verdictsOf(unsent.rules),
          ),
        ]
      : []),
  ].join('')
}

const outcomesOf = (requests: readonly RequestCount[]) =>
  requests.map(
    ({ outcome, cause, route, count }): Sample => [
      { outcome, cause: labelValue(cause), route: labelValue(route) },
      count,
    ],
  )

/** Series of live callers have no label for the mode. */
const labelsOf = ({
  rule,
  route,
  plan,
  mode,
}: Pick<RuleCounts, 'rule' | 'route' | 'plan' | 'mode'>): Labels => ({
  ...{ policy: rule, route: labelValue(route), plan: labelValue(plan) },
  ...(mode === 'test' && { mode }),
})

/** A rule that has allowed something has refused 0 requests: the first refusal would be lost to `rate` if the counter began with it. */
const verdictsOf = (rules: readonly RuleCounts[]) =>
  rules.flatMap(counts => {
    const labels = labelsOf(counts)
    return (
      [
        ['allowed', counts.allowed, counts.limited],
        ['limited', counts.limited, counts.allowed],
        ['shadow_allowed', counts.shadowAllowed, counts.shadowLimited],
        ['shadow_limited', counts.shadowLimited, counts.shadowAllowed],
      ] as const
    ).flatMap(([outcome, count, other]): Sample[] =>
      count + other > 0 ? [[{ ...labels, outcome }, count]] : [],
    )
  })

/** All from 0 on: a counter that begins above 0 has no rate. */
function reservationsOf(reservations: Readonly<Record<string, ReservationCounts>>): string[] {
  const byRule = (name: string, help: string, samplesOf: (counts: ReservationCounts) => readonly Sample[]) =>
    metric(
      `sluice_${name}_total`,
      'counter',
      help,
      Object.entries(reservations).flatMap(([policy, counts]) =>
        samplesOf(counts).map(([labels, value]): Sample => [{ policy, ...labels }, value]),
      ),
    )
  return [
    byRule('reservations_made', 'Reservations.', ({ made }) => [[{}, made]]),
    byRule(
      'reservations_ended',
      'Ends of reservations that isolates know.',
      ({ settled, late, unsettled }) => [
        [{ end: 'settled' }, settled],
        [{ end: 'late' }, late],
        [{ end: 'unsettled' }, unsettled],
      ],
    ),
    byRule('reserved_units', 'Units that were reserved.', ({ reserved }) => [[{}, reserved]]),
    byRule(
      'cost_units',
      'What requests with reservations have cost; background responses and batches with their estimates.',
      ({ cost }) => [[{}, cost]],
    ),
    byRule('debt_units', 'Units that were spent above the limit.', ({ debt }) => [[{}, debt]]),
  ]
}

/** The requests again, with few labels and from 0 on, for alerts: a counter that begins above 0 has no rate. */
function sumsOf(requests: readonly RequestCount[]): string[] {
  const by = (label: 'outcome' | 'cause', words: Readonly<Record<string, true>>) =>
    Object.keys(words).map((word): Sample => {
      const rows = requests.filter(row => row[label] === word)
      return [{ [label]: word }, rows.reduce((sum, { count }) => sum + count, 0)]
    })
  return [
    metric('sluice_outcomes_total', 'counter', 'Requests by their outcome.', by('outcome', OUTCOMES)),
    metric(
      'sluice_degraded_total',
      'counter',
      'Requests without a decision of the store, by the cause.',
      by('cause', CAUSES),
    ),
  ]
}

function measuredTexts(measured: MeasuredSums): string[] {
  const { times, usage, reserved, debt, mostRefused = [], trips, commands, breakerOpened } = measured
  const highest = (name: string, help: string, shares: ReadonlyMap<string, number>) =>
    metric(
      `sluice_limit_${name}_ratio`,
      'gauge',
      help,
      [...shares].map(([policy, share]): Sample => [{ policy }, share]),
    )
  return [
    highest(
      'usage',
      'The highest share of its limit that any identity has used in the last minute or two.',
      usage,
    ),
    highest(
      'reserved',
      'The highest share of its limit that one request has reserved in the last minute or two.',
      reserved,
    ),
    highest(
      'debt',
      'The highest debt of any identity in the last minute or two, as a share of the limit.',
      debt,
    ),
    metric(
      'sluice_top_caller_refusals',
      'gauge',
      'Refusals of the caller that the rule has refused most in the last five minutes, at least.',
      [...mostRefused].map(([policy, count]): Sample => [{ policy }, count]),
    ),
    histogram(
      'sluice_decision_duration_seconds',
      'Time until a request was decided.',
      times.get('decision')!,
    ),
    histogram(
      'sluice_origin_duration_seconds',
      'Time until the origin sent the head of its response.',
      times.get('origin')!,
    ),
    metric('sluice_store_trips_total', 'counter', 'HTTP requests to the store.', [[{}, trips]]),
    metric('sluice_store_commands_total', 'counter', 'Commands that the store has billed, at most.', [
      [{}, commands],
    ]),
    metric('sluice_breaker_opened_total', 'counter', 'How often an isolate has stopped calling the store.', [
      [{}, breakerOpened],
    ]),
  ]
}

function histogram(
  name: string,
  help: string,
  { buckets, sumMs }: { buckets: readonly number[]; sumMs: number },
): string {
  let count = 0
  const lines = buckets.map((inBucket, i) => {
    count += inBucket
    const bound = BUCKETS_MS[i]
    return `${name}_bucket{le="${bound === undefined ? '+Inf' : bound / 1e3}"} ${count}`
  })
  return [
    ...[`# HELP ${name} ${help}`, `# TYPE ${name} histogram`],
    ...[...lines, `${name}_sum ${sumMs / 1e3}`, `${name}_count ${count}`, ''],
  ].join('\n')
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
