/**
 * The replies of each algorithm as tables: at (s), cost → allowed, remaining, reset_after (s), retry_after (s), delay (s).
 * Each row starts from the state after the rows before it. Instead of a cost, a row can give back units that were spent at some time,
 * or reset the rule.
 */
import type { RuleInput } from '../../src/config/check/schema.ts'

type RuleShape = RuleInput extends infer R
  ? R extends unknown
    ? Omit<R, 'name' | 'by' | 'cost'>
    : never
  : never

export interface VectorTable {
  title: string
  rule: RuleShape
  rows: readonly Row[]
}

/**
 * Units to give back, the units of the request that are still spent, and the time at which they were spent (s). Of a queue: also how long the
 * request had to wait (s).
 */
export type Back = readonly [units: number, spent: number, spentAt: number, wait?: number]

/** A request that accepts a wait in a queue (s), and no longer one. */
export interface Patient {
  cost: number
  wait: number
}

export type Row = readonly [
  at: number,
  cost: number | Patient | Back | 'reset',
  allowed: boolean,
  remaining: number,
  resetAfter: number,
  retryAfter: number,
  delay?: number,
]

export const vectors: Record<string, readonly VectorTable[]> = {
  gcra: [
    {
      title: '5 per 5 s, burst 5',
      rule: { algorithm: 'gcra', limit: 5, period: '5s' },
      rows: [
        // A cost above the burst can never be admitted, and spends nothing.
        [0, 6, false, 5, 0, -1],
        // Each unit takes one second to come back.
        [0, 1, true, 4, 1, 0],
        // Cost 0 peeks.
        [0, 0, true, 4, 1, 0],
        // Several at once.
        [0, 4, true, 0, 5, 0],
        // Nothing is left: one unit comes back after one second, three units after three seconds.
        [0, 1, false, 0, 5, 1],
        [0, 3, false, 0, 5, 3],
        // A peek is admitted even if nothing is left.
        [0, 0, true, 0, 5, 0],
        // One microsecond too early, and exactly in time.
        [0.999999, 1, false, 0, 4.000001, 0.000001],
        [1, 1, true, 0, 5, 0],
        // The time to wait is that of the missing units, not a whole period.
        [3.5, 3, false, 2, 2.5, 0.5],
        [3.5, 2, true, 0, 4.5, 0],
        // A long pause gives the burst back, and no more.
        [100, 0, true, 5, 0, 0],
        [100, 5, true, 0, 5, 0],
      ],
    },
    {
      title: '10 per second, burst 1: strictly evenly spaced',
      rule: { algorithm: 'gcra', limit: 10, period: '1s', burst: 1 },
      rows: [
        [0, 1, true, 0, 0.1, 0],
        [0.05, 1, false, 0, 0.05, 0.05],
        [0.1, 1, true, 0, 0.1, 0],
        [0.25, 1, true, 0, 0.1, 0],
        [0.3, 1, false, 0, 0.05, 0.05],
      ],
    },
    {
      title: '3 per second: an interval that is not a whole number of microseconds does not drift',
      rule: { algorithm: 'gcra', limit: 3, period: '1s', burst: 1 },
      rows: [
        [0, 1, true, 0, 0.333334, 0],
        [0.333333, 1, false, 0, 0.000001, 0.000001],
        [0.333334, 1, true, 0, 0.333334, 0],
        // Two thirds of a second after the second request: 0.333334 + 0.333333…
        [0.666667, 1, false, 0, 0.000001, 0.000001],
        [0.666668, 1, true, 0, 0.333334, 0],
      ],
    },
    {
      title: '3 per second, burst 3: three in any aligned second, for ever',
      rule: { algorithm: 'gcra', limit: 3, period: '1s' },
      rows: [
        [0, 3, true, 0, 1, 0],
        [0.333333, 1, false, 0, 0.666667, 0.000001],
        [0.333334, 1, true, 0, 1, 0],
        [0.666666, 1, false, 0, 0.666668, 0.000001],
        [0.666667, 1, true, 0, 1, 0],
        // With a rounded interval this would drift: the third unit is back after exactly a second.
        [0.999999, 1, false, 0, 0.666668, 0.000001],
        [1, 1, true, 0, 1, 0],
      ],
    },
    {
      title: 'given back: up to the burst, and no more',
      rule: { algorithm: 'gcra', limit: 5, period: '5s' },
      rows: [
        [0, 5, true, 0, 5, 0],
        [1, [2, 5, 0], true, 3, 2, 0],
        // One of these three units has drained, and is not given back twice.
        [1, [3, 3, 0], true, 5, 0, 0],
        [1, 5, true, 0, 5, 0],
        [2, 'reset', true, 5, 0, 0],
        [2, 5, true, 0, 5, 0],
      ],
    },
    {
      title: 'a clock set back: what was admitted still counts, and drains',
      rule: { algorithm: 'gcra', limit: 2, period: '2s' },
      rows: [
        [10, 2, true, 0, 2, 0],
        [9, 1, false, 0, 3, 2],
        [11, 1, true, 0, 2, 0],
        // If setting the clock back makes the backlog larger than two bursts, the record counts as empty, so it cannot refuse for long.
        [0, 1, true, 1, 1, 0],
      ],
    },
  ],
  'fixed-window': [
    {
      title: '3 per 10 s',
      rule: { algorithm: 'fixed-window', limit: 3, period: '10s' },
      rows: [
        // A cost above the limit can never be admitted.
        [100, 4, false, 3, 0, -1],
        [101, 2, true, 1, 9, 0],
        // Refused until the window ends; a smaller cost still passes.
        [102, 2, false, 1, 8, 8],
        [103, 1, true, 0, 7, 0],
        [109.999999, 1, false, 0, 0.000001, 0.000001],
        // A peek is admitted even if nothing is left.
        [109.999999, 0, true, 0, 0.000001, 0],
        // The next window has the whole limit.
        [110, 3, true, 0, 10, 0],
        // A window that has ended does not count.
        [500, 0, true, 3, 0, 0],
      ],
    },
    {
      title: 'given back, in this window only and up to the limit',
      rule: { algorithm: 'fixed-window', limit: 3, period: '10s' },
      rows: [
        [100, 3, true, 0, 10, 0],
        [101, [1, 3, 100], true, 1, 9, 0],
        [102, [2, 2, 100], true, 3, 0, 0],
        [103, 3, true, 0, 7, 0],
        [110, [3, 3, 103], true, 3, 0, 0],
        [110, 3, true, 0, 10, 0],
        [111, 'reset', true, 3, 0, 0],
        [111, 3, true, 0, 9, 0],
      ],
    },
    {
      // START is 2023-11-14T22:13:20Z, 23:13:20 in Berlin.
      title: '2 per day in Berlin',
      rule: { algorithm: 'fixed-window', limit: 2, period: 'day', timeZone: 'Europe/Berlin' },
      rows: [
        [0, 2, true, 0, 2800, 0],
        [0, 1, false, 0, 2800, 2800],
        [2799.999999, 1, false, 0, 0.000001, 0.000001],
        [2800, 1, true, 1, 86400, 0],
        // The clock is set back over midnight: the new day stays current.
        [2799, 2, false, 1, 86401, 86401],
      ],
    },
    {
      title: '1 per month in UTC, until the first of December',
      rule: { algorithm: 'fixed-window', limit: 1, period: 'month' },
      rows: [
        [0, 1, true, 0, 16 * 86400 + 6400, 0],
        [16 * 86400 + 6400, 1, true, 0, 31 * 86400, 0],
      ],
    },
    {
      title: '1 per week, from Monday, also where the clocks change: a Sunday of 25 hours',
      // 2024-10-27T00:00 in Berlin
      rule: { algorithm: 'fixed-window', limit: 1, period: 'week', timeZone: 'Europe/Berlin' },
      rows: [[29_980_000, 1, true, 0, 25 * 3600, 0]],
    },
    {
      title: 'a clock set back over a boundary opens no window twice',
      rule: { algorithm: 'fixed-window', limit: 2, period: '10s' },
      rows: [
        [99, 2, true, 0, 1, 0],
        [100, 2, true, 0, 10, 0],
        [99.5, 1, false, 0, 10.5, 10.5],
        [110, 1, true, 1, 10, 0],
        // After a clock is set back by more than a window, the record counts as empty. Otherwise it would refuse for a very long time.
        [20, 1, true, 1, 10, 0],
      ],
    },
    {
      title: '3 per 10 s from the first request',
      rule: { algorithm: 'fixed-window', limit: 3, period: '10s', start: 'first-request' },
      rows: [
        // Neither a refused request nor a peek starts a window.
        [103, 4, false, 3, 0, -1],
        [103, 0, true, 3, 0, 0],
        [104, 1, true, 2, 10, 0],
        [109, 1, true, 1, 5, 0],
        // The clock starts no window.
        [110, 2, false, 1, 4, 4],
        [113.999999, 1, true, 0, 0.000001, 0],
        [113.999999, 1, false, 0, 0.000001, 0.000001],
        [113.999999, 0, true, 0, 0.000001, 0],
        // The next window starts with the next request, and not with the end of the last one.
        [114, 0, true, 3, 0, 0],
        [117, 3, true, 0, 10, 0],
        [126.999999, 1, false, 0, 0.000001, 0.000001],
        [127, 1, true, 2, 10, 0],
      ],
    },
    {
      title: 'a window from the first request starts with its millisecond',
      rule: { algorithm: 'fixed-window', limit: 2, period: '10s', start: 'first-request' },
      rows: [
        [100.000999, 2, true, 0, 9.999001, 0],
        [101, 1, false, 0, 9, 9],
        [109.999999, 1, false, 0, 0.000001, 0.000001],
        [110, 1, true, 1, 10, 0],
      ],
    },
    {
      title: 'from the first request, given back to the window that has spent them',
      rule: { algorithm: 'fixed-window', limit: 3, period: '10s', start: 'first-request' },
      rows: [
        [104.0005, 3, true, 0, 9.9995, 0],
        [105, [1, 3, 104.0005], true, 1, 9, 0],
        [106, 1, true, 0, 8, 0],
        [114, 1, true, 2, 10, 0],
        // Units of the last window.
        [115, [2, 2, 104.0005], true, 2, 9, 0],
        [115, [1, 1, 113.999999], true, 2, 9, 0],
        // If nothing is left of what a window has spent, it is over.
        [116, [1, 1, 114], true, 3, 0, 0],
        [117, 3, true, 0, 10, 0],
        [118, [1, 1, 114], true, 0, 9, 0],
        // A refund starts no window.
        [130, [1, 1, 117], true, 3, 0, 0],
        [131, 1, true, 2, 10, 0],
        [132, 'reset', true, 3, 0, 0],
        [133, 3, true, 0, 10, 0],
      ],
    },
    {
      title: 'from the first request, a clock set back opens no window twice',
      rule: { algorithm: 'fixed-window', limit: 2, period: '10s', start: 'first-request' },
      rows: [
        [104, 2, true, 0, 10, 0],
        [103, 1, false, 0, 11, 11],
        [103, [1, 2, 104], true, 1, 11, 0],
        [103, 1, true, 0, 11, 0],
        [94, 1, false, 0, 20, 20],
        // After a clock is set back by more than a period, the record counts as empty. Otherwise it would refuse for a very long time.
        [93.999999, 1, true, 1, 9.999001, 0],
      ],
    },
  ],
  'token-bucket': [
    {
      title: '5 tokens, refilled at 5 per 5 s',
      rule: { algorithm: 'token-bucket', limit: 5, period: '5s' },
      rows: [
        // A cost above the size of the bucket can never be admitted.
        [0, 6, false, 5, 0, -1],
        [0, 4, true, 1, 4, 0],
        // Cost 0 peeks.
        [0, 0, true, 1, 4, 0],
        // Two more tokens come back after exactly two seconds.
        [0, 3, false, 1, 4, 2],
        [1.999999, 3, false, 2, 2.000001, 0.000001],
        [2, 3, true, 0, 5, 0],
        // A peek is admitted even if the bucket is empty.
        [2, 0, true, 0, 5, 0],
        // Refill is continuous: half a token counts towards the next.
        [3.5, 2, false, 1, 3.5, 0.5],
        // The bucket is full again, and not more.
        [100, 0, true, 5, 0, 0],
        [100, 5, true, 0, 5, 0],
      ],
    },
    {
      title: 'a large bucket with a slow refill: 100 tokens, 1 per second',
      rule: { algorithm: 'token-bucket', limit: 1, period: '1s', burst: 100 },
      rows: [
        [0, 100, true, 0, 100, 0],
        [0, 1, false, 0, 100, 1],
        [10, 10, true, 0, 100, 0],
        [10, 50, false, 0, 100, 50],
      ],
    },
    {
      title: 'tokens given back: up to a full bucket, and no fuller',
      rule: { algorithm: 'token-bucket', limit: 5, period: '5s' },
      rows: [
        [0, 3, true, 2, 3, 0],
        [0, [1, 3, 0], true, 3, 2, 0],
        [0, [2, 2, 0], true, 5, 0, 0],
        [0, 5, true, 0, 5, 0],
        [1, 'reset', true, 5, 0, 0],
      ],
    },
  ],
  'leaky-bucket': [
    {
      title:
        'a place in the queue is not given back by a refund that does not know it; a reset empties the bucket',
      rule: { algorithm: 'leaky-bucket', limit: 1, period: '1s', queue: 2 },
      rows: [
        [0, 1, true, 2, 1, 0, 0],
        [0, 2, true, 0, 3, 0, 1],
        [0, [2, 2, 0], true, 0, 3, 0],
        [0, 'reset', true, 3, 0, 0],
        [0, 1, true, 2, 1, 0, 0],
      ],
    },
    {
      title: 'departures at 2 per second, 3 may wait',
      rule: { algorithm: 'leaky-bucket', limit: 2, period: '1s', queue: 3 },
      rows: [
        // A cost above the size of the bucket can never be admitted.
        [0, 5, false, 4, 0, -1],
        // The first request departs at once, and each further one half a second later.
        [0, 1, true, 3, 0.5, 0, 0],
        [0, 1, true, 2, 1, 0, 0.5],
        [0, 2, true, 0, 2, 0, 1],
        // The bucket is full until the first request has departed.
        [0, 1, false, 0, 2, 0.5],
        [0.499999, 1, false, 0, 1.500001, 0.000001],
        [0.5, 1, true, 0, 2, 0, 1.5],
        // A peek does not use a place.
        [0.5, 0, true, 0, 2, 0],
        // A request between two departures waits for the next one.
        [2.25, 1, true, 2, 0.75, 0, 0.25],
        // If the bucket is empty, a request departs at once.
        [10, 1, true, 3, 0.5, 0, 0],
      ],
    },
    {
      title: 'a request that can wait joins only if its turn comes in time',
      rule: { algorithm: 'leaky-bucket', limit: 2, period: '1s', queue: 3 },
      rows: [
        [0, { cost: 1, wait: 0 }, true, 3, 0.5, 0, 0],
        [0, { cost: 1, wait: 0 }, false, 3, 0.5, 0.5],
        [0, { cost: 1, wait: 0.499999 }, false, 3, 0.5, 0.000001],
        [0, { cost: 1, wait: 0.5 }, true, 2, 1, 0, 0.5],
        // The longer time: until there is room.
        [0, { cost: 4, wait: 0.5 }, false, 2, 1, 1],
        [0, { cost: 5, wait: 0.5 }, false, 2, 1, -1],
        // A peek waits for nothing.
        [0, { cost: 0, wait: 0 }, true, 2, 1, 0],
      ],
    },
    {
      title: 'the last place is given back',
      rule: { algorithm: 'leaky-bucket', limit: 3, period: '1s', queue: 9 },
      rows: [
        [0, 1, true, 9, 0.333334, 0, 0],
        [0, 2, true, 7, 1, 0, 0.333334],
        [0, 1, true, 6, 1.333334, 0, 1],
        // Others are behind it.
        [0.1, [2, 2, 0, 0.333334], true, 6, 1.233334, 0],
        // No request has waited so long.
        [0.1, [1, 1, 0, 1.333334], true, 6, 1.233334, 0],
        [0.1, [1, 1, 0, 1], true, 7, 0.9, 0],
        [0.1, [1, 1, 0, 1], true, 7, 0.9, 0],
        // Now it is the last one. Its turn has come, and it has not departed.
        [0.5, [2, 2, 0, 0.333334], true, 10, 0, 0],
        [0.5, 1, true, 9, 0.333334, 0, 0],
        // It has left the bucket.
        [2, [1, 1, 0.5, 0], true, 10, 0, 0],
      ],
    },
    {
      title: 'two places together are given back as one',
      rule: { algorithm: 'leaky-bucket', limit: 3, period: '1s', queue: 9 },
      rows: [
        [0, 1, true, 9, 0.333334, 0, 0],
        [0, 1, true, 8, 0.666667, 0, 0.333334],
        [0.1, 2, true, 6, 1.233334, 0, 0.566667],
        [0.2, [3, 3, 0, 0.333334], true, 9, 0.133334, 0],
      ],
    },
    {
      title: 'no queue: evenly spaced or refused',
      rule: { algorithm: 'leaky-bucket', limit: 10, period: '1s', queue: 0 },
      rows: [
        [0, 1, true, 0, 0.1, 0, 0],
        [0.05, 1, false, 0, 0.05, 0.05],
        [0.1, 1, true, 0, 0.1, 0, 0],
      ],
    },
    {
      title: '3 per second: departures do not drift',
      rule: { algorithm: 'leaky-bucket', limit: 3, period: '1s', queue: 9 },
      rows: [
        [0, 1, true, 9, 0.333334, 0, 0],
        [0, 1, true, 8, 0.666667, 0, 0.333334],
        [0, 1, true, 7, 1, 0, 0.666667],
        [0, 1, true, 6, 1.333334, 0, 1],
      ],
    },
  ],
  'sliding-window': [
    {
      title: '10 per 10 s',
      rule: { algorithm: 'sliding-window', limit: 10, period: '10s' },
      rows: [
        [100, 11, false, 10, 0, -1],
        [104, 8, true, 2, 16, 0],
        // 8 units count fully until the window ends at 110, then 0.8 less each second: 3 fit when only 7 of them count.
        [104, 3, false, 2, 16, 7.25],
        [111.249999, 3, false, 2, 8.750001, 0.000001],
        [111.25, 3, true, 0, 18.75, 0],
        // In the middle of the window, half of the 8 units count: 4 + 3.
        [115, 3, true, 0, 15, 0],
        [115, 1, false, 0, 15, 1.25],
        // A peek is admitted even if nothing is left.
        [115, 0, true, 0, 15, 0],
        // 10 at once fit only when the 6 units of this window no longer count, a whole window after its end: at 130.
        [115, 10, false, 0, 15, 15],
        [129.999999, 10, false, 9, 0.000001, 0.000001],
        [130, 10, true, 0, 20, 0],
      ],
    },
    {
      title: 'the time to wait is exact also where this window alone is too full',
      rule: { algorithm: 'sliding-window', limit: 4, period: '4s' },
      rows: [
        [1, 4, true, 0, 7, 0],
        // 1 fits when a quarter of the 4 has slid out of the last 4 s: at 5 s.
        [1, 1, false, 0, 7, 4],
        [4.999999, 1, false, 0, 3.000001, 0.000001],
        [5, 1, true, 0, 7, 0],
      ],
    },
    {
      title: 'a clock set back over a boundary opens no window twice',
      rule: { algorithm: 'sliding-window', limit: 2, period: '10s' },
      rows: [
        [99, 2, true, 0, 11, 0],
        [105, 1, true, 0, 15, 0],
        // This window had ended before the clock was set back. Units that were spent after its end still count fully.
        [99.5, 1, false, 0, 20.5, 10.5],
        [110, 1, true, 0, 20, 0],
        // After a clock is set back by more than a window, the record counts as empty. Otherwise it would refuse for a very long time.
        [20, 1, true, 1, 20, 0],
      ],
    },
    {
      title: 'given back to the window in which it was spent',
      rule: { algorithm: 'sliding-window', limit: 10, period: '10s' },
      rows: [
        [100, 6, true, 4, 20, 0],
        [110, 4, true, 0, 20, 0],
        [110, [4, 4, 110], true, 4, 10, 0],
        [110, [6, 6, 100], true, 10, 0, 0],
        [110, 10, true, 0, 20, 0],
        [111, 'reset', true, 10, 0, 0],
      ],
    },
  ],
  'sliding-log': [
    {
      title: '3 per 10 s, exactly',
      rule: { algorithm: 'sliding-log', limit: 3, period: '10s' },
      rows: [
        [0, 4, false, 3, 0, -1],
        [0, 1, true, 2, 10, 0],
        [4, 1, true, 1, 10, 0],
        [6, 1, true, 0, 10, 0],
        // Each unit expires 10 s after its own time.
        [6, 1, false, 0, 10, 4],
        [6, 2, false, 0, 10, 8],
        [6, 3, false, 0, 10, 10],
        [6, 0, true, 0, 10, 0],
        [9.999999, 1, false, 0, 6.000001, 0.000001],
        [10, 1, true, 0, 10, 0],
        [14, 1, true, 0, 10, 0],
        [23.999999, 3, false, 2, 0.000001, 0.000001],
        [24, 3, true, 0, 10, 0],
      ],
    },
    {
      title: 'all units of a request expire at the same time',
      rule: { algorithm: 'sliding-log', limit: 10, period: '10s' },
      rows: [
        [0, 4, true, 6, 10, 0],
        [0, 2, true, 4, 10, 0],
        [5, 4, true, 0, 10, 0],
        [5, 1, false, 0, 10, 5],
        [5, 6, false, 0, 10, 5],
        [5, 7, false, 0, 10, 10],
        [10, 6, true, 0, 10, 0],
      ],
    },
    {
      title: 'a clock set back: what was admitted still counts, from its own time',
      rule: { algorithm: 'sliding-log', limit: 2, period: '10s' },
      rows: [
        [100, 1, true, 1, 10, 0],
        [95, 1, true, 0, 15, 0],
        [95, 1, false, 0, 15, 15],
        [110, 2, true, 0, 10, 0],
        // After a clock is set back by more than a period, the log counts as empty. Otherwise it would refuse for a very long time.
        [50, 1, true, 1, 10, 0],
      ],
    },
    {
      title: 'a clock set back: entries that had expired when the newest one was added are gone',
      rule: { algorithm: 'sliding-log', limit: 5, period: '10s' },
      rows: [
        [0, 1, true, 4, 10, 0],
        [5, 1, true, 3, 10, 0],
        [6, 1, true, 2, 10, 0],
        [10.5, 1, true, 2, 10, 0],
        [2, 0, true, 2, 18.5, 0],
        [2, 3, false, 2, 18.5, 13],
        [2, 2, true, 0, 18.5, 0],
        [14.999999, 1, false, 0, 5.500001, 0.000001],
        [15, 1, true, 0, 10, 0],
      ],
    },
    {
      title: 'given back: only units that were spent at the given time',
      rule: { algorithm: 'sliding-log', limit: 5, period: '10s' },
      rows: [
        [0, 2, true, 3, 10, 0],
        [5, 3, true, 0, 10, 0],
        [6, [3, 3, 5], true, 3, 4, 0],
        [6, [2, 2, 0], true, 5, 0, 0],
        [6, 5, true, 0, 10, 0],
        [7, 'reset', true, 5, 0, 0],
        [7, 5, true, 0, 10, 0],
      ],
    },
  ],
}
