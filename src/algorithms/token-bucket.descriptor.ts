/**
 * The descriptor of token-bucket (J. Turner, "New directions in communications", 1986), with the code of gcra (lua-of.ts).
 * Documentation: docs/algorithms.md#token-bucket
 */
import type { Counting, Description, InputOf, Numbers, Parameters } from './descriptor.ts'
import { gcra } from './gcra.ts'
import { findRateFlaws, shareOfRate, toRateQuota, waitForRate } from './rate.ts'

const limit = { kind: 'units', low: 1, forPlans: 'units per period' } as const
const burst = { kind: 'units', low: 1, isOptional: true, forPlans: 'units at once' } as const

const parameters = {
  /** A bucket of `burst` tokens with continuous refill. Admits the same requests as `gcra`. */
  algorithm: { kind: 'name', is: 'token-bucket' },
  /** How many units per period. */
  limit,
  /** The length of the period: `'1s'`, `'90s'`, `'15m'`, `'1h'`, `'1d'`, … from 1 ms to 366 days. */
  period: { kind: 'period' },
  /** Units at once after a pause (default `limit`). 1 means strictly evenly spaced. */
  burst,
} as const satisfies Parameters

type Input = InputOf<typeof parameters>

export const counting: Counting<Input> = {
  state: 'time',
  toQuota: toRateQuota,
  waitFor: waitForRate,
  local: { model: gcra, shareOf: shareOfRate },
}

export const numbers = {
  costBound: 'burst',
  atOnce: { parameter: 'burst', notIncluded: 0 },
  findFlaws(input, period) {
    const { limit, burst = limit } = input
    return findRateFlaws(input, period, burst, ['burst', burst])
  },
} as const satisfies Numbers<Input>

export const description = {
  label: 'a bucket of tokens, refilled continuously',
  model: gcra,
  parameters,
  numbers,
} as const satisfies Description<Input>
