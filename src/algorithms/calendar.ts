/**
 * Windows of the calendar, for quotas by day, week (from Monday, ISO 8601) and month in a time zone. Redis knows no
 * time zones: the ends of the windows around now travel with the request, and the clock of the store picks among them.
 */
import { TZDateMini as TZDate } from '@date-fns/tz/date/mini'
import type { CalendarPeriod } from './calendar-period.ts'

/**
 * Four ends of windows in a row (µs since the epoch), the first of them the last that has passed.
 *
 * A day begins with the first instant of its date, also where the clock is put forward over midnight; it is as long as
 * it is, 23 hours or 25 included.
 *
 * @param timeZone an IANA name, which the config check has accepted
 * @param nowMs milliseconds since the epoch
 */
export function windowEnds(period: CalendarPeriod, timeZone: string, nowMs: number): readonly number[] {
  const name = `${period} ${timeZone}`
  const [start = 0, end = 0] = known.get(name) ?? []
  if (nowMs * 1e3 < start || nowMs * 1e3 >= end) known.set(name, computeEnds(period, timeZone, nowMs))
  return known.get(name)!
}

/** Each takes about 50 µs to work out, and holds for a day at least. As many as there are in the config. */
const known = new Map<string, readonly number[]>()

function computeEnds(period: CalendarPeriod, timeZone: string, nowMs: number): readonly number[] {
  const today = new TZDate(nowMs, timeZone)
  const [year, month, day] = [today.getFullYear(), today.getMonth(), today.getDate()]
  const startOf = (index: number) => {
    switch (period) {
      case 'day':
        return new TZDate(year, month, day + index, timeZone)
      case 'week':
        return new TZDate(year, month, day - ((today.getDay() + 6) % 7) + 7 * index, timeZone)
      case 'month':
        return new TZDate(year, month + index, 1, timeZone)
    }
  }
  return [0, 1, 2, 3].map(index => startOf(index).getTime() * 1e3)
}
