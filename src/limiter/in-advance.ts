/** Units that are held in advance (stock.ts), as the rest of the limiter knows them. Only where a config has such rules is the stock there. */
import type { MessageAnswer } from '../algorithms/concurrency.ts'
import type { BoundRule, Verdict } from '../script/evaluation.ts'
import type { Message } from '../script/sync.ts'
import type { Claim, Holdings } from './holdings.ts'

export interface InAdvance {
  /** A unit for a request; undefined: it has to ask the store. */
  take(rule: BoundRule): Claim | undefined
  /** What the store would have said of a unit that was taken. */
  verdictOf(rule: BoundRule): Verdict
  /** Takes back a unit whose request is over. @returns whether it stays here */
  putBack(claim: Claim): boolean
  /** Whether the end of a unit may wait for the next question. */
  mayWait(claim: Claim): boolean
  /** Questions whose time has come, to go with a request to the store. */
  questions(): Message[]
  /** @param received the answer of the store; undefined: it is lost */
  answer(message: Message, received: MessageAnswer | undefined): void
  /** How the store has decided on a request that did not find a unit here. */
  learn(rule: BoundRule, verdict: Verdict): void
  /** Gives back what no request has used lately. @returns whether something may have to be given back later */
  giveBackIdle(): boolean
  /** Whether units are held in advance, or may soon be. */
  readonly isInUse: boolean
  /** Keys whose endings wait for the next question. */
  readonly waiting: ReadonlySet<string>
}

/** @param now ms */
export type CreateStock = (holdings: Holdings, now: () => number) => InAdvance

const NONE: ReadonlySet<string> = new Set()

/** Every request asks. */
export const NO_STOCK: InAdvance = {
  take: () => undefined,
  verdictOf() {
    throw new Error('No unit was taken.')
  },
  putBack: () => false,
  mayWait: () => false,
  questions: () => [],
  answer: () => {},
  learn: () => {},
  giveBackIdle: () => false,
  isInUse: false,
  waiting: NONE,
}
