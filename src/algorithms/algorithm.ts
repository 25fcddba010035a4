/**
 * What an algorithm is. Each is written twice: as a Lua file that runs inside Redis, and as a TypeScript model beside it.
 * The model is the specification that the Lua is tested against, the limiter that an isolate falls back on, and the simulator.
 * Both twins consist of the same sections with the same names in the same order; test/algorithms holds them together.
 *
 *     read      from the stored state to what counts now
 *     check     may this cost pass, and if not, after how long?
 *     spend     takes the cost
 *     refund    gives units back
 *     standing  what is left, and when all of it is back
 *     write     from what counts to the state to store
 *
 * An algorithm is pure: no I/O, no clock (`now` is passed in). Times are integers in microseconds, amounts are integers, and
 * every value that is computed stays below 2^53.
 */

/** The numbers of one rule, ready to be evaluated. */
export interface Quota {
  /** Units per period. Where only the ratio to the period counts, both are in lowest terms. */
  rate: number
  /** Microseconds. */
  period: number
  /** The most units at once, or in the queue with the one that departs (`leaky-bucket`). Of windows and logs: the limit. */
  burst: number
  /** `sliding-window`: the weight of the previous window falls in steps of this many microseconds. */
  step?: number
}

/**
 * The record of one rule. `idleAt` is the instant (µs) from which the record means an idle caller, so that a record whose
 * instant has passed may be dropped; each algorithm defines what `n` means. Both start at 0. `sliding-log` keeps a log beside, and
 * `concurrency` the holders.
 */
export type State = readonly [
  idleAt: number,
  n: number,
  log?: readonly LogEntry[] | undefined,
  holders?: readonly Holder[],
]

/** When a request was admitted (µs), and all units ever admitted by then, modulo 2^32. */
export type LogEntry = readonly [time: number, total: number]

/**
 * The units that an isolate holds of one identity: in flight are `started - ended`. Within an epoch both grow, so
 * of two messages the larger numbers are the newer ones, in whatever order they arrive (docs/concurrency.md).
 */
export interface Holding {
  /** Names the isolate: eight letters and digits, at random. */
  holder: string
  /** An isolate that is in doubt counts anew, in a later epoch. */
  epoch: number
  /** Units of the requests that were admitted in this epoch, and of those that were in flight when it began. */
  started: number
  /** Units of those that are over. */
  ended: number
  /** In the place of the limit of the rule: one that adapts. */
  limit?: number
}

/** What is stored of a holder. */
export interface Holder extends Holding {
  /** When its units are free again, unless another message comes before (µs). */
  expiresAt: number
}

export const IDLE: State = [0, 0]

/** What every verb needs: the numbers of the rule, its state and the instant. */
export interface Reading {
  quota: Quota
  /** Calendar windows: the ends (µs) of four windows in a row, the second of them the next to come. */
  ends?: readonly number[] | undefined
  /** `concurrency`: what the isolate that asks holds of the identity. */
  holding?: Holding | undefined
  state: State
  /** µs since the epoch. */
  now: number
}

/** How a rule stands for an identity. */
export interface Standing {
  /** Units that can be spent now. */
  remaining: number
  /** µs until the whole budget is back; 0 when it is whole. */
  resetAfter: number
}

/** The answer to a cost. */
export interface Check extends Standing {
  /** 0: admitted now. Above 0: admitted after so many µs, if nothing is spent meanwhile. -1: never admitted. */
  retryAfter: number
  /** How things stand once the cost is spent; absent when it is refused. */
  after?: After
}

/** How things stand after a change. */
export interface After extends Standing {
  state: State
  /** µs until the request may depart (`leaky-bucket`); 0 elsewhere. */
  delay: number
}

/** Units to give back, and what is known of the request that spent them. */
export interface Refund {
  /** At least 1. */
  units: number
  /** Units of that request that are still spent; `units` are a part of them. */
  spent: number
  /** When the request was admitted, by the clock of the store (µs). */
  spentAt: number
}

export interface Model {
  /** How things stand. Never refuses. */
  peek(reading: Reading): Standing
  /**
   * May this cost pass? Changes nothing by itself: the caller stores `after.state`.
   * @param cost at least 1
   * @param times how often the cost is spent when it may pass (default 1); the caller knows that there is room for all of them
   */
  decide(reading: Reading & { cost: number; times?: number }): Check
  /**
   * Gives back no more than is surely still missing, so that what is admitted stays within the guarantee of the algorithm,
   * and never lifts an identity above the whole budget.
   */
  refund(reading: Reading & Refund): After
}

/** The sections of an algorithm. `Kept` is what `read` makes of the state; `check`, `spend` and `refund` change it. */
export interface Sections<Kept> {
  read(reading: Reading): Kept
  /** @returns `retryAfter` */
  check(kept: Kept, cost: number): number
  /** @returns µs until the request may depart, of a queue */
  spend(kept: Kept, cost: number): number | undefined
  refund(kept: Kept, refund: Refund): void
  standing(kept: Kept): Standing
  write(kept: Kept, standing: Standing): State
}

export function modelOf<Kept>({ read, check, spend, refund, standing, write }: Sections<Kept>): Model {
  const afterOf = (kept: Kept, delay: number): After => {
    const stands = standing(kept)
    return { ...stands, delay, state: write(kept, stands) }
  }
  return {
    peek: reading => standing(read(reading)),
    decide({ cost, times = 1, ...reading }) {
      const kept = read(reading)
      const retryAfter = check(kept, cost)
      const before = { retryAfter, ...standing(kept) }
      return retryAfter === 0 ? { ...before, after: afterOf(kept, spend(kept, times * cost) ?? 0) } : before
    },
    refund({ units, spent, spentAt, ...reading }) {
      const kept = read(reading)
      refund(kept, { units, spent, spentAt })
      return afterOf(kept, 0)
    },
  }
}

/** ceil(a / b) for integers; exact where a / b is below 2^52. */
export function ceilDiv(a: number, b: number): number {
  // + 0 turns the -0 of a = 0 into 0.
  return -Math.floor(-a / b) + 0
}

/** Rounds up to whole milliseconds: a record keeps its idleAt in milliseconds. */
export function ceilToMs(microseconds: number): number {
  return ceilDiv(microseconds, 1000) * 1000
}
