/** The descriptor of sliding-window (see descriptor.ts). Documentation: docs/algorithms.md#sliding-window */
import type { Counting, Description, InputOf, Numbers, Parameters } from './descriptor.ts'
import { MAX_TICKS } from './exact.ts'
import { slidingWindow } from './sliding-window.ts'
import { MAX_WINDOW_COUNT, shareOfWindow, toWindowQuota } from './window.ts'

const limit = {
  kind: 'units',
  low: 1,
  high: MAX_WINDOW_COUNT,
  forPlans: 'units per period',
} as const

const parameters = {
  /** Approximates a sliding window by two weighted counters. */
  algorithm: { kind: 'name', is: 'sliding-window' },
  /** How many units per period. */
  limit,
  /** The length of the period: `'1s'`, `'90s'`, `'15m'`, `'1h'`, `'1d'`, … from 1 ms to 366 days. */
  period: { kind: 'period' },
} as const satisfies Parameters

type Input = InputOf<typeof parameters>

export const counting: Counting<Input> = {
  state: 'counts',
  toQuota: (input, period) => ({
    ...toWindowQuota(input, period),
    step: stepOf(input.limit, period) ?? period,
  }),
  local: { model: slidingWindow, shareOf: shareOfWindow },
}

/** The finest step (µs) with which all products stay exact. @returns undefined if even the coarsest possible step is too fine */
function stepOf(limit: number, period: number): number | undefined {
  const steps = [1, 10, 100, 1e3, 1e4, 1e5, 1e6]
  return steps.find(step => period % step === 0 && limit * (period / step) <= MAX_TICKS)
}

export const numbers = {
  maxLimit: MAX_WINDOW_COUNT,
  costBound: 'limit',
  findFlaws({ limit, period: written }, period) {
    if (stepOf(limit, period)) return []
    const fix = 'Lower the limit, or choose a period of whole seconds.'
    return [
      ['limit', `${limit} per '${written}' cannot be counted exactly: it needs more than 2^51 steps. ${fix}`],
    ]
  },
} as const satisfies Numbers<Input>

export const description = {
  label: 'two weighted counters, an approximation',
  model: slidingWindow,
  parameters,
  numbers,
} as const satisfies Description<Input>
