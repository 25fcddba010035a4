/** sliding-window as the rest of the project knows it (descriptor.ts): docs/algorithms.md#sliding-window */
import type { Counting, Description, InputOf, Parameters } from './descriptor.ts'
import { MAX_TICKS } from './exact.ts'
import { MAX_WINDOW_COUNT, slidingWindow } from './sliding-window.ts'
import { shareOfWindow, windowOf } from './window.ts'

const parameters = {
  /** Two weighted counters, an approximation. */
  algorithm: { kind: 'name', is: 'sliding-window' },
  /** How many units per period. */
  limit: {
    kind: 'units',
    low: 1,
    high: MAX_WINDOW_COUNT,
    why: 'sliding-window keeps two counts in one record',
    forPlans: 'units per period',
  },
  /** Per how long: `'1s'`, `'90s'`, `'15m'`, `'1h'`, `'1d'`, … from 1 ms to 366 days. */
  period: { kind: 'period' },
} as const satisfies Parameters

type Input = InputOf<typeof parameters>

export const counting: Counting<Input> = {
  state: 'counts',
  numbers: (input, period) => ({ ...windowOf(input, period), step: stepOf(input.limit, period) ?? period }),
  local: { model: slidingWindow, shareOf: shareOfWindow },
}

/** The finest step (µs) by which a window can slide and its products stay exact. */
function stepOf(limit: number, period: number): number | undefined {
  const steps = [1, 10, 100, 1e3, 1e4, 1e5, 1e6]
  return steps.find(step => period % step === 0 && limit * (period / step) <= MAX_TICKS)
}

export const description = {
  label: 'two weighted counters, an approximation',
  model: slidingWindow,
  parameters,
  costBound: 'limit',
  flaws({ limit, period: written }, period) {
    if (stepOf(limit, period)) return []
    const fix = 'Lower the limit, or choose a period of whole seconds.'
    return [['limit', `${limit} per '${written}' needs more than 2^51 steps to slide. ${fix}`]]
  },
} as const satisfies Description<Input>
