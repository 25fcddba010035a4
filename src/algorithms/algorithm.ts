/**
 * What an algorithm is. Each is written twice, as a Lua file that runs inside Redis and as a TypeScript model
 * beside it, with the same names in the same order; test/algorithms holds the two together. The model is the
 * specification that the script is tested against.
 *
 * An algorithm is one pure function over one rule's state: no I/O, no clock (`now` is passed in), no writes. Times
 * are integers in microseconds, amounts are integers, and everything stays below 2^52.
 */

/** The numbers of one rule, ready to be evaluated. */
export interface Quota {
  /** Units per period. For `gcra`, limit and period may be reduced to lowest terms: only their ratio counts. */
  limit: number
  /** Microseconds. */
  period: number
  /** Units at once (`gcra`); equal to the limit where an algorithm has no burst of its own. */
  burst: number
  /** Units this request takes; 0 peeks. */
  cost: number
}

/**
 * One rule's record. `idleAt` is the instant (µs) from which the record reads as an idle caller's, so one that is
 * past may be dropped; what n means is the algorithm's own business. Both start at 0.
 */
export type State = readonly [idleAt: number, n: number]

export const IDLE: State = [0, 0]

/** May this cost pass, what is left, and what would the state be then? Changes nothing. */
export type Algorithm = (rule: Quota, state: State, now: number) => Check

export interface Check {
  /** 0: admitted now. Above 0: admitted after so many µs, if nobody spends meanwhile. -1: can never be admitted. */
  retryAfter: number
  /** Units that can be spent now, before this cost. */
  remaining: number
  /** µs until the whole budget is back as things stand, before this cost; 0 when it is whole. */
  resetAfter: number
  /**
   * The state once the cost is admitted; absent when it is refused. Then `remaining - cost` is left, and all is
   * back at its `idleAt`.
   */
  next?: State
}

/** ceil(a / b) for integers; exact where a / b is below 2^52. */
export function ceilDiv(a: number, b: number): number {
  // + 0 turns the -0 of a = 0 into 0.
  return -Math.floor(-a / b) + 0
}
