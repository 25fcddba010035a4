/** Periods of the calendar, as a config names them. */

export const CALENDAR_PERIODS = ['day', 'week', 'month'] as const
export type CalendarPeriod = (typeof CALENDAR_PERIODS)[number]

/** What a window lasts, give or take: for a clock that is too far off to be inside the ends it was given (µs). */
export const NOMINAL_PERIOD: Record<CalendarPeriod, number> = {
  day: 86400e6,
  week: 7 * 86400e6,
  month: 30 * 86400e6,
}

export function isCalendarPeriod(period: string): period is CalendarPeriod {
  return Object.hasOwn(NOMINAL_PERIOD, period)
}
