/** The descriptor of fixed-window (see descriptor.ts). Documentation: docs/algorithms.md#fixed-window */
import { isCalendarPeriod } from './calendar-period.ts'
import type { Counting, Description, InputOf, Parameters } from './descriptor.ts'
import { fixedWindow } from './fixed-window.ts'
import { shareOfWindow, toWindowQuota } from './window.ts'

const parameters = {
  /** At most `limit` in each window. Windows are aligned to the epoch (`'1h'`: on the hour, UTC) or to a calendar. */
  algorithm: { kind: 'name', is: 'fixed-window' },
  /** How many units per period. */
  limit: { kind: 'units', low: 1, forPlans: 'units per period' },
  /** A duration, or a calendar period: `'day'`, `'week'` (from Monday) or `'month'`. */
  period: { kind: 'calendar-period' },
  /** The time zone of a calendar period, an IANA name such as `'Europe/Berlin'` (default `'UTC'`). */
  timeZone: { kind: 'time-zone', isOptional: true },
} as const satisfies Parameters

type Input = InputOf<typeof parameters>

export const counting: Counting<Input> = {
  state: 'counts',
  toQuota: toWindowQuota,
  waitFor: (_, { resetAfter }) => resetAfter,
  local: { model: fixedWindow, shareOf: shareOfWindow },
}

export const description = {
  label: 'windows one after the other, each with the whole limit',
  model: fixedWindow,
  parameters,
  costBound: 'limit',
  findFlaws({ period, timeZone }) {
    if (timeZone === undefined || isCalendarPeriod(period)) return []
    const fix = "'day', 'week' or 'month'. Use one, or no timeZone."
    return [['timeZone', `'${timeZone}' needs a calendar period: ${fix}`]]
  },
} as const satisfies Description<Input>
