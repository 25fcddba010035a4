/** Formats what a rule allows, for users. */
import type { CalendarPeriod } from '../algorithms/calendar-period.ts'
import type { Counting } from '../algorithms/descriptor.ts'
import { formatPeriod } from './duration.ts'

interface Allowance {
  readonly limit: number
  readonly period: number
  readonly calendar?: { readonly period: CalendarPeriod; readonly timeZone: string }
  readonly counting: Pick<Counting, 'state'>
}

/** `10 per second`, `1000 per month`, `5 at once` */
export function formatAllowance({ limit, period, calendar, counting }: Allowance): string {
  if (counting.state === 'held') return `${limit} at once`
  return `${limit} per ${calendar?.period ?? formatPeriod(period)}`
}

/** Like `formatAllowance`, with the time zone of a calendar: `1000 per month (Europe/Berlin)`. */
export function formatFullAllowance(rule: Allowance): string {
  return formatAllowance(rule) + (rule.calendar ? ` (${rule.calendar.timeZone})` : '')
}
