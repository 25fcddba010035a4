/**
 * Finds the window of an instant and the start of the next one: by arithmetic, or with Intl for calendar windows. Windows that start with
 * their first request depend on what was admitted.
 */
import type { Rule } from '../../src/config/compile.ts'

const HOUR = 3600e6

/** The number of a window. Consecutive windows have consecutive numbers. */
export function windowOf({ period, calendar }: Pick<Rule, 'period' | 'calendar'>, at: number): number {
  if (!calendar) return Math.floor(at / period)
  const [year, month, day] = localDate(calendar.timeZone, at)
  if (calendar.period === 'month') return year * 12 + month
  const days = Date.UTC(year, month - 1, day) / 86400e3
  // 1970-01-01 was a Thursday; weeks begin on Monday.
  return calendar.period === 'day' ? days : Math.floor((days + 3) / 7)
}

/** The first instant of the next window. Finds the hour in which the window changes, and then uses bisection. */
export function nextWindow(rule: Pick<Rule, 'period' | 'calendar'>, at: number): number {
  if (!rule.calendar) return (windowOf(rule, at) + 1) * rule.period
  const window = windowOf(rule, at)
  let [before, after] = [at, at + HOUR]
  while (windowOf(rule, after) === window) [before, after] = [after, after + HOUR]
  while (after - before > 1) {
    const middle = Math.floor((before + after) / 2)
    if (windowOf(rule, middle) === window) before = middle
    else after = middle
  }
  return after
}

/**
 * Puts what was admitted under windows that start with their first request into these windows.
 * @param list in the order of admission
 */
export function windowsFromRequests<T extends { readonly at: number }>(
  period: number,
  list: readonly T[],
): T[][] {
  const windows: T[][] = []
  let end = Number.NEGATIVE_INFINITY
  for (const admission of list) {
    if (admission.at >= end) {
      windows.push([])
      // A window starts with the millisecond of its first request.
      end = Math.floor(admission.at / 1e3) * 1e3 + period
    }
    windows.at(-1)!.push(admission)
  }
  return windows
}

type LocalDate = readonly [year: number, month: number, day: number]

const formats = new Map<string, Intl.DateTimeFormat>()
const dates = new Map<string, LocalDate>()

/** The local date of an instant. Cached, because formatting takes microseconds and the reference asks for the same instants often. */
function localDate(timeZone: string, at: number): LocalDate {
  const ms = Math.floor(at / 1e3)
  const name = `${timeZone} ${ms}`
  const known = dates.get(name)
  if (known) return known
  const format =
    formats.get(timeZone) ??
    new Intl.DateTimeFormat('en', { timeZone, year: 'numeric', month: 'numeric', day: 'numeric' })
  formats.set(timeZone, format)
  const parts = new Map(format.formatToParts(ms).map(({ type, value }) => [type, Number(value)]))
  const date = [parts.get('year')!, parts.get('month')!, parts.get('day')!] as const
  dates.set(name, date)
  return date
}
