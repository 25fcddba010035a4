/** The calendar periods that a config can name. */

export const CALENDAR_PERIODS = ['day', 'week', 'month'] as const
export type CalendarPeriod = (typeof CALENDAR_PERIODS)[number]

/**
 * The approximate length of each period (µs). Each call to the store carries the ends of four windows. If the isolate's clock is so
 * far behind that the last end is in the past, the store uses windows of this length instead.
 */
export const NOMINAL_PERIOD: Record<CalendarPeriod, number> = {
  day: 86400e6,
  week: 7 * 86400e6,
  month: 30 * 86400e6,
}

export function isCalendarPeriod(period: string): period is CalendarPeriod {
  return Object.hasOwn(NOMINAL_PERIOD, period)
}
