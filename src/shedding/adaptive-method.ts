/** The interface of the methods that move the adaptive limit: gradient.ts and aimd.ts. */

/** The input of a method, from one window. */
export interface MethodInput {
  readonly limit: number
  /** The latency as a multiple of the baseline. */
  readonly slowness: number
  /** The multiple of the baseline above which the limit shrinks. */
  readonly tolerated: number
  /** Whether the share of failures is clearly higher than usual while the limit is used. */
  readonly isFailing: boolean
  /** Whether the limit may grow: it is used, and responses are fast or callers want more. */
  readonly mayGrow: boolean
  /** Whether the limit may grow by more than a small step. */
  readonly mayMultiply: boolean
  /**
   * The share of a step, from 0 to 1. Below 1 if responses take longer than a window, because a step takes effect
   * only with the next responses.
   */
  readonly pace: number
  /** From 0 to 1. Below 1 if few requests have ended: the limit shrinks no faster than its effect can be measured. */
  readonly certainty: number
}

/** @returns the next limit, which may be out of bounds */
export type AdaptiveMethod = (measured: MethodInput) => number
