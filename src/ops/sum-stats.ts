/** Sums of the statistics, as tables of the command line show them. Pure. */
import { NOTHING } from '../metrics/sums.ts'
import type { RequestCount, RuleCounts } from './stats.ts'

/** Sums the counts of each rule, or of each rule and route, plan or mode. In the order of the config; rules that it no longer has come last. */
export function sumByRule(
  rules: readonly RuleCounts[],
  names: readonly string[],
  by?: 'route' | 'plan' | 'mode',
): RuleCounts[] {
  const rows = new Map<string, RuleCounts>()
  for (const counts of rules) {
    const { rule, route, plan, mode } = counts
    const label = by ? counts[by] : ''
    const row = rows.get(`${rule} ${label}`) ?? { rule, route, plan, mode, ...NOTHING }
    const sums = COUNT_NAMES.map(name => [name, row[name] + counts[name]])
    rows.set(`${rule} ${label}`, { ...row, ...Object.fromEntries(sums) })
  }
  const place = ({ rule }: RuleCounts) => (names.includes(rule) ? names.indexOf(rule) : names.length)
  const label = (row: RuleCounts) => `${row.rule} ${by ? row[by] : ''}`
  return [...rows.values()].sort((a, b) => place(a) - place(b) || (label(a) < label(b) ? -1 : 1))
}

const COUNT_NAMES = Object.keys(NOTHING) as (keyof typeof NOTHING)[]

/** Sums the requests with each outcome and cause, the most frequent first. */
export function sumByOutcome(requests: readonly RequestCount[]): Omit<RequestCount, 'route'>[] {
  const rows = new Map<string, Omit<RequestCount, 'route'>>()
  for (const { outcome, cause, count } of requests) {
    const sum = rows.get(`${outcome} ${cause}`)?.count ?? 0
    rows.set(`${outcome} ${cause}`, { outcome, cause, count: sum + count })
  }
  return [...rows.values()].sort((a, b) => b.count - a.count)
}
