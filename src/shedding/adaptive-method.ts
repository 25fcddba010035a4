/** The interface of the methods that move the adaptive limit: gradient.ts and aimd.ts. */

/** The input of a method, from one window. */
export interface Measured {
  readonly limit: number
  /** The latency as a multiple of the baseline. */
  readonly slowness: number
  /** The latency at which the limit rests while callers want more, as a multiple of the baseline. */
  readonly tolerance: number
  /** Whether the share of failures is clearly higher than usual while the limit is used. */
  readonly isFailing: boolean
  /**
   * Whether at least half of the limit is in flight. Fast responses confirm only a limit that is used; otherwise it
   * would grow to its maximum every quiet night. Half, because requests come in bursts: twice the mean leaves room
   * for them.
   */
  readonly isUsed: boolean
  /** Whether the limit keeps more requests from being in flight. */
  readonly isUsedUp: boolean
  /**
   * From 0 to 1. Below 1 if responses take longer than a window, because a change takes effect only after one
   * response.
   */
  readonly pace: number
  /** From 0 to 1. Below 1 if few requests have ended: the limit shrinks no faster than its effect can be measured. */
  readonly certainty: number
}

/** @returns the next limit, which may be out of bounds */
export type AdaptiveMethod = (measured: Measured) => number

/**
 * Below this multiple of the baseline, responses are faster than they ever are without a queue. So the baseline is
 * too high, and the limit waits until it has followed, instead of growing by a factor.
 */
export const STALE_SLOWNESS = 0.9
