/** The descriptor of fixed-window (see descriptor.ts). Documentation: docs/algorithms.md#fixed-window */
import { type CalendarPeriod, isCalendarPeriod } from './calendar-period.ts'
import type { Counting, Description, InputOf, Numbers, Parameters } from './descriptor.ts'
import { fixedWindow } from './fixed-window.ts'
import { shareOfWindow, toWindowQuota } from './window.ts'

const limit = { kind: 'units', low: 1, forPlans: 'units per period' } as const

const parameters = {
  /** At most `limit` in each window. Windows are aligned to the epoch (`'1h'`: on the hour, UTC) or to a calendar, or `start` with a request. */
  algorithm: { kind: 'name', is: 'fixed-window' },
  /** How many units per period. */
  limit,
  /** A duration, or a calendar period: `'day'`, `'week'` (from Monday) or `'month'`. */
  period: { kind: 'calendar-period' },
  /** The time zone of a calendar period, an IANA name such as `'Europe/Berlin'` (default `'UTC'`). */
  timeZone: { kind: 'time-zone', isOptional: true },
  /**
   * `clock` (default): windows are aligned. `first-request`: a window starts with the first admitted request after the end of the last
   * one, and `period` is a duration.
   */
  start: {
    kind: 'word',
    what: 'way to start windows',
    words: ['clock', 'first-request'],
    isOptional: true,
  },
} as const satisfies Parameters

type Input = InputOf<typeof parameters>

export const counting: Counting<Input> = {
  state: 'counts',
  toQuota: (input, period) => ({
    ...toWindowQuota(input, period),
    ...(input.start === 'first-request' && { startsWithRequest: true }),
  }),
  waitFor: (_, { resetAfter }) => resetAfter,
  local: { model: fixedWindow, shareOf: shareOfWindow },
}

/** The durations that are closest to calendar periods. */
const DURATIONS: Record<CalendarPeriod, string> = { day: '1d', week: '7d', month: '30d' }

export const numbers = { costBound: 'limit' } as const satisfies Numbers<Input>

export const description = {
  label: 'windows one after the other, each with the whole limit',
  model: fixedWindow,
  parameters,
  numbers,
  findFlaws({ period, timeZone, start }) {
    if (start === 'first-request' && isCalendarPeriod(period)) {
      const fix = `Use period: '${DURATIONS[period]}' without timeZone, or leave start out.`
      return [
        [
          'start',
          `'first-request' needs a period that is a duration, and '${period}' follows the calendar. ${fix}`,
        ],
      ]
    }
    if (timeZone === undefined || isCalendarPeriod(period)) return []
    if (start === 'first-request') {
      const fix = 'Leave timeZone out.'
      return [['timeZone', `'${timeZone}' has no effect on windows with start: 'first-request'. ${fix}`]]
    }
    const fix = "'day', 'week' or 'month'. Use one, or no timeZone."
    return [['timeZone', `'${timeZone}' needs a calendar period: ${fix}`]]
  },
} as const satisfies Description<Input>
