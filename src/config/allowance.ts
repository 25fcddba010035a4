/** Formats what a rule allows, for users. */

import type { CalendarPeriod } from '../algorithms/calendar-period.ts'
import type { Counting } from '../algorithms/descriptor.ts'
import { countsInFlight } from './compile-rule.ts'
import { formatPeriod } from './duration.ts'

interface Allowance {
  readonly limit: number
  readonly period: number
  readonly calendar?: { readonly period: CalendarPeriod; readonly timeZone: string }
  readonly counting: Pick<Counting, 'state'>
}

/** `10 per second`, `1000 per month`, `5 at once` */
export function formatAllowance(allowance: Allowance): string {
  const { limit, period, calendar } = allowance
  if (countsInFlight(allowance)) return `${limit} at once`
  return `${limit} per ${calendar?.period ?? formatPeriod(period)}`
}

/**
 * Like `formatAllowance`, with the time zone of a calendar and the range of an adaptive limit:
 * `1000 per month (Europe/Berlin)`, `10 to 1000 at once, follows the origin`.
 * @param range of the limit, if it is adaptive
 */
export function formatFullAllowance(rule: Allowance, range?: { min: number; max: number }): string {
  if (range) return `${range.min} to ${range.max} at once, follows the origin`
  return formatAllowance(rule) + (rule.calendar ? ` (${rule.calendar.timeZone})` : '')
}
