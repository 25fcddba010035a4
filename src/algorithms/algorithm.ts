/**
 * The interface of an algorithm. Each algorithm is written twice: as a Lua file that runs inside Redis, and as a TypeScript model.
 * The Lua is tested against the model. The models also count in simulations, and most of them in an isolate while the store is down.
 * Lua file and model consist of the same sections, with the same names in the same order. The tests in test/algorithms compare the two.
 *
 *     read      the stored state → the variables that the other sections use
 *     check     whether a cost is admitted; if not, how long to wait
 *     spend     subtracts the cost
 *     refund    gives units back
 *     standing  the units that are left, and the time until all are back
 *     write     the variables → the state to store
 *
 * An algorithm is pure: no I/O and no clock (`now` is a parameter). Times are integers in microseconds, amounts are integers, and
 * every computed value stays below 2^53.
 */

/** The numbers of one rule, in the form that the algorithms compute with. */
export interface Quota {
  /** Units per period. Algorithms that use only the ratio of rate and period get both in lowest terms. */
  rate: number
  /** Microseconds. */
  period: number
  /**
   * The most units at once. For `leaky-bucket`: the units that wait, plus the one that departs. For windows, the log and `concurrency`:
   * the limit.
   */
  burst: number
  /** `sliding-window` only: the weight of the previous window falls in steps of this many microseconds. */
  step?: number
  /** `fixed-window` only: a window starts with its first request, and not with the clock. */
  startsWithRequest?: true
}

/**
 * The stored record of one rule. From the instant `idleAt` (µs) on, the record says the same as no record, so it may be dropped.
 * Each algorithm defines the meaning of `n`. Both start at 0. `sliding-log` also keeps a log, and `concurrency` the holders.
 */
export type State = readonly [
  idleAt: number,
  n: number,
  log?: readonly LogEntry[] | undefined,
  holders?: readonly Holder[],
]

/** The time at which a request was admitted (µs), and the units admitted in all up to that request, modulo 2^32. */
export type LogEntry = readonly [time: number, total: number]

/**
 * The units that an isolate holds for one identity: `started - ended` are in flight. Both numbers only grow within an epoch.
 * So the larger numbers are the newer ones, even if messages arrive out of order (docs/internals/concurrency.md).
 */
export interface Holding {
  /** Identifies the isolate: eight random letters and digits. */
  holder: string
  /** An isolate that does not know what Redis has counted starts a new count, in a later epoch. */
  epoch: number
  /** Units of the requests that were admitted in this epoch or were in flight when it began. */
  started: number
  /** Units of those requests that have ended. */
  ended: number
  /** Replaces the limit of the rule: the current value of an adaptive limit. */
  limit?: number
}

/** The stored record of a holder. */
export interface Holder extends Holding {
  /** The time at which its units become free (µs), unless another message arrives before. */
  expiresAt: number
}

/** The state without a record: nothing is spent. */
export const IDLE: State = [0, 0]

/** The input of all functions of a model: the numbers of the rule, its state and the time. */
export interface ModelInput {
  quota: Quota
  /** For calendar windows: the ends (µs) of four consecutive windows. The second one is the end of the current window. */
  ends?: readonly number[] | undefined
  /** For `concurrency`: the units that the calling isolate holds for the identity. */
  holding?: Holding | undefined
  /**
   * For `leaky-bucket` (µs): the longest wait for its turn that the request accepts; absent: any. In a refund: how long the request had to
   * wait, rounded up; absent: unknown, and nothing is given back.
   */
  wait?: number | undefined
  state: State
  /** µs since the epoch. */
  now: number
}

/** The budget that an identity has left under a rule. */
export interface Standing {
  /** Units that can be spent now. */
  remaining: number
  /** µs until the whole budget is back. 0: nothing is spent. */
  resetAfter: number
  /** Units that are spent above the limit. Absent unless requests are settled later (settled.ts). */
  debt?: number
}

/** The answer to a request with a cost, and the standing before it. */
export interface CheckResult extends Standing {
  /** 0: admitted now. Above 0: admitted after this many µs, if nothing else is spent until then. -1: never admitted. */
  retryAfter: number
  /** The change that admits the request. Absent: the request is refused. */
  after?: Update
}

/** A new state to store, and the standing in that state. */
export interface Update extends Standing {
  state: State
  /** µs until the request may depart. Always 0, except for `leaky-bucket`. */
  delay: number
}

/** Units to give back, and the request that spent them. */
export interface RefundedUnits {
  /** At least 1. */
  units: number
  /** Units of the request that are still spent, including `units`. */
  spent: number
  /** When the request was admitted, by the clock of the store (µs). */
  spentAt: number
}

/** An algorithm as pure functions. None of them stores anything: the caller stores the returned state. */
export interface Model {
  /** The budget left now, without spending. */
  peek(input: ModelInput): Standing
  /**
   * Decides whether a cost is admitted. The caller stores `after.state`.
   * @param cost at least 1
   * @param times how often the cost is spent (default 1). The caller must know that the budget suffices for all of them.
   */
  decide(input: ModelInput & { cost: number; times?: number }): CheckResult
  /** For `change` and for models that differ in some of them (settled.ts). */
  sections: Sections<unknown>
}

/**
 * The sections of an algorithm. `Kept` are the variables that they share (`--@ keeps` in the Lua file): `read` makes them from the
 * state; `check`, `spend` and `refund` may change them.
 */
export interface Sections<Kept> {
  read(input: ModelInput): Kept
  /** @returns `retryAfter` of the result */
  check(kept: Kept, cost: number): number
  /** @returns for a queue, µs until the request may depart */
  spend(kept: Kept, cost: number): number | undefined
  refund(kept: Kept, refund: RefundedUnits): void
  standing(kept: Kept): Standing
  write(kept: Kept, standing: Standing): State
}

/** The model that consists of these sections. */
export function modelOf<Kept>(sections: Sections<Kept>): Model {
  const { read, check, spend, standing } = sections
  return {
    sections,
    peek: input => standing(read(input)),
    decide({ cost, times = 1, ...input }) {
      const kept = read(input)
      const retryAfter = check(kept, cost)
      const before = { retryAfter, ...standing(kept) }
      return retryAfter === 0
        ? { ...before, after: toUpdate(sections, kept, spend(kept, times * cost) ?? 0) }
        : before
    },
  }
}

function toUpdate<Kept>({ standing, write }: Sections<Kept>, kept: Kept, delay: number): Update {
  const newStanding = standing(kept)
  return { ...newStanding, delay, state: write(kept, newStanding) }
}

/**
 * Makes changes, one after the other: gives units back, or spends a cost without a check. No more units are given back than are
 * certainly still missing. So the guarantee of the algorithm still holds, and the budget never exceeds the whole.
 */
export function change(
  { sections }: Model,
  input: ModelInput,
  changes: readonly (RefundedUnits | { cost: number })[],
): Update {
  const kept = sections.read(input)
  for (const change of changes) {
    if ('cost' in change) sections.spend(kept, change.cost)
    else sections.refund(kept, change)
  }
  return toUpdate(sections, kept, 0)
}

/** ceil(a / b) for integers; exact where a / b is below 2^52. */
export function ceilDiv(a: number, b: number): number {
  // + 0 turns the -0 of a = 0 into 0.
  return -Math.floor(-a / b) + 0
}

/** Rounds up to whole milliseconds, because a record stores its idleAt in milliseconds. @returns µs */
export function ceilToMs(microseconds: number): number {
  return ceilDiv(microseconds, 1000) * 1000
}
