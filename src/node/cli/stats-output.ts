/** What `npx sluicegate stats` prints for people. */
import type { Config } from '../../config/compile.ts'
import type { CallCount, RuleCounts, Stats } from '../../ops/stats.ts'
import { sumByOutcome, sumByRule } from '../../ops/sum-stats.ts'
import { time } from '../../ops/times.ts'
import { readsJobs } from '../../set-ups/http/amounts-needed.ts'
import { alertCell, type Cell, table } from './output.ts'

/** Which part of the statistics to print. */
export interface StatsFilter {
  rule?: string
  by?: 'route' | 'plan' | 'mode'
}

/** @param names of rules, in the order in which they are shown */
export function statsText(
  {
    since,
    unit,
    rules,
    requests,
    withoutTrip,
    test,
    critical,
    lost,
    calls,
    callsWithoutTrip,
    lostCalls,
    reservations = {},
  }: Stats,
  { rule, by }: StatsFilter,
  names: readonly string[],
  config: Config,
): string {
  const sum = sumOf(requests)
  const callSum = sumOf(calls)
  if (sum + lost + callSum + lostCalls === 0)
    return `Nothing was counted since ${time(since)} UTC, the start of ${START_OF[unit]}. ${adviceFor(config)}`
  // Counters are kept by the minute, hour or day, so the time differs from that of --since.
  const lines = [`Since ${time(since)} UTC, the start of ${START_OF[unit]}:`, '']
  const rows = sumByRule(rules, names, by)
  lines.push(
    rows.length > 0
      ? ruleTable(rows, by, config)
      : rule === undefined
        ? 'No rule was evaluated.'
        : `Rule '${rule}' was not evaluated.`,
  )
  if (rule === undefined && requests.length > 0) {
    const outcomes = sumByOutcome(requests).map(({ outcome, cause, count }) => [
      outcome,
      cause === '-' ? '' : cause,
      String(count),
      share(count, sum),
    ])
    lines.push(
      '',
      table(['REQUESTS', 'CAUSE', 'COUNT', 'SHARE'], [...outcomes, ['all', '', String(sum), '']]),
    )
  }
  if (rule === undefined)
    lines.push(...withoutTripLines(withoutTrip, sum), ...testLines(test, sum), ...criticalLines(critical))
  if (rule === undefined && calls.length > 0) lines.push('', callTable(calls, config))
  if (rule === undefined) lines.push(...withoutTripLines(callsWithoutTrip, callSum, 'Calls decided'))
  for (const [count, what] of [
    [lost, 'requests'],
    [lostCalls, 'calls'],
  ] as const)
    if (count > 0)
      lines.push('', `The counters of ${count} more ${what} may be missing: the store did not confirm them.`)
  if (Object.keys(reservations).length > 0) lines.push('', ...reservationLines(reservations, config))
  return lines.join('\n')
}

const START_OF = { minute: 'a minute', hour: 'an hour', day: 'a day' }

const sumOf = (rows: readonly { count: number }[]) => rows.reduce((sum, { count }) => sum + count, 0)

/** The outcomes of each limit by name in the order of the config, the most frequent first. */
function callTable(calls: readonly CallCount[], { limits }: Config): string {
  const names = [...new Set([...limits.keys(), ...calls.map(({ limit }) => limit)])]
  const rows = names.flatMap(name => {
    const own = calls.filter(({ limit }) => limit === name).sort((a, b) => b.count - a.count)
    return own.map(({ outcome, cause, count }) => [
      WORDS.get(name) ?? name,
      outcome,
      WORDS.get(cause) === undefined ? cause : '',
      String(count),
      share(count, sumOf(own)),
    ])
  })
  return table(['CALLS OF', 'OUTCOME', 'CAUSE', 'COUNT', 'SHARE'], rows)
}

/** Counters only grow, so the estimate cannot be taken back when the usage is read. */
const COST_OF_JOBS =
  'COST: of a background response or a batch, the estimate. The limit counts its usage as soon as a reply reports it.'

function reservationLines(reservations: NonNullable<Stats['reservations']>, config: Config): string[] {
  const rows = Object.entries(reservations).map(([name, counts]) => {
    const { made, settled, late, unsettled, reserved, cost, debt } = counts
    const numbers = [made, settled, late, unsettled, reserved, cost, debt].map(String)
    return [WORDS.get(name) ?? name, ...numbers]
  })
  const columns = ['MADE', 'SETTLED', 'LATE', 'GIVEN UP', 'UNITS RESERVED', 'COST', 'DEBT MADE']
  const all = Object.values(reservations)
  const isAny = (what: 'late' | 'unsettled') => all.some(counts => counts[what] > 0)
  return [
    table(['RESERVATIONS OF', ...columns], rows),
    ...(readsJobs(config) ? ['', COST_OF_JOBS] : []),
    ...(isAny('late')
      ? ['', 'LATE: settled after they had ended, or twice. The settlement changed nothing.']
      : []),
    ...(isAny('unsettled')
      ? [
          '',
          'GIVEN UP: the store did not confirm the settlement in time, so onUnsettled of the unit applies.',
        ]
      : []),
  ]
}

function adviceFor({ stats, environment }: Config): string {
  if (!stats) return 'The config has stats: { keep: false }. Remove it to count requests.'
  const whose = environment === undefined ? '' : ` Only counters of environment '${environment}' are shown.`
  return `Counters arrive up to ${stats.everyMs / 1e3} s after a request, if its gateway uses this store.${whose}`
}

function ruleTable(rows: readonly RuleCounts[], by: StatsFilter['by'], { rules }: Config): string {
  const replacedBy = new Map(rules.map(({ name, candidateFor }) => [name, candidateFor]))
  const cells = rows.map(row => {
    const { rule, allowed, limited, shadowAllowed, shadowLimited, agreed, disagreed } = row
    const replaced = replacedBy.get(rule) ?? 'the replaced rule'
    return [
      WORDS.get(rule) ?? rule,
      ...(by ? [WORDS.get(row[by]) ?? row[by]] : []),
      ...enforcedShares(allowed, limited),
      ...sharesOf(shadowAllowed, shadowLimited),
      agreed + disagreed > 0 ? `${share(agreed, agreed + disagreed)} with ${replaced}` : '',
    ]
  })
  const label = by ? [by.toUpperCase()] : []
  return table(['RULE', ...label, 'ALLOWED', 'DENIED', 'WOULD ALLOW', 'WOULD DENY', 'AGREES'], cells)
}

function withoutTripLines(
  { refusals = 0, leases = 0 }: Stats['withoutTrip'],
  sum: number,
  what = 'Decided',
): string[] {
  const parts = [
    ...(refusals > 0 ? [`${refusals} (${share(refusals, sum)}) refused from memory`] : []),
    ...(leases > 0 ? [`${leases} (${share(leases, sum)}) admitted from leases`] : []),
  ]
  return parts.length > 0 ? ['', `${what} without a trip to the store: ${parts.join(', ')}.`] : []
}

function testLines(test: Stats['test'], sum: number): string[] {
  const outcomes = Object.entries(test).map(([outcome, count = 0]) => ({ outcome, count }))
  if (outcomes.length === 0) return []
  const parts = outcomes.sort((a, b) => b.count - a.count).map(({ outcome, count }) => `${count} ${outcome}`)
  const all = sumOf(outcomes)
  return ['', `With test keys and test tokens: ${all} (${share(all, sum)}), of which ${parts.join(', ')}.`]
}

const criticalLines = (critical: Stats['critical'] = {}): string[] =>
  Object.entries(critical).flatMap(([name, { within, over }]) => [
    '',
    `Requests of the critical class ${name}: ${within + over}, of which ${over} while there was no room for others.`,
  ])

/** For labels that are not names. */
const WORDS = new Map([
  ['-', '(none)'],
  ['~', '(others)'],
])

function sharesOf(allowed: number, limited: number): [string, string] {
  const sum = allowed + limited
  return sum === 0 ? ['', ''] : [String(allowed), `${limited} (${share(limited, sum)})`]
}

/** Red where the rule has denied requests. */
function enforcedShares(allowed: number, limited: number): [string, Cell] {
  const [first, second] = sharesOf(allowed, limited)
  return [first, limited > 0 ? alertCell(second) : second]
}

/** `0.3 %`. A share above 0 is never shown as 0 %, and a share below 1 never as 100 %. */
export function share(part: number, sum: number): string {
  const percent = (100 * part) / sum
  if (part > 0 && percent < 0.1) return '< 0.1 %'
  if (part < sum && percent > 99.9) return '> 99.9 %'
  return `${Math.round(percent * 10) / 10} %`
}
