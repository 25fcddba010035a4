/** The interface of limits by name (limiter.ts): what a call gets, and the methods. */
import type { DegradedCause } from '../../limiter/decision.ts'
import type { WithMetrics } from '../../metrics/metrics-reader.ts'
import type { RuleResult } from '../rule-result.ts'
import type {
  Amounts,
  CallNumbers,
  CostOptions,
  LimitIdentity,
  LimitOptions,
  NumbersOptions,
} from './arguments.ts'
import type { RetryAfter } from './retry-after.ts'

/** The decision about one call of a limit by name. */
export interface LimitDecision {
  /** Name of the limit in the config. */
  limit: string
  identity: LimitIdentity
  /** If false, nothing was spent. */
  allowed: boolean
  /** Wait this long before the call (`leaky-bucket`; else 0). Whole ms, rounded up. */
  delayMs: number
  /** Try again after this time; 0 if allowed, -1 if this cost can never be allowed. Whole ms, rounded up. */
  retryAfterMs: number
  /**
   * Set if the limit is paused (`pause`), whatever its rules have left: when the pause ends, by the store's clock (ms since the
   * epoch, whole, rounded up).
   */
  pausedUntil?: number
  /**
   * When it was decided, by the store's clock (µs). 0 without a trip: while degraded, and for a remembered refusal.
   * From a lease: when its units were spent.
   */
  at: number
  /** One for each rule that took part. While degraded, only the rules that the isolate counts. */
  rules: readonly RuleResult[]
  /**
   * The cost for each rule that took part, by rule name. Empty after `peek`, `refund` and `reset`, and if a refusal
   * was switched off while it was made.
   */
  costs: Readonly<Record<string, number>>
  /** Identifies a decision that has spent units, for refunds and settlements. A copy of the decision needs it. */
  id?: string
  /**
   * The records in the store that have counted it, by rule name: text that depends on the numbers of the rule, as far as its record does.
   * Refunds and settlements give units back to these records only. A copy of the decision needs it.
   */
  records?: Readonly<Record<string, string>>
  /** The numbers that the call has given. A copy of the decision needs them. */
  numbers?: CallNumbers
  /**
   * Of a refund or a settlement: the rules that have spent units and give none back, because they now count in another record. A deployment
   * since has changed their numbers, or has removed them.
   */
  changedRules?: readonly string[]
  /** Units that `reserve` has reserved, by rule name. `settle` replaces them by the cost. */
  reserved?: Readonly<Record<string, number>>
  /**
   * Why the store has not evaluated the limits: it did not answer, and each rule's `onStoreFailure` decided, or all
   * limits are switched off.
   */
  degraded?: DegradedCause
  /**
   * Call this when the work is over. It releases the units that the decision holds under `concurrency` rules, and
   * gives back nothing else: reserved units stay spent, or are given back when the reservation ends, as their unit
   * says (`onUnsettled`). Only the first call counts. `await using decision = await limiter.acquire(…)` calls it
   * at the end of the block. Without a release, the units are held until the process ends, and then for the `ttl` of
   * the rule.
   */
  release(): void
  [Symbol.asyncDispose](): Promise<void>
}

/** How long to pause: at most `longestPause` of the config (24 hours), because a stranger may have said it. */
export type PauseLength =
  | { forMs: number }
  /**
   * The response that said `Retry-After`, its headers, or the text of the header: seconds or a date. A date is measured against the `Date`
   * of the response, if it has one. Without a valid time, nothing is paused.
   */
  | { retryAfter: RetryAfter }

/** What a call of `pause` or `resume` has done. */
export interface LimitPause {
  limit: string
  identity: LimitIdentity
  /** Until the pause ends; 0: it is not paused. Whole ms, rounded up. */
  retryAfterMs: number
  /** When the pause ends, by the store's clock (ms since the epoch). Absent: it is not paused. */
  pausedUntil?: number
  /** Why the store has not confirmed it. Then a pause holds in this process alone. */
  degraded?: DegradedCause
}

/** The part of a decision that a refund uses. */
export interface RefundableDecision
  extends Pick<
    LimitDecision,
    'limit' | 'identity' | 'allowed' | 'at' | 'costs' | 'id' | 'records' | 'numbers' | 'reserved' | 'degraded'
  > {
  rules: readonly Pick<RuleResult, 'name' | 'allowed'>[]
}

/** Options of `acquire`: those of `limit`, and how long to wait. */
export interface AcquireOptions extends CostOptions {
  /**
   * Give up if it would take longer than this many ms (default: no limit). No call joins a queue (`leaky-bucket`) in which it would wait
   * longer.
   */
  timeoutMs?: number
  /**
   * Ends the wait: the call leaves the line and rejects with the reason of the signal, as `fetch` does. What the store has admitted for it
   * is given back, as by `release` and `refund`, also if that answer arrives later. A place in a queue
   * (`leaky-bucket`) is free again unless another process has a later one.
   */
  signal?: AbortSignal
}

/** Options of `reserve`: the amounts are estimates. */
export interface ReserveOptions extends CostOptions {}

/** The part of a decision that `settle` uses. */
export type SettleableDecision = Pick<
  LimitDecision,
  'limit' | 'identity' | 'at' | 'id' | 'records' | 'numbers' | 'reserved' | 'degraded'
>

/** The decision of `reserve`. */
export interface ReservedDecision extends LimitDecision {
  /** As `settle` of the limiter. It also releases the decision. */
  settle(amounts: Amounts): Promise<SettledDecision>
}

/** The state after a settlement. Not allowed if the store could not do it now: then the limiter repeats it. */
export interface SettledDecision extends LimitDecision {
  /**
   * Whether this call has replaced the reserved units. Otherwise, another one has, nothing was reserved, the reservation has
   * ended, or the store does not answer.
   */
  applied: boolean
}

/**
 * The limits by name of a config. A refusal, or a store that does not answer, is a result and not an exception: see
 * `allowed` and `degraded` of the decision. Wrong arguments throw a TypeError.
 */
export interface Limiter extends WithMetrics {
  /**
   * Decides, and spends if all rules of the limit admit.
   *
   * @throws TypeError for an unknown limit or part of an identity, for an invalid cost, and for numbers that the limit cannot have
   */
  limit(name: string, identity?: LimitIdentity, options?: CostOptions): Promise<LimitDecision>
  /**
   * Returns what `limit` would return now for a cost of 1 (`allowed`, `delayMs`, `retryAfterMs`), and spends nothing.
   * Another call can spend in the meantime.
   *
   * @throws TypeError as `limit`
   */
  peek(name: string, identity?: LimitIdentity, options?: NumbersOptions): Promise<LimitDecision>
  /**
   * Waits until the limit admits, then until the departure from a queue (`leaky-bucket`). The calls of a process that
   * wait for one identity are admitted in the order in which they came, and ask the store one after the other. If all
   * units are in flight (`concurrency`), a release in this process lets the next one ask at once (not on Workers), and the first of them
   * also tries again after 50 ms and then less often, up to every 1.6 s.
   *
   * @returns the last decision, which is not allowed if it can never be, or not within `timeoutMs`
   * @throws TypeError as `limit`, and the reason of an aborted `signal`
   */
  acquire(name: string, identity?: LimitIdentity, options?: AcquireOptions): Promise<LimitDecision>
  /**
   * Gives back what a decision has spent, or `cost` units of it, if the call was not made or cost less than expected.
   * Never gives an identity more than its full budget, and never more than is certainly missing. A place in a queue
   * (`leaky-bucket`) is not given back, because the departures behind it are fixed. With a cost by rule name, other
   * rules give nothing back, and neither do `changedRules`. The store gives no unit of a decision back twice, from whichever process.
   * Partial refunds of a decision add up within a process; of several processes, the largest sum counts.
   *
   * @returns the state after the refund; not allowed if the store did not do it
   * @throws TypeError as `limit`
   */
  refund(decision: RefundableDecision, options?: LimitOptions): Promise<LimitDecision>
  /**
   * Decides as `limit`, and reserves units whose amount is known only afterwards. Renews the reservation until
   * `settle` or `release`.
   *
   *     await using call = await limiter.reserve('llm', { team: 'a' }, { amounts: { tokens: 2000 } })
   *     if (call.allowed) await call.settle({ tokens: await ask(…) })
   *
   * While the store does not answer, nothing is reserved: the estimates are spent.
   *
   * @throws TypeError as `limit`, for an unknown unit, and if no rule of the limit reserves units
   */
  reserve(name: string, identity?: LimitIdentity, options?: ReserveOptions): Promise<ReservedDecision>
  /**
   * Replaces the units that a decision has reserved by what the call has cost: less is given back to the window or
   * bucket that it came from, more is spent in any case. The store does this at most once for each decision, from
   * whichever process, and however often this is called. A unit that `amounts` does not name stays as reserved.
   * One of which 0 was reserved is not settled. Of `changedRules`, nothing is given back.
   * `decision` can be a copy, made by another process.
   *
   * @throws TypeError as `reserve`. The decision can still be settled
   */
  settle(decision: SettleableDecision, amounts: Amounts): Promise<SettledDecision>
  /**
   * Makes the whole budget of an identity available again, for all rules of the limit or for one. Of a rule with `numbers: 'call'`: the
   * budget under these numbers.
   *
   * @returns the state after the reset; not allowed if the store did not do it
   * @throws TypeError as `limit`, and for an unknown rule
   */
  reset(
    name: string,
    identity?: LimitIdentity,
    options?: NumbersOptions & { rule?: string },
  ): Promise<LimitDecision>
  /**
   * Refuses all calls for an identity until a time: at once in this process, in others from their next decision of the store on. Never ends
   * a longer pause. It belongs to the rule with the most parts that the identity names (of several, the first), so an identity with
   * fewer parts pauses more callers.
   *
   *     if (response.status === 429) await limiter.pause('zendesk', { account }, { retryAfter: response })
   *
   * @throws TypeError as `limit`, unless the identity has all parts of a rule
   */
  pause(name: string, identity: LimitIdentity | undefined, pause: PauseLength): Promise<LimitPause>
  /**
   * Ends the pause of an identity.
   *
   * @throws TypeError as `pause`
   */
  resume(name: string, identity?: LimitIdentity): Promise<LimitPause>
  /**
   * Gives back leased units (`lease`), sends settlements that wait, and sends the counters of `npx sluicegate stats`, before a process ends. Later
   * calls are still decided, each with a trip to the store. Resolves when the store has both, or could not be reached.
   * Never rejects. Units that decisions hold stay held.
   */
  close(): Promise<void>
}
