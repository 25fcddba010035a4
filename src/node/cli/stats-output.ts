/** What `npx sluicegate stats` prints for people. */
import type { Config } from '../../config/compile.ts'
import { type RuleCounts, type Stats, sumByOutcome, sumByRule } from '../../ops/stats.ts'
import { alertCell, type Cell, table, time } from './output.ts'

/** Which part of the statistics to print. */
export interface StatsFilter {
  rule?: string
  by?: 'route' | 'plan'
}

/** @param names of rules, in the order in which they are shown */
export function statsText(
  { since, rules, requests, withoutTrip, lost }: Stats,
  { rule, by }: StatsFilter,
  names: readonly string[],
  config: Config,
): string {
  const sum = requests.reduce((sum, { count }) => sum + count, 0)
  if (sum + lost === 0)
    return `Nothing was counted since ${time(since)} UTC, the start of an hour. ${adviceFor(config)}`
  // Counters are kept for each hour, so the time differs from that of --since.
  const lines = [`Since ${time(since)} UTC, the start of an hour:`, '']
  const rows = sumByRule(rules, names, by)
  lines.push(
    rows.length > 0
      ? ruleTable(rows, by, config)
      : rule === undefined
        ? 'No rule was evaluated.'
        : `Rule '${rule}' was not evaluated.`,
  )
  if (rule === undefined) {
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
  if (rule === undefined) lines.push(...withoutTripLines(withoutTrip, sum))
  if (lost > 0)
    lines.push('', `The counters of ${lost} more requests may be missing: the store did not confirm them.`)
  return lines.join('\n')
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

function withoutTripLines({ refusals = 0, leases = 0 }: Stats['withoutTrip'], sum: number): string[] {
  const parts = [
    ...(refusals > 0 ? [`${refusals} (${share(refusals, sum)}) refused from memory`] : []),
    ...(leases > 0 ? [`${leases} (${share(leases, sum)}) admitted from leases`] : []),
  ]
  return parts.length > 0 ? ['', `Decided without a trip to the store: ${parts.join(', ')}.`] : []
}

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
function share(part: number, sum: number): string {
  const percent = (100 * part) / sum
  if (part > 0 && percent < 0.1) return '< 0.1 %'
  if (part < sum && percent > 99.9) return '> 99.9 %'
  return `${Math.round(percent * 10) / 10} %`
}
