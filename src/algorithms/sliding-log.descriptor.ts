/** The descriptor of sliding-log (see descriptor.ts). Documentation: docs/algorithms.md#sliding-log */
import type { Quota } from './algorithm.ts'
import type { Counting, Description, InputOf, Numbers, Parameters } from './descriptor.ts'
import { MAX_LOG_LIMIT, slidingLog } from './sliding-log.ts'
import { slidingWindow } from './sliding-window.ts'
import { shareOfWindow, toWindowQuota } from './window.ts'

const limit = {
  kind: 'units',
  low: 1,
  high: MAX_LOG_LIMIT,
  forPlans: 'units per period',
} as const

const parameters = {
  /** Exactly `limit` in any period. Stores about 13 bytes for each request that still counts. */
  algorithm: { kind: 'name', is: 'sliding-log' },
  /** How many units per period. */
  limit,
  /** The length of the period: `'1s'`, `'90s'`, `'15m'`, `'1h'`, `'1d'`, … from 1 ms to 366 days. */
  period: { kind: 'period' },
} as const satisfies Parameters

type Input = InputOf<typeof parameters>

export const counting: Counting<Input> = {
  state: 'log',
  toQuota: toWindowQuota,
  local: { model: slidingWindow, shareOf: shareOfLog },
}

/** An isolate counts by a sliding window, in steps of 1/1000 of the period: fine enough for a fallback, and all products stay exact. */
function shareOfLog(quota: Quota, limit: number): Quota {
  const step = quota.period % 1000 === 0 ? quota.period / 1000 : quota.period
  return { ...shareOfWindow(quota, limit), step }
}

export const numbers = { maxLimit: MAX_LOG_LIMIT, costBound: 'limit' } as const satisfies Numbers<Input>

export const description = {
  label: 'exactly the limit in any period',
  model: slidingLog,
  parameters,
  numbers,
  whyNoLease: 'each request is an entry in the log with its own time',
} as const satisfies Description<Input>
