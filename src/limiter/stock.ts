/**
 * Units that an isolate holds in advance, for rules with `inAdvance` and very many isolates (docs/concurrency.md, "Very many
 * isolates"). A request that finds one here does not ask the store about its rule.
 *
 * Each unit is a claim of the holdings, in flight like that of a request: the store has counted it, it is in every message, and it is
 * given up if it is not renewed. A request takes the claim and brings it back when it is over. So the stock changes nothing
 * of what docs/concurrency.md proves. Plain bookkeeping, without I/O and timers.
 */
import type { MessageAnswer } from '../algorithms/concurrency.ts'
import type { BoundRule, Verdict } from '../script/evaluation.ts'
import type { Message } from '../script/sync.ts'
import { UNKNOWN_CONSUMER_TAG } from '../store/keys.ts'
import type { Claim, Holdings } from './holdings.ts'
import type { CreateStock, InAdvance } from './in-advance.ts'

/** With fewer isolates every request asks: it costs the store hardly more than without the rule. */
export const LEAST_HOLDERS = 100

/** No isolate asks for units more often (ms). */
const LEAST_INTERVAL_MS = 250
/** How often it asks while there are too few isolates; no isolate waits longer. */
const IDLE_INTERVAL_MS = 5000

/** Where the limit has no room for a stock, a unit stays for the next request this long (ms). */
const REUSE_MS = 1000
const REUSE_MS_NEAR_LIMIT = 100

/** An isolate asks after so many requests; if they take longer than this (ms), it holds nothing in advance. */
const LEAST_REQUESTS = 4
const SLOW_MS = 2000

/** After so long without a request all units are given back (ms). */
const IDLE_MS = 1000

/** A question without an answer for so long is lost (ms). */
const LOST_MS = 1000

/** From this share of the limit on, units that are free again do not wait for the next question; from the second on they wait for nothing. */
const NEAR_LIMIT = 0.8
const ALMOST_FULL = 0.95

/** What there is of one identity under one rule. */
interface Shelf {
  rule: BoundRule
  /** The one that came last is taken first. */
  readonly spare: { claim: Claim; since: number }[]
  /** The most units that were in use at once, since the last question and in the time before it. */
  most: number
  mostBefore: number
  /** Since the last question, and whether there were many before it. */
  requests: number
  isBusy: boolean
  usedAt: number
  /** By the last answer. */
  known: MessageAnswer | undefined
  /** So many units may stay here while they are not used. */
  allowed: number
  asksAt: number
  askedAt: number
  asked: { claim: Claim; at: number } | undefined
}

export class Stock implements InAdvance {
  readonly #holdings: Holdings
  readonly #now: () => number
  readonly #leastHolders: number
  readonly #shelves = new Map<string, Shelf>()

  /** @param now ms */
  constructor(holdings: Holdings, now: () => number, leastHolders = LEAST_HOLDERS) {
    this.#holdings = holdings
    this.#now = now
    this.#leastHolders = leastHolders
  }

  take(rule: BoundRule): Claim | undefined {
    if (!isStocked(rule)) return undefined
    const shelf = this.#shelfFor(rule)
    shelf.rule = rule
    shelf.usedAt = this.#now()
    shelf.requests += 1
    shelf.most = Math.max(shelf.most, this.#inUse(shelf) + 1)
    for (let unit = shelf.spare.pop(); unit; unit = shelf.spare.pop()) {
      // The store may have forgotten one that no message has confirmed for long.
      if (this.#holdings.isConfirmed(unit.claim)) {
        this.#holdings.renew(unit.claim)
        return unit.claim
      }
      this.#holdings.release(unit.claim)
    }
    return undefined
  }

  verdictOf({ rule, mode, ownKey }: BoundRule): Verdict {
    const { inFlight = 0 } = this.#shelves.get(ownKey!)?.known ?? {}
    const { burst: limit, period } = rule.quota
    const remaining = Math.max(0, limit - inFlight)
    return { rule, mode, allowed: true, remaining, resetAfter: period, retryAfter: 0, delay: 0 }
  }

  putBack(claim: Claim): boolean {
    const shelf = this.#shelves.get(claim.rule.ownKey ?? '')
    if (!shelf || claim.rule.cost !== 1 || !this.#isStocking(shelf)) return false
    if (isAboveLimit(shelf) || !this.#holdings.isConfirmed(claim)) return false
    this.#trim(shelf)
    if (reuseMsOf(shelf) === 0 && shelf.spare.length >= shelf.allowed) return false
    this.#holdings.renew(claim)
    shelf.spare.push({ claim, since: this.#now() })
    return true
  }

  /** Whether a unit that is free again need not be reported at once, although much of the limit is in use. */
  mayWait({ rule: { ownKey = '' } }: Claim): boolean {
    const shelf = this.#shelves.get(ownKey)
    return shelf !== undefined && this.#isStocking(shelf) && useOf(shelf) < ALMOST_FULL
  }

  questions(): Message[] {
    return [...this.#shelves.values()].filter(shelf => this.#isDue(shelf)).map(shelf => this.#ask(shelf))
  }

  answer({ key, holding }: Message, received: MessageAnswer | undefined): void {
    const shelf = this.#shelves.get(key)
    const claim = shelf?.asked?.claim
    if (!shelf || claim?.holding !== holding) return
    shelf.asked = undefined
    if (!received) {
      this.#holdings.settle(claim, 'lost')
      return
    }
    const now = this.#now()
    shelf.known = received
    for (const unit of this.#holdings.grant(claim, received.granted)) {
      shelf.spare.push({ claim: unit, since: now })
    }
    shelf.asksAt = now + this.#intervalOf(shelf)
    shelf.allowed = Math.min(this.#wanted(shelf), this.#shareOf(shelf))
    if (this.#isPast(shelf.usedAt, IDLE_MS)) this.#giveBack(shelf)
    else this.#trim(shelf)
  }

  learn({ ownKey = '', rule }: BoundRule, { remaining }: Verdict): void {
    const shelf = this.#shelves.get(ownKey)
    if (!shelf?.known) return
    const limit = rule.quota.burst
    // With nothing left there can also be more in flight than the limit.
    const inFlight = remaining > 0 ? limit - remaining : Math.max(limit, shelf.known.inFlight)
    shelf.known = { ...shelf.known, granted: 0, inFlight }
  }

  giveBackIdle(): boolean {
    for (const [key, shelf] of this.#shelves) {
      if (this.#isPast(shelf.usedAt, IDLE_MS)) this.#giveBack(shelf)
      else this.#trim(shelf)
      if (this.#isPast(shelf.usedAt, IDLE_INTERVAL_MS) && !shelf.asked) this.#shelves.delete(key)
    }
    return this.isInUse
  }

  get isInUse(): boolean {
    return [...this.#shelves.values()].some(
      shelf => this.#isStocking(shelf) && !this.#isPast(shelf.usedAt, IDLE_MS),
    )
  }

  get waiting(): ReadonlySet<string> {
    const waits = (shelf: Shelf) =>
      this.#isStocking(shelf) && !isNearLimit(shelf) && !this.#isPast(shelf.usedAt, IDLE_MS)
    return new Set([...this.#shelves].filter(([, shelf]) => waits(shelf)).map(([key]) => key))
  }

  #shelfFor(rule: BoundRule): Shelf {
    const key = rule.ownKey!
    const known = this.#shelves.get(key)
    if (known) return known
    const now = this.#now()
    const shelf: Shelf = {
      ...{ rule, spare: [], most: 0, mostBefore: 0, usedAt: now, known: undefined },
      ...{
        requests: 0,
        isBusy: false,
        allowed: 0,
        asked: undefined,
        askedAt: now,
        asksAt: now + LEAST_INTERVAL_MS,
      },
    }
    this.#shelves.set(key, shelf)
    return shelf
  }

  #isDue(shelf: Shelf): boolean {
    if (shelf.asked && this.#isPast(shelf.asked.at, LOST_MS)) {
      this.#holdings.settle(shelf.asked.claim, 'lost')
      shelf.asked = undefined
    }
    const wait = shelf.asksAt - this.#now()
    // A clock that is set back must not make it wait for longer.
    if (shelf.asked || (wait > 0 && wait <= IDLE_INTERVAL_MS)) return false
    // Where there is no room for a stock, replies to requests tell when there is again.
    const isFull = shelf.spare.length === 0 && this.#shareOf(shelf) === 0
    if (isFull && !this.#isPast(shelf.askedAt, IDLE_INTERVAL_MS)) return false
    const isSlow = shelf.spare.length > 0 && this.#isPast(shelf.askedAt, SLOW_MS)
    return isSlow || (shelf.requests >= LEAST_REQUESTS && !this.#isPast(shelf.usedAt, IDLE_MS))
  }

  #ask(shelf: Shelf): Message {
    const now = this.#now()
    for (const { claim } of shelf.spare) this.#holdings.renew(claim)
    shelf.isBusy = shelf.requests >= LEAST_REQUESTS && !this.#isPast(shelf.usedAt, IDLE_MS)
    shelf.requests = 0
    const units = Math.max(0, Math.min(this.#wanted(shelf), this.#shareOf(shelf)) - shelf.spare.length)
    shelf.mostBefore = shelf.most
    shelf.most = this.#inUse(shelf)
    const claim = this.#holdings.claim({ ...shelf.rule, cost: units })
    shelf.asked = { claim, at: now }
    shelf.askedAt = now
    shelf.asksAt = now + this.#intervalOf(shelf)
    const { quota } = shelf.rule.rule
    const want = { units, limit: quota.burst, leastHolders: this.#leastHolders }
    return { key: shelf.rule.ownKey!, ttl: quota.period, holding: claim.holding, want }
  }

  #giveBack({ spare }: Shelf): void {
    for (const { claim } of spare.splice(0)) this.#holdings.release(claim)
  }

  #inUse({ rule, spare }: Shelf): number {
    return Math.max(0, this.#holdings.unitsOf(rule) - spare.length)
  }

  #isStocking({ known }: Shelf): boolean {
    return known !== undefined && known.holders >= this.#leastHolders
  }

  /** Of the whole fleet, one isolate asks each millisecond. */
  #intervalOf(shelf: Shelf): number {
    if (!shelf.known) return LEAST_INTERVAL_MS
    if (!this.#isStocking(shelf)) return IDLE_INTERVAL_MS
    return Math.min(IDLE_INTERVAL_MS, Math.max(LEAST_INTERVAL_MS, shelf.known.holders))
  }

  /** Spare units that the requests of the next time may need: as many as there have been, and some more. */
  #wanted(shelf: Shelf): number {
    if (!shelf.isBusy) return 0
    const most = Math.max(shelf.most, shelf.mostBefore)
    return most - this.#inUse(shelf) + Math.ceil(Math.sqrt(most))
  }

  /** Half of what is free, over all isolates: what the store grants at most. */
  #shareOf({ known, rule: { rule } }: Shelf): number {
    if (!known) return Number.POSITIVE_INFINITY
    const free = rule.quota.burst - known.inFlight + known.granted
    return Math.max(0, Math.floor(free / (2 * known.holders)))
  }

  /** Ends what is too much, the unit that has not been used for the longest time first. */
  #trim(shelf: Shelf): void {
    const { spare, allowed } = shelf
    const reuseMs = reuseMsOf(shelf)
    while (spare.length > allowed && this.#isPast(spare[0]!.since, reuseMs)) {
      this.#holdings.release(spare.shift()!.claim)
    }
  }

  #isPast(time: number, ms: number): boolean {
    return Math.abs(this.#now() - time) >= ms
  }
}

/** Its verdict is the same for all callers, and the store alone names no part of its key. */
function isStocked({ rule, role, cost, ownKey }: BoundRule): boolean {
  return (
    rule.inAdvance === true &&
    role === 'spend' &&
    cost === 1 &&
    rule.match.plans === undefined &&
    !rule.takesOverrides &&
    ownKey?.includes(UNKNOWN_CONSUMER_TAG) === false
  )
}

const useOf = ({ known, rule: { rule } }: Shelf) => (known?.inFlight ?? 0) / rule.quota.burst

const isNearLimit = (shelf: Shelf) => useOf(shelf) >= NEAR_LIMIT

const reuseMsOf = (shelf: Shelf) =>
  !isNearLimit(shelf) ? REUSE_MS : useOf(shelf) < ALMOST_FULL ? REUSE_MS_NEAR_LIMIT : 0

const isAboveLimit = (shelf: Shelf) => useOf(shelf) > 1

/** From so many isolates on that a decision costs the store more than without the rule. */
export const createStock: CreateStock = (holdings, now) => new Stock(holdings, now)
