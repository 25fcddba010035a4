/** The times at which the records of statistics begin. */

export const MINUTE_MS = 60e3
export const HOUR_MS = 60 * MINUTE_MS
export const DAY_MS = 24 * HOUR_MS

/** How far the clock of an isolate can be ahead of this one (ms): its counters are in its own minute. */
export const MAX_CLOCK_LEAD_MS = 60e3

/** The start of each minute, hour or day since a time. @param unitMs MINUTE_MS, HOUR_MS or DAY_MS */
export function timesOf(unitMs: number, since: Date, now: Date): Date[] {
  const first = Math.floor(since.getTime() / unitMs)
  const last = Math.floor((now.getTime() + MAX_CLOCK_LEAD_MS) / unitMs)
  return Array.from({ length: last - first + 1 }, (_, i) => new Date((first + i) * unitMs))
}
