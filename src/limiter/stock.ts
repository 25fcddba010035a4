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

/** The shortest interval between two questions of an isolate (ms). */
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

/** A question without an answer after this time is considered lost (ms). */
const QUESTION_TIMEOUT_MS = 1000

/** Shares of the limit. From the first on, released units do not wait for the next question; from the second on, they are reported at once. */
const NEAR_LIMIT = 0.8
const ALMOST_FULL = 0.95

/** The units of one identity under one rule. */
interface Shelf {
  rule: BoundRule
  /** Unused units. The last one is taken first. */
  readonly spare: { claim: Claim; since: number }[]
  /** The most units that were in use at the same time: since the last question, and between the two before. */
  peakInUse: number
  previousPeakInUse: number
  /** Requests since the last question. */
  requests: number
  /** Whether there were at least MIN_REQUESTS before the last question. */
  isBusy: boolean
  lastUsedAt: number
  lastAnswer: MessageAnswer | undefined
  /** How many unused units may stay, by the last answer. */
  maxSpare: number
  nextQuestionAt: number
  lastQuestionAt: number
  openQuestion: { claim: Claim; at: number } | undefined
}

export class Stock implements UnitStock {
  readonly #holdings: Holdings
  readonly #now: () => number
  readonly #minHolders: number
  readonly #shelves = new Map<string, Shelf>()

  /** @param now ms @param minHolders see MIN_HOLDERS */
  constructor(holdings: Holdings, now: () => number, minHolders = MIN_HOLDERS) {
    this.#holdings = holdings
    this.#now = now
    this.#minHolders = minHolders
  }

  take(rule: BoundRule): Claim | undefined {
    if (!canStock(rule)) return undefined
    const shelf = this.#shelfFor(rule)
    shelf.rule = rule
    shelf.lastUsedAt = this.#now()
    shelf.requests += 1
    shelf.peakInUse = Math.max(shelf.peakInUse, this.#unitsInUse(shelf) + 1)
    for (let unit = shelf.spare.pop(); unit; unit = shelf.spare.pop()) {
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
    const { inFlight = 0 } = this.#shelves.get(ownKey!)?.lastAnswer ?? {}
    const { burst: limit, period } = rule.quota
    const remaining = Math.max(0, limit - inFlight)
    return { rule, mode, allowed: true, remaining, resetAfter: period, retryAfter: 0, delay: 0 }
  }

  putBack(claim: Claim): boolean {
    const shelf = this.#shelves.get(claim.rule.ownKey ?? '')
    if (!shelf || claim.rule.cost !== 1 || !this.#isStocking(shelf)) return false
    if (isAboveLimit(shelf) || !this.#holdings.isConfirmed(claim)) return false
    this.#releaseSurplus(shelf)
    if (reuseMsOf(shelf) === 0 && shelf.spare.length >= shelf.maxSpare) return false
    this.#holdings.renew(claim)
    shelf.spare.push({ claim, since: this.#now() })
    return true
  }

  /** Whether a released unit need not be reported at once, even if most of the limit is in use. */
  canDeferRelease({ rule: { ownKey = '' } }: Claim): boolean {
    const shelf = this.#shelves.get(ownKey)
    return shelf !== undefined && this.#isStocking(shelf) && useOf(shelf) < ALMOST_FULL
  }

  askDue(): Message[] {
    return [...this.#shelves.values()]
      .filter(shelf => this.#isQuestionDue(shelf))
      .map(shelf => this.#createQuestion(shelf))
  }

  receiveAnswer({ key, holding }: Message, received: MessageAnswer | undefined): void {
    const shelf = this.#shelves.get(key)
    const claim = shelf?.openQuestion?.claim
    if (!shelf || claim?.holding !== holding) return
    shelf.openQuestion = undefined
    if (!received) {
      this.#holdings.settle(claim, 'lost')
      return
    }
    const now = this.#now()
    shelf.lastAnswer = received
    for (const unit of this.#holdings.grant(claim, received.granted)) {
      shelf.spare.push({ claim: unit, since: now })
    }
    shelf.nextQuestionAt = now + this.#intervalOf(shelf)
    shelf.maxSpare = Math.min(this.#wantedSpare(shelf), this.#maxGrant(shelf))
    if (this.#hasElapsed(shelf.lastUsedAt, IDLE_MS)) this.#releaseAll(shelf)
    else this.#releaseSurplus(shelf)
  }

  recordUse({ ownKey = '', rule }: BoundRule, { remaining }: Verdict): void {
    const shelf = this.#shelves.get(ownKey)
    if (!shelf?.lastAnswer) return
    const limit = rule.quota.burst
    // With no units left, there can be more units in flight than the limit (after it was lowered).
    const inFlight = remaining > 0 ? limit - remaining : Math.max(limit, shelf.lastAnswer.inFlight)
    shelf.lastAnswer = { ...shelf.lastAnswer, granted: 0, inFlight }
  }

  giveBackIdle(): boolean {
    for (const [key, shelf] of this.#shelves) {
      if (this.#hasElapsed(shelf.lastUsedAt, IDLE_MS)) this.#releaseAll(shelf)
      else this.#releaseSurplus(shelf)
      if (this.#hasElapsed(shelf.lastUsedAt, IDLE_INTERVAL_MS) && !shelf.openQuestion)
        this.#shelves.delete(key)
    }
    return this.isInUse
  }

  get isInUse(): boolean {
    return [...this.#shelves.values()].some(
      shelf => this.#isStocking(shelf) && !this.#hasElapsed(shelf.lastUsedAt, IDLE_MS),
    )
  }

  get deferredKeys(): ReadonlySet<string> {
    const waits = (shelf: Shelf) =>
      this.#isStocking(shelf) && !isNearLimit(shelf) && !this.#hasElapsed(shelf.lastUsedAt, IDLE_MS)
    return new Set([...this.#shelves].filter(([, shelf]) => waits(shelf)).map(([key]) => key))
  }

  #shelfFor(rule: BoundRule): Shelf {
    const key = rule.ownKey!
    const known = this.#shelves.get(key)
    if (known) return known
    const now = this.#now()
    const shelf: Shelf = {
      ...{ rule, spare: [], peakInUse: 0, previousPeakInUse: 0, lastUsedAt: now, lastAnswer: undefined },
      ...{
        requests: 0,
        isBusy: false,
        maxSpare: 0,
        openQuestion: undefined,
        lastQuestionAt: now,
        nextQuestionAt: now + MIN_INTERVAL_MS,
      },
    }
    this.#shelves.set(key, shelf)
    return shelf
  }

  #isQuestionDue(shelf: Shelf): boolean {
    if (shelf.openQuestion && this.#hasElapsed(shelf.openQuestion.at, QUESTION_TIMEOUT_MS)) {
      this.#holdings.settle(shelf.openQuestion.claim, 'lost')
      shelf.openQuestion = undefined
    }
    const wait = shelf.nextQuestionAt - this.#now()
    // A clock that was set back must not extend the wait.
    if (shelf.openQuestion || (wait > 0 && wait <= IDLE_INTERVAL_MS)) return false
    // Near the limit the store grants nothing. The replies to requests show when it has room again.
    const isFull = shelf.spare.length === 0 && this.#maxGrant(shelf) === 0
    if (isFull && !this.#hasElapsed(shelf.lastQuestionAt, IDLE_INTERVAL_MS)) return false
    const isSlow = shelf.spare.length > 0 && this.#hasElapsed(shelf.lastQuestionAt, SLOW_REQUESTS_MS)
    return isSlow || (shelf.requests >= MIN_REQUESTS && !this.#hasElapsed(shelf.lastUsedAt, IDLE_MS))
  }

  #createQuestion(shelf: Shelf): Message {
    const now = this.#now()
    for (const { claim } of shelf.spare) this.#holdings.renew(claim)
    shelf.isBusy = shelf.requests >= MIN_REQUESTS && !this.#hasElapsed(shelf.lastUsedAt, IDLE_MS)
    shelf.requests = 0
    const units = Math.max(0, Math.min(this.#wantedSpare(shelf), this.#maxGrant(shelf)) - shelf.spare.length)
    shelf.previousPeakInUse = shelf.peakInUse
    shelf.peakInUse = this.#unitsInUse(shelf)
    const claim = this.#holdings.claim({ ...shelf.rule, cost: units })
    shelf.openQuestion = { claim, at: now }
    shelf.lastQuestionAt = now
    shelf.nextQuestionAt = now + this.#intervalOf(shelf)
    const { quota } = shelf.rule.rule
    const want = { units, limit: quota.burst, minHolders: this.#minHolders }
    return { key: shelf.rule.ownKey!, ttl: quota.period, holding: claim.holding, want }
  }

  #releaseAll({ spare }: Shelf): void {
    for (const { claim } of spare.splice(0)) this.#holdings.release(claim)
  }

  #unitsInUse({ rule, spare }: Shelf): number {
    return Math.max(0, this.#holdings.unitsOf(rule) - spare.length)
  }

  #isStocking({ lastAnswer }: Shelf): boolean {
    return lastAnswer !== undefined && lastAnswer.holders >= this.#minHolders
  }

  /** The interval between two questions (ms): one for each holder, so the whole fleet sends about one question per millisecond. */
  #intervalOf(shelf: Shelf): number {
    if (!shelf.lastAnswer) return MIN_INTERVAL_MS
    if (!this.#isStocking(shelf)) return IDLE_INTERVAL_MS
    return Math.min(IDLE_INTERVAL_MS, Math.max(MIN_INTERVAL_MS, shelf.lastAnswer.holders))
  }

  /** How many spare units the next requests may need: up to the recent peak, plus its square root as a reserve. */
  #wantedSpare(shelf: Shelf): number {
    if (!shelf.isBusy) return 0
    const most = Math.max(shelf.peakInUse, shelf.previousPeakInUse)
    return most - this.#unitsInUse(shelf) + Math.ceil(Math.sqrt(most))
  }

  /** The most that the store would grant: half of the free units, divided by the number of isolates. */
  #maxGrant({ lastAnswer, rule: { rule } }: Shelf): number {
    if (!lastAnswer) return Number.POSITIVE_INFINITY
    const free = rule.quota.burst - lastAnswer.inFlight + lastAnswer.granted
    return Math.max(0, Math.floor(free / (2 * lastAnswer.holders)))
  }

  /** Releases units above `maxSpare`, the one that was unused for the longest time first. */
  #releaseSurplus(shelf: Shelf): void {
    const { spare, maxSpare } = shelf
    const reuseMs = reuseMsOf(shelf)
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

const useOf = ({ lastAnswer, rule: { rule } }: Shelf) => (lastAnswer?.inFlight ?? 0) / rule.quota.burst

const isNearLimit = (shelf: Shelf) => useOf(shelf) >= NEAR_LIMIT

const reuseMsOf = (shelf: Shelf) =>
  !isNearLimit(shelf) ? REUSE_MS : useOf(shelf) < ALMOST_FULL ? REUSE_MS_NEAR_LIMIT : 0

const isAboveLimit = (shelf: Shelf) => useOf(shelf) > 1

/** Creates the stock of an isolate. It is used from MIN_HOLDERS isolates on. */
export const createStock: CreateStock = (holdings, now) => new Stock(holdings, now)
