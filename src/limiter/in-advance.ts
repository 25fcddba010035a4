/** The interface of the stock of units in advance (stock.ts). A Worker carries the stock only if a rule of its config uses it. */
import type { MessageAnswer } from '../algorithms/concurrency.ts'
import type { BoundRule, Verdict } from '../script/evaluation.ts'
import type { Message } from '../script/sync.ts'
import type { Claim, Holdings } from './holdings.ts'

/** Units that the isolate holds in advance. docs/concurrency.md, "Units in advance", describes the messages. */
export interface UnitStock {
  /** Takes a unit for a request. @returns undefined if there is none: the store has to decide */
  take(rule: BoundRule): Claim | undefined
  /** The verdict for a unit from the stock, by the last answer of the store. */
  verdictOf(rule: BoundRule): Verdict
  /** Puts back a unit whose request is over. @returns whether the stock keeps it; if not, it must be released */
  putBack(claim: Claim): boolean
  /** Whether a released unit need not be reported at once, even if most of the limit is in use. */
  canDeferRelease(claim: Claim): boolean
  /** Creates the unit requests that are due: messages that ask the store for units, and travel with another HTTP request. */
  createDueUnitRequests(): Message[]
  /** Adds the units that the store has granted for a unit request. @param received undefined: there was no answer */
  applyGrant(message: Message, received: MessageAnswer | undefined): void
  /** Records how much of the limit is in use, from the store's decision on a request that found no unit in the stock. */
  recordUse(rule: BoundRule, verdict: Verdict): void
  /** Gives back units that were not used lately. @returns whether units may have to be given back later */
  giveBackIdle(): boolean
  /** Whether units are held in advance, or may soon be. */
  readonly isInUse: boolean
  /** The keys whose released units may be reported with the next unit request. */
  readonly deferredKeys: ReadonlySet<string>
}

/** Creates the stock of an isolate. @param now ms */
export type CreateStock = (holdings: Holdings, now: () => number) => UnitStock

const NO_KEYS: ReadonlySet<string> = new Set()

/** An empty stock: the store decides every request. */
export const NO_STOCK: UnitStock = {
  take: () => undefined,
  verdictOf() {
    throw new Error('No units are held in advance here, so none was taken that could have a verdict.')
  },
  putBack: () => false,
  canDeferRelease: () => false,
  createDueUnitRequests: () => [],
  applyGrant: () => {},
  recordUse: () => {},
  giveBackIdle: () => false,
  isInUse: false,
  deferredKeys: NO_KEYS,
}
