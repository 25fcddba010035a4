/**
 * Calendar windows, for quotas by day, week (from Monday, ISO 8601) and month in a time zone. Redis has no time zones, so
 * each call to the store carries the ends of the windows around now. The store's clock selects the current window.
 */
import { TZDateMini as TZDate } from '@date-fns/tz/date/mini'
import type { CalendarPeriod } from './calendar-period.ts'

/**
 * The ends of four consecutive windows (µs since the epoch). The first end is the latest one in the past.
 *
 * A day begins with the first instant of its date, even if the clock is put forward over midnight, and can last 23 or 25 hours.
 *
 * @param timeZone an IANA name that the config check has accepted
 * @param nowMs milliseconds since the epoch
 */
export function windowEnds(period: CalendarPeriod, timeZone: string, nowMs: number): readonly number[] {
  const name = `${period} ${timeZone}`
  const [start = 0, end = 0] = cache.get(name) ?? []
  if (nowMs * 1e3 < start || nowMs * 1e3 >= end) cache.set(name, computeEnds(period, timeZone, nowMs))
  return cache.get(name)!
}

/** Computing the ends takes about 50 µs, and they are valid until the window ends. One entry for each period and time zone of the config. */
const cache = new Map<string, readonly number[]>()

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
