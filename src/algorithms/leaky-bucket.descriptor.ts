/** The descriptor of leaky-bucket (see descriptor.ts). Documentation: docs/algorithms.md#leaky-bucket */
import type { Counting, Description, InputOf, Numbers, Parameters } from './descriptor.ts'
import { leakyBucket } from './leaky-bucket.ts'
import { findRateFlaws, shareOfRate, toRateQuota, waitForRate } from './rate.ts'

const limit = { kind: 'units', low: 1, forPlans: 'units per period' } as const
const queue = { kind: 'units', low: 0, isOptional: true, forPlans: 'units that may wait' } as const

const parameters = {
  /** A queue: requests depart at an even rate, each delayed until its turn. A request that finds the queue full is refused. */
  algorithm: { kind: 'name', is: 'leaky-bucket' },
  /** How many units per period. */
  limit,
  /** The length of the period: `'1s'`, `'90s'`, `'15m'`, `'1h'`, `'1d'`, … from 1 ms to 366 days. */
  period: { kind: 'period' },
  /** Units that may wait behind the one that departs (default `limit`). 0: no request waits. */
  queue,
} as const satisfies Parameters

type Input = InputOf<typeof parameters>

export const counting: Counting<Input> = {
  state: 'time',
  isQueue: true,
  // The bucket holds the units that wait and the one that departs.
  toQuota: ({ limit, queue = limit }, period) => toRateQuota({ limit, burst: queue + 1 }, period),
  waitFor: waitForRate,
  local: { model: leakyBucket, shareOf: shareOfRate },
}

export const numbers = {
  costBound: 'capacity (queue + 1)',
  atOnce: { parameter: 'queue', notIncluded: 1 },
  findFlaws(input, period) {
    const { limit, queue = limit } = input
    return findRateFlaws(input, period, queue + 1, ['queue', queue])
  },
  findDelayFlaws(quota, { limit, period }, most) {
    const queue = quota.burst - 1
    const delay = (queue * quota.period) / quota.rate
    if (delay <= most) return []
    const atMost = Math.floor((most * limit) / period)
    const message = `${queue} could delay a request by ${Math.ceil(delay / 1e6)} s, and the maximum is ${most / 1e6} s. At this rate, use at most ${atMost}.`
    return [['queue', message]]
  },
} as const satisfies Numbers<Input>

export const description = {
  label: 'a queue that drains evenly',
  model: leakyBucket,
  parameters,
  numbers,
} as const satisfies Description<Input>
