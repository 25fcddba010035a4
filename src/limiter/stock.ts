/**
 * Units that an isolate holds in advance, for rules with `inAdvance` and very many isolates (docs/concurrency.md, "Units in
 * advance"). If a request finds a unit here, the store need not decide its rule.
 *
 * Each unit is a claim of the holdings, and in flight like the claim of a request: the store has counted it, every message contains
 * it, and it is given up if it is not renewed. A request takes the claim, and puts it back when it is over. So the proof in
 * docs/concurrency.md also holds with a stock. Plain bookkeeping, without I/O and timers.
 */
import type { MessageAnswer } from '../algorithms/concurrency.ts'
import type { BoundRule, Verdict } from '../script/evaluation.ts'
import type { Message } from '../script/sync.ts'
import { UNKNOWN_CONSUMER_TAG } from '../store/keys.ts'
import type { Claim, Holdings } from './holdings.ts'
import type { CreateStock, UnitStock } from './in-advance.ts'

/** With fewer isolates there is no stock, because a decision then costs the store hardly more than without the rule. */
export const MIN_HOLDERS = 100

/** The shortest interval between two unit requests of an isolate (ms). */
const MIN_INTERVAL_MS = 250
/** The longest interval. It also applies while there are too few isolates. */
const IDLE_INTERVAL_MS = 5000

/** How long a unit above `maxSpare` waits for another request (ms). */
const REUSE_MS = 1000
const REUSE_MS_NEAR_LIMIT = 100

/** An isolate asks for units after this many requests. If they take longer than this (ms), it holds no units in advance. */
const MIN_REQUESTS = 4
const SLOW_REQUESTS_MS = 2000

/** After this time without a request (ms), all units are given back. */
const IDLE_MS = 1000

/** A unit request without an answer after this time is considered lost (ms). */
const UNIT_REQUEST_TIMEOUT_MS = 1000

/**
 * Shares of the limit. From the first on, released units do not wait for the next unit request; from the second on, they are
 * reported at once.
 */
const NEAR_LIMIT = 0.8
const ALMOST_FULL = 0.95

/** The units of one identity under one rule. */
interface UnitPool {
  rule: BoundRule
  /** Unused units. The last one is taken first. */
  readonly spare: { claim: Claim; since: number }[]
  /** The most units that were in use at the same time: since the last unit request, and between the two before. */
  peakInUse: number
  previousPeakInUse: number
  /** Requests since the last unit request. */
  requests: number
  /** Whether there were at least MIN_REQUESTS before the last unit request. */
  isBusy: boolean
  lastUsedAt: number
  lastAnswer: MessageAnswer | undefined
  /** How many unused units may stay, by the last answer. */
  maxSpare: number
  nextUnitRequestAt: number
  lastUnitRequestAt: number
  openUnitRequest: { claim: Claim; at: number } | undefined
}

export class Stock implements UnitStock {
  readonly #holdings: Holdings
  readonly #now: () => number
  readonly #minHolders: number
  readonly #pools = new Map<string, UnitPool>()

  /** @param now ms @param minHolders see MIN_HOLDERS */
  constructor(holdings: Holdings, now: () => number, minHolders = MIN_HOLDERS) {
    this.#holdings = holdings
    this.#now = now
    this.#minHolders = minHolders
  }

  take(rule: BoundRule): Claim | undefined {
    if (!canStock(rule)) return undefined
    const pool = this.#poolFor(rule)
    pool.rule = rule
    pool.lastUsedAt = this.#now()
    pool.requests += 1
    pool.peakInUse = Math.max(pool.peakInUse, this.#unitsInUse(pool) + 1)
    for (let unit = pool.spare.pop(); unit; unit = pool.spare.pop()) {
      // If no message has confirmed the unit lately, the store may have dropped it.
      if (this.#holdings.isConfirmed(unit.claim)) {
        this.#holdings.renew(unit.claim)
        return unit.claim
      }
      this.#holdings.release(unit.claim)
    }
    return undefined
  }

  verdictOf({ rule, mode, ownKey }: BoundRule): Verdict {
    const { inFlight = 0 } = this.#pools.get(ownKey!)?.lastAnswer ?? {}
    const { burst: limit, period } = rule.quota
    const remaining = Math.max(0, limit - inFlight)
    return { rule, mode, allowed: true, remaining, resetAfter: period, retryAfter: 0, delay: 0 }
  }

  putBack(claim: Claim): boolean {
    const pool = this.#pools.get(claim.rule.ownKey ?? '')
    if (!pool || claim.rule.cost !== 1 || !this.#isStocking(pool)) return false
    if (isAboveLimit(pool) || !this.#holdings.isConfirmed(claim)) return false
    this.#releaseSurplus(pool)
    if (reuseMsOf(pool) === 0 && pool.spare.length >= pool.maxSpare) return false
    this.#holdings.renew(claim)
    pool.spare.push({ claim, since: this.#now() })
    return true
  }

  /** Whether a released unit need not be reported at once, even if most of the limit is in use. */
  canDeferRelease({ rule: { ownKey = '' } }: Claim): boolean {
    const pool = this.#pools.get(ownKey)
    return pool !== undefined && this.#isStocking(pool) && useOf(pool) < ALMOST_FULL
  }

  createDueUnitRequests(): Message[] {
    return [...this.#pools.values()]
      .filter(pool => this.#isUnitRequestDue(pool))
      .map(pool => this.#createUnitRequest(pool))
  }

  applyGrant({ key, holding }: Message, received: MessageAnswer | undefined): void {
    const pool = this.#pools.get(key)
    const claim = pool?.openUnitRequest?.claim
    if (!pool || claim?.holding !== holding) return
    pool.openUnitRequest = undefined
    if (!received) {
      this.#holdings.settle(claim, 'lost')
      return
    }
    const now = this.#now()
    pool.lastAnswer = received
    for (const unit of this.#holdings.grant(claim, received.granted)) {
      pool.spare.push({ claim: unit, since: now })
    }
    pool.nextUnitRequestAt = now + this.#intervalOf(pool)
    pool.maxSpare = Math.min(this.#wantedSpare(pool), this.#maxGrant(pool))
    if (this.#hasElapsed(pool.lastUsedAt, IDLE_MS)) this.#releaseAll(pool)
    else this.#releaseSurplus(pool)
  }

  recordUse({ ownKey = '', rule }: BoundRule, { remaining }: Verdict): void {
    const pool = this.#pools.get(ownKey)
    if (!pool?.lastAnswer) return
    const limit = rule.quota.burst
    // With no units left, there can be more units in flight than the limit (after it was lowered).
    const inFlight = remaining > 0 ? limit - remaining : Math.max(limit, pool.lastAnswer.inFlight)
    pool.lastAnswer = { ...pool.lastAnswer, granted: 0, inFlight }
  }

  giveBackIdle(): boolean {
    for (const [key, pool] of this.#pools) {
      if (this.#hasElapsed(pool.lastUsedAt, IDLE_MS)) this.#releaseAll(pool)
      else this.#releaseSurplus(pool)
      if (this.#hasElapsed(pool.lastUsedAt, IDLE_INTERVAL_MS) && !pool.openUnitRequest)
        this.#pools.delete(key)
    }
    return this.isInUse
  }

  get isInUse(): boolean {
    return [...this.#pools.values()].some(
      pool => this.#isStocking(pool) && !this.#hasElapsed(pool.lastUsedAt, IDLE_MS),
    )
  }

  get deferredKeys(): ReadonlySet<string> {
    const waits = (pool: UnitPool) =>
      this.#isStocking(pool) && !isNearLimit(pool) && !this.#hasElapsed(pool.lastUsedAt, IDLE_MS)
    return new Set([...this.#pools].filter(([, pool]) => waits(pool)).map(([key]) => key))
  }

  #poolFor(rule: BoundRule): UnitPool {
    const key = rule.ownKey!
    const known = this.#pools.get(key)
    if (known) return known
    const now = this.#now()
    const pool: UnitPool = {
      ...{ rule, spare: [], peakInUse: 0, previousPeakInUse: 0, lastUsedAt: now, lastAnswer: undefined },
      ...{
        requests: 0,
        isBusy: false,
        maxSpare: 0,
        openUnitRequest: undefined,
        lastUnitRequestAt: now,
        nextUnitRequestAt: now + MIN_INTERVAL_MS,
      },
    }
    this.#pools.set(key, pool)
    return pool
  }

  #isUnitRequestDue(pool: UnitPool): boolean {
    if (pool.openUnitRequest && this.#hasElapsed(pool.openUnitRequest.at, UNIT_REQUEST_TIMEOUT_MS)) {
      this.#holdings.settle(pool.openUnitRequest.claim, 'lost')
      pool.openUnitRequest = undefined
    }
    const wait = pool.nextUnitRequestAt - this.#now()
    // A clock that was set back must not extend the wait.
    if (pool.openUnitRequest || (wait > 0 && wait <= IDLE_INTERVAL_MS)) return false
    // Near the limit the store grants nothing. The replies to requests show when it has room again.
    const isFull = pool.spare.length === 0 && this.#maxGrant(pool) === 0
    if (isFull && !this.#hasElapsed(pool.lastUnitRequestAt, IDLE_INTERVAL_MS)) return false
    const isSlow = pool.spare.length > 0 && this.#hasElapsed(pool.lastUnitRequestAt, SLOW_REQUESTS_MS)
    return isSlow || (pool.requests >= MIN_REQUESTS && !this.#hasElapsed(pool.lastUsedAt, IDLE_MS))
  }

  #createUnitRequest(pool: UnitPool): Message {
    const now = this.#now()
    for (const { claim } of pool.spare) this.#holdings.renew(claim)
    pool.isBusy = pool.requests >= MIN_REQUESTS && !this.#hasElapsed(pool.lastUsedAt, IDLE_MS)
    pool.requests = 0
    const units = Math.max(0, Math.min(this.#wantedSpare(pool), this.#maxGrant(pool)) - pool.spare.length)
    pool.previousPeakInUse = pool.peakInUse
    pool.peakInUse = this.#unitsInUse(pool)
    const claim = this.#holdings.claim({ ...pool.rule, cost: units })
    pool.openUnitRequest = { claim, at: now }
    pool.lastUnitRequestAt = now
    pool.nextUnitRequestAt = now + this.#intervalOf(pool)
    const { quota } = pool.rule.rule
    const want = { units, limit: quota.burst, minHolders: this.#minHolders }
    return { key: pool.rule.ownKey!, ttl: quota.period, holding: claim.holding, want }
  }

  #releaseAll({ spare }: UnitPool): void {
    for (const { claim } of spare.splice(0)) this.#holdings.release(claim)
  }

  #unitsInUse({ rule, spare }: UnitPool): number {
    return Math.max(0, this.#holdings.unitsOf(rule) - spare.length)
  }

  #isStocking({ lastAnswer }: UnitPool): boolean {
    return lastAnswer !== undefined && lastAnswer.holders >= this.#minHolders
  }

  /** The interval between two unit requests: 1 ms for each holder, so the whole fleet sends about one unit request per millisecond. */
  #intervalOf(pool: UnitPool): number {
    if (!pool.lastAnswer) return MIN_INTERVAL_MS
    if (!this.#isStocking(pool)) return IDLE_INTERVAL_MS
    return Math.min(IDLE_INTERVAL_MS, Math.max(MIN_INTERVAL_MS, pool.lastAnswer.holders))
  }

  /** How many spare units the next requests may need: up to the recent peak, plus its square root as a reserve. */
  #wantedSpare(pool: UnitPool): number {
    if (!pool.isBusy) return 0
    const most = Math.max(pool.peakInUse, pool.previousPeakInUse)
    return most - this.#unitsInUse(pool) + Math.ceil(Math.sqrt(most))
  }

  /** The most that the store would grant: half of the free units, divided by the number of isolates. */
  #maxGrant({ lastAnswer, rule: { rule } }: UnitPool): number {
    if (!lastAnswer) return Number.POSITIVE_INFINITY
    const free = rule.quota.burst - lastAnswer.inFlight + lastAnswer.granted
    return Math.max(0, Math.floor(free / (2 * lastAnswer.holders)))
  }

  /** Releases units above `maxSpare`, the one that was unused for the longest time first. */
  #releaseSurplus(pool: UnitPool): void {
    const { spare, maxSpare } = pool
    const reuseMs = reuseMsOf(pool)
    while (spare.length > maxSpare && this.#hasElapsed(spare[0]!.since, reuseMs)) {
      this.#holdings.release(spare.shift()!.claim)
    }
  }

  #hasElapsed(time: number, ms: number): boolean {
    return Math.abs(this.#now() - time) >= ms
  }
}

/** Whether the rule can have a stock: its verdict is the same for all callers, and its key is known without the store. */
function canStock({ rule, role, cost, ownKey }: BoundRule): boolean {
  return (
    rule.inAdvance === true &&
    role === 'spend' &&
    cost === 1 &&
    rule.match.plans === undefined &&
    !rule.takesOverrides &&
    ownKey?.includes(UNKNOWN_CONSUMER_TAG) === false
  )
}

const useOf = ({ lastAnswer, rule: { rule } }: UnitPool) => (lastAnswer?.inFlight ?? 0) / rule.quota.burst

const isNearLimit = (pool: UnitPool) => useOf(pool) >= NEAR_LIMIT

const reuseMsOf = (pool: UnitPool) =>
  !isNearLimit(pool) ? REUSE_MS : useOf(pool) < ALMOST_FULL ? REUSE_MS_NEAR_LIMIT : 0

const isAboveLimit = (pool: UnitPool) => useOf(pool) > 1

/** Creates the stock of an isolate. It is used from MIN_HOLDERS isolates on. */
export const createStock: CreateStock = (holdings, now) => new Stock(holdings, now)
