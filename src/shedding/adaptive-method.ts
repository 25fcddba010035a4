/** What a method of the adaptive limit is asked: gradient.ts and aimd.ts answer it. */

/** What a method decides by. */
export interface Measured {
  readonly limit: number
  /** How slow responses are, as a multiple of the baseline. */
  readonly slowness: number
  /** Whether the share of failures is clearly higher than usual, while the limit is used. */
  readonly isFailing: boolean
  /**
   * Whether at least half of the limit is in flight. A limit that is not used is not confirmed by fast responses, and would grow to
   * its maximum in every quiet night. Half, because callers come in bursts: twice the mean has room for them.
   */
  readonly isUsed: boolean
  /** Whether the limit is what keeps more requests from being in flight. */
  readonly isUsedUp: boolean
  /** 1, or less where a response takes longer than a window: the effect of a change shows only after one. */
  readonly pace: number
  /** 1, or less where few requests have ended: a limit shrinks no faster than it can be seen whether that helps. */
  readonly certainty: number
}

/** @returns the next limit, which may be out of bounds */
export type AdaptiveMethod = (measured: Measured) => number
