/** The calendar periods that a config can name. */

export const CALENDAR_PERIODS = ['day', 'week', 'month'] as const
export type CalendarPeriod = (typeof CALENDAR_PERIODS)[number]

/** The approximate length of each period (µs), for a clock so far off that the four ends that travel with a request do not include it. */
export const NOMINAL_PERIOD: Record<CalendarPeriod, number> = {
  day: 86400e6,
  week: 7 * 86400e6,
  month: 30 * 86400e6,
}

export function isCalendarPeriod(period: string): period is CalendarPeriod {
  return Object.hasOwn(NOMINAL_PERIOD, period)
}
