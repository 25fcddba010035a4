/**
 * What an algorithm is. Each is written twice, as a Lua file that runs inside Redis and as a TypeScript model
 * beside it, with the same names in the same order; test/algorithms holds the two together. The model is the
 * specification that the script is tested against.
 *
 * An algorithm is one pure function over one rule's state: no I/O, no clock (`now` is passed in), no writes. Times
 * are integers in microseconds, amounts are integers, and everything that counts stays
 * below 2^53.
 */

/** The numbers of one rule, ready to be evaluated. */
export interface Quota {
  /** Units per period. Where only the ratio to the period counts, both may be reduced to lowest terms. */
  limit: number
  /** Microseconds. */
  period: number
  /** Units at once (`gcra`, `token-bucket`), or in the queue (`leaky-bucket`); elsewhere equal to the limit. */
  burst: number
  /** Units this request takes; 0 peeks, below 0 gives back. */
  cost: number
  /** Of a cost below 0: the units that were spent, of which so many are given back (default: all of them). */
  spent?: number
  /** `sliding-window`: the previous window's weight falls in steps of this many microseconds. */
  step?: number
  /** `fixed-window` of the calendar: four ends of windows in a row, the second of them the next to come. */
  ends?: readonly number[]
}

/**
 * One rule's record. `idleAt` is the instant (µs) from which the record reads as an idle caller's, so one that is
 * past may be dropped; what n means is the algorithm's own business. Both start at 0. `sliding-log` keeps a log beside.
 */
export type State = readonly [idleAt: number, n: number, log?: readonly LogEntry[]]

/** When something was admitted (µs), and all units ever admitted by then, modulo 2^32. */
export type LogEntry = readonly [time: number, total: number]

export const IDLE: State = [0, 0]

/**
 * May this cost pass, what is left, and how would things stand then? Changes nothing.
 *
 * @param spentAt when what is given back was spent (µs). Then no more is given back than is surely still missing, so
 *   that what is admitted stays within the guarantee; without it all of it is, up to the full budget
 */
export type Algorithm = (rule: Quota, state: State, now: number, spentAt?: number) => Check

export interface Check {
  /** 0: admitted now. Above 0: admitted after so many µs, if nobody spends meanwhile. -1: can never be admitted. */
  retryAfter: number
  /** Units that can be spent now, before this cost. */
  remaining: number
  /** µs until the whole budget is back as things stand, before this cost; 0 when it is whole. */
  resetAfter: number
  /** How things stand once the cost is spent or given back; absent when it is refused or there is none. */
  after?: After
}

export interface After {
  remaining: number
  resetAfter: number
  state: State
  /** µs until the request may depart (`leaky-bucket`). */
  delay?: number
}

/** ceil(a / b) for integers; exact where a / b is below 2^52. */
export function ceilDiv(a: number, b: number): number {
  // + 0 turns the -0 of a = 0 into 0.
  return -Math.floor(-a / b) + 0
}

/** The first whole millisecond that is not before: a record keeps its idleAt in milliseconds. */
export function ceilToMs(microseconds: number): number {
  return ceilDiv(microseconds, 1000) * 1000
}
