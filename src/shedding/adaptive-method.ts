/** The interface of the methods that move the adaptive limit: gradient.ts and aimd.ts. */

/** The input of a method, from one window. */
export interface Measured {
  readonly limit: number
  /** The latency as a multiple of the baseline. */
  readonly slowness: number
  /** The multiple of the baseline at which the limit stays as it is. */
  readonly tolerated: number
  /** Whether the share of failures is clearly higher than usual while the limit is used. */
  readonly isFailing: boolean
  /**
   * Whether at least half of the limit is in flight. Fast responses confirm only a limit that is used; otherwise it
   * would grow to its maximum every quiet night. Half, because requests come in bursts: a limit of twice the mean
   * leaves room for them.
   */
  readonly isUsed: boolean
  /** Whether more requests would be in flight without the limit. */
  readonly isUsedUp: boolean
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
export type AdaptiveMethod = (measured: Measured) => number
