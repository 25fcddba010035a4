/** Formats what a rule allows, for users. */

import type { Quota } from '../algorithms/algorithm.ts'
import type { CalendarPeriod } from '../algorithms/calendar-period.ts'
import type { Counting } from '../algorithms/descriptor.ts'
import { countsInFlight } from './compile-rule.ts'
import { formatPeriod } from './duration.ts'

interface Allowance {
  readonly limit: number
  readonly unitSuffix?: string
  readonly period: number
  readonly calendar?: { readonly period: CalendarPeriod; readonly timeZone: string }
  readonly counting: Pick<Counting, 'state'>
  readonly quota: Pick<Quota, 'startsWithRequest'>
}

/** `10 per second`, `1000 tokens per month`, `5 at once` */
export function formatAllowance(allowance: Allowance): string {
  const { limit, unitSuffix = '', period, calendar } = allowance
  if (countsInFlight(allowance)) return `${limit} at once`
  return `${limit}${unitSuffix} per ${calendar?.period ?? formatPeriod(period)}`
}

/**
 * Like `formatAllowance`, with the time zone of a calendar, the start of windows and the range of an adaptive limit:
 * `1000 per month (Europe/Berlin)`, `100 per hour from the first request`, `10 to 1000 at once, follows the origin`.
 * @param range of the limit, if it is adaptive
 */
export function formatFullAllowance(rule: Allowance, range?: { min: number; max: number }): string {
  if (range) return `${range.min} to ${range.max} at once, follows the origin`
  const { calendar, quota } = rule
  const start = quota.startsWithRequest ? ' from the first request' : ''
  return formatAllowance(rule) + (calendar ? ` (${calendar.timeZone})` : start)
}
