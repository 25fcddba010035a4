/**
 * The refusals that an isolate remembers, so that a caller that was refused is refused again without a trip to the store.
 *
 * A remembered refusal is true: until the retry time that the store has named, the same request, or one that costs more, would be
 * refused by the store as well, unless a limit is raised, reset or refunded meanwhile. Such changes reach the isolate when the memory
 * ends, after `rememberFor` at the latest. For a request that costs more the retry time is a lower bound.
 *
 * Two refusals need more care:
 *
 *     by a rule that counts guesses    is remembered by the address alone, whatever credential comes next: good and bad ones get
 *                                      the same reply, as they do from the store
 *     by what is in flight             can end at any time, so it is kept for a tenth of a second, and dropped as soon as a request of
 *                                      that identity ends in this isolate. A fleet that is full is not remembered at all
 *
 * When the memory ends, one request asks the store again, and the others are refused until it has the answer.
 *
 * While the store does not answer, a refusal counts until its retry time, also after `rememberFor`: otherwise the isolate would admit by
 * its own counts what the store has refused.
 *
 * Only what the store has said is remembered, never what the isolate has decided by itself. Plain data, bounded in number and time.
 */
import { latestOf } from '../clock.ts'
import type { RememberedCaller } from '../credentials/caller-memory.ts'
import { Lru } from '../lru.ts'
import {
  type BoundRule,
  type Evaluation,
  enforced,
  type Outcome,
  type Verdict,
} from '../script/evaluation.ts'
import type { Switches } from '../switches/switches.ts'
import { aged, agrees, nameOf } from './answer-validity.ts'

/**
 * When a request asks what is remembered: before anything else, while it waits for its turn at the store, or after the store has not
 * answered.
 */
export type When = 'first' | 'waiting' | 'last'

export interface RefusalMemory {
  /** ms; only ever grows. */
  now(): number
  /**
   * @param switches that are in force now
   * @param recall the last answers of the store about the credential
   * @param when as below; `first` by default
   * @returns what the store has said, with its times counted down; undefined: the store has to be asked
   */
  find(
    evaluation: Evaluation,
    switches: Switches,
    recall?: () => RememberedCaller | undefined,
    when?: When,
  ): Outcome | undefined
  /**
   * Remembers an outcome if it refuses.
   * @param switches that it was asked under
   * @param askedAt when the request to the store began (ms, by `now`)
   */
  keep(evaluation: Evaluation, outcome: Outcome, switches: Switches, askedAt: number): void
  /** What is stored under these keys was changed, or something in flight under them has ended. */
  forget(keys: readonly string[], what: 'changed' | 'ended'): void
}

interface Refusal {
  outcome: Outcome
  /** Of each rule, in their order. */
  costs: readonly number[]
  /** That the rules which refused count under. */
  keys: readonly string[]
  switches: Switches
  /** ms */
  askedAt: number
  answeredAt: number
  endsAt: number
  /** Until when the store would refuse. */
  trueUntil: number
  /** After `endsAt`: until when one request asks again. */
  asksUntil: number
}

/** Some 1 kB each; up to twice as many are kept. */
const MOST_REFUSALS = 4000

/** While the store does not answer, a refusal counts no longer (ms). */
const LONGEST_MS = 60_000

/** A question without an answer for so long is lost (ms). */
const LOST_MS = 1000

/** How long a refusal by what is in flight is remembered (ms). */
const IN_FLIGHT_MS = 100

/**
 * One for an isolate.
 * @param rememberForMs above 0
 * @param clock ms; should only ever grow
 */
export function createRefusalMemory(rememberForMs: number, clock: () => number): RefusalMemory {
  const now = latestOf(clock)
  const refusals = new Lru<Refusal>({ size: MOST_REFUSALS })
  const forgotten = new Lru<number>({ size: MOST_REFUSALS })
  /** Until when something is remembered at all: most isolates have refused no request lately. */
  let endsAt = Number.NEGATIVE_INFINITY

  function read(
    name: string,
    rules: readonly BoundRule[],
    switches: Switches,
    seen: (() => RememberedCaller | undefined) | undefined,
    when: When,
  ): Outcome | undefined {
    const refusal = refusals.get(name)
    if (!refusal) return undefined
    const { outcome, costs, keys, askedAt, answeredAt } = refusal
    const time = now()
    const isOver =
      time >= refusal.trueUntil ||
      // The clock was set back.
      time < answeredAt ||
      refusal.switches !== switches ||
      keys.some(key => (forgotten.peek(key) ?? -1) >= askedAt) ||
      (seen && !agrees(outcome, seen()))
    if (isOver) {
      refusals.delete(name)
      return undefined
    }
    if (rules.some(({ cost }, i) => cost < costs[i]!)) return undefined
    if (time >= refusal.endsAt && when !== 'last') {
      // One request asks again, and the others wait for no answer: otherwise all that come meanwhile would ask.
      if (when === 'waiting') return undefined
      if (time >= refusal.asksUntil) {
        refusal.asksUntil = time + LOST_MS
        return undefined
      }
    }
    return aged(outcome, Math.floor((time - answeredAt) * 1e3))
  }

  /** The store has admitted the request. What costs more may still be refused. */
  function drop(name: string, rules: readonly BoundRule[]): void {
    const refusal = refusals.peek(name)
    if (refusal && rules.every(({ cost }, i) => cost >= refusal.costs[i]!)) refusals.delete(name)
  }

  return {
    now,

    find(evaluation, switches, recall, when = 'first') {
      if (now() >= endsAt) return undefined
      const { rules, subject } = evaluation
      const guesses = subject && rules.filter(isGuess)
      return (
        (guesses?.length ? read(nameOf(guesses), guesses, switches, undefined, when) : undefined) ??
        read(nameOf(rules, evaluation), rules, switches, recall, when)
      )
    },

    keep(evaluation, outcome, switches, askedAt) {
      const { rules } = evaluation
      const { status, verdicts } = outcome
      const refusing = enforced(verdicts).filter(({ allowed }) => !allowed)
      // A bad credential is a guess wherever something counts guesses.
      if (status === 'admitted' || (status === 'unknown-credential' && verdicts.length > 0)) {
        if (now() >= endsAt) return
        drop(nameOf(rules, evaluation), rules)
        const guesses = rules.filter(isGuess)
        if (guesses.length > 0) drop(nameOf(guesses), guesses)
        return
      }
      // The fleet can have room again at any moment.
      if (refusing.some(({ rule }) => rule.isSystemLimit)) return
      const isOfGuesses = refusing.some(isGuess)
      const remembered = isOfGuesses ? rules.filter(isGuess) : rules
      const isInFlight = refusing.some(({ rule }) => rule.counting.state === 'held')
      const most = isInFlight ? Math.min(IN_FLIGHT_MS, rememberForMs) : rememberForMs
      const wait = waitOf(refusing)
      const until = askedAt + Math.min(most, wait)
      // What no rule has refused has no retry time.
      const longest = refusing.length > 0 ? askedAt + Math.min(wait, LONGEST_MS) : until + LOST_MS
      const trueUntil = isInFlight ? until : longest
      const answeredAt = now()
      if (until <= answeredAt) return
      const names = new Set(refusing.map(({ rule }) => rule.name))
      refusals.set(nameOf(remembered, isOfGuesses ? undefined : evaluation), {
        outcome,
        costs: remembered.map(({ cost }) => cost),
        keys: remembered.filter(({ rule }) => names.has(rule.name)).map(({ key }) => key),
        switches,
        ...{ askedAt, answeredAt, endsAt: until, trueUntil, asksUntil: 0 },
      })
      endsAt = Math.max(endsAt, trueUntil)
    },

    forget(keys, what) {
      const time = now()
      // A change may also make a refusal untrue that is still to come.
      if (time < endsAt || what === 'changed') for (const key of keys) forgotten.set(key, time)
    },
  }
}

const isGuess = ({ rule }: Pick<BoundRule | Verdict, 'rule'>) => rule.on === 'auth-failure'

/** ms until all of them would admit the same cost again; a refusal by no rule, or for ever, has no end of its own. */
function waitOf(refusing: readonly Verdict[]): number {
  const isForEver = refusing.length === 0 || refusing.some(({ retryAfter }) => retryAfter < 0)
  return isForEver
    ? Number.POSITIVE_INFINITY
    : Math.max(...refusing.map(({ retryAfter }) => retryAfter)) / 1e3
}
