/**
 * What each algorithm says, as tables: at (s), cost → allowed, remaining, reset_after (s), retry_after (s).
 * Every row goes on from the state that the rows before it left.
 */
import type { RuleInput } from '../../src/config/schema.ts'

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

export type Row = readonly [
  at: number,
  cost: number,
  allowed: boolean,
  remaining: number,
  resetAfter: number,
  retryAfter: number,
]

export const vectors: Record<string, readonly VectorTable[]> = {
  gcra: [
    {
      title: '5 per 5 s, burst 5',
      rule: { algorithm: 'gcra', limit: 5, period: '5s' },
      rows: [
        // A cost above the burst can never be admitted, and takes nothing.
        [0, 6, false, 5, 0, -1],
        // Each unit takes a second of the five.
        [0, 1, true, 4, 1, 0],
        // Cost 0 peeks.
        [0, 0, true, 4, 1, 0],
        // Several at once.
        [0, 4, true, 0, 5, 0],
        // Full: the next unit comes back after one second, three after three.
        [0, 1, false, 0, 5, 1],
        [0, 3, false, 0, 5, 3],
        // A peek is admitted even then.
        [0, 0, true, 0, 5, 0],
        // Just before, and just then.
        [0.999999, 1, false, 0, 4.000001, 0.000001],
        [1, 1, true, 0, 5, 0],
        // Refused by what is missing, not by a whole period.
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
      title: '3 per second: an interval that is no whole number of microseconds does not drift',
      rule: { algorithm: 'gcra', limit: 3, period: '1s', burst: 1 },
      rows: [
        [0, 1, true, 0, 0.333334, 0],
        [0.333333, 1, false, 0, 0.000001, 0.000001],
        [0.333334, 1, true, 0, 0.333334, 0],
        // Two thirds after the second, counted from when it came: 0.333334 + 0.333333…
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
        // Where a rounded interval would have drifted, the third is back after exactly a second.
        [0.999999, 1, false, 0, 0.666668, 0.000001],
        [1, 1, true, 0, 1, 0],
      ],
    },
    {
      title: 'a clock set back: what was admitted still counts, and drains',
      rule: { algorithm: 'gcra', limit: 2, period: '2s' },
      rows: [
        [10, 2, true, 0, 2, 0],
        [9, 1, false, 0, 3, 2],
        [11, 1, true, 0, 2, 0],
        // Set back by more than a burst, it reads as idle instead of refusing for ever.
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
        // A peek is admitted even then.
        [109.999999, 0, true, 0, 0.000001, 0],
        // The next window is whole.
        [110, 3, true, 0, 10, 0],
        // An ended window is nothing.
        [500, 0, true, 3, 0, 0],
      ],
    },
    {
      title: 'a clock set back over a boundary opens no window twice',
      rule: { algorithm: 'fixed-window', limit: 2, period: '10s' },
      rows: [
        [99, 2, true, 0, 1, 0],
        [100, 2, true, 0, 10, 0],
        [99.5, 1, false, 0, 10.5, 10.5],
        [110, 1, true, 1, 10, 0],
        // Set back by more than a window, it reads as idle instead of refusing for ever.
        [20, 1, true, 1, 10, 0],
      ],
    },
  ],
}
