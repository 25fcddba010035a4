/** leaky-bucket as the rest of the project knows it (descriptor.ts): docs/algorithms.md#leaky-bucket */
import type { Counting, Description, InputOf, Parameters } from './descriptor.ts'
import { leakyBucket } from './leaky-bucket.ts'
import { flawsOfRate, rateOf, shareOfRate } from './rate.ts'

const parameters = {
  /** A queue: requests depart evenly, each held for its turn; one that finds the queue full is refused. */
  algorithm: { kind: 'name', is: 'leaky-bucket' },
  /** How many units per period. */
  limit: { kind: 'units', low: 1, forPlans: 'units per period' },
  /** Per how long: `'1s'`, `'90s'`, `'15m'`, `'1h'`, `'1d'`, … from 1 ms to 366 days. */
  period: { kind: 'period' },
  /** Units that may wait behind the one that departs (default `limit`). 0: no request waits. */
  queue: { kind: 'units', low: 0, isOptional: true, forPlans: 'units that may wait' },
} as const satisfies Parameters

type Input = InputOf<typeof parameters>

export const counting: Counting<Input> = {
  state: 'time',
  isQueue: true,
  // In the bucket are those that wait, and the one that departs.
  numbers: ({ limit, queue = limit }, period) => rateOf({ limit, burst: queue + 1 }, period),
  local: { model: leakyBucket, shareOf: shareOfRate },
}

export const description = {
  label: 'a queue that drains evenly',
  model: leakyBucket,
  parameters,
  costBound: 'capacity (queue + 1)',
  atOnce: { parameter: 'queue', beside: 1 },
  flaws(input, period) {
    const { limit, queue = limit } = input
    return flawsOfRate(input, period, queue + 1, ['queue', queue])
  },
  longestDelay: ({ rate, period, burst }) => ((burst - 1) * period) / rate,
} as const satisfies Description<Input>
