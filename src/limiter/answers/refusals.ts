/**
 * Remembers refusals, so that an isolate can refuse the same caller again without a trip to the store.
 *
 * A remembered refusal is correct: until the retry time that the store has returned, the store would also refuse the same request,
 * or one with a higher cost, unless a limit is raised, reset or refunded meanwhile. Such changes take effect when the isolate checks
 * with the store again, after `rememberFor` at the latest. For a request with a higher cost, the retry time is a lower bound.
 *
 * An admission that uses up a rule is a refusal known in advance: its reply says until when the same cost would be refused, except for
 * windows that slide and for units in flight.
 *
 * Two kinds of refusals need more care:
 *
 *     too many bad credentials    is remembered for the address alone. Valid and bad credentials get the same reply, as they do from
 *                                 the store, so the reply does not show which guess was right. It is looked for before a lease is
 *                                 used, because only valid credentials have leases
 *     too many units in flight    can end at any time. It is remembered for 100 ms at most, and discarded as soon as a request of the
 *                                 same identity ends in this isolate. A refusal because the whole fleet is full is not remembered
 *
 * When `rememberFor` is over, one request asks the store again. The others are still refused until it has the answer.
 *
 * When the refusal itself is over, one request asks the store, and those that come meanwhile wait for its answer: it may be that the
 * store has units for only one of them. In a flood, each of them would make a trip.
 *
 * While the store does not answer, a refusal stays valid until its retry time, even after `rememberFor`. Otherwise the isolate would
 * admit by its own counts what the store has refused.
 *
 * If the clock of the machine is set back, all refusals are forgotten, so that no caller waits longer than the store has said. A step
 * back of up to 100 ms is not recognized, and delays the end of a refusal by as much.
 *
 * Only answers of the store are remembered, never decisions of the isolate. Plain data, bounded in number and time.
 */

import { latestOf } from '../../clock.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import type { RememberedCaller } from '../../credentials/caller-memory.ts'
import { Lru } from '../../lru.ts'
import {
  type BoundRule,
  type Evaluation,
  type Outcome,
  onlyEnforced,
  type Verdict,
} from '../../script/evaluation.ts'
import type { Switches } from '../../switches/switches.ts'
import { answerKeyOf, isConsistent, refusalAfter, repeatRefusal } from './validity.ts'

/** At which point a request looks for a refusal: before its trip, while it waits for its turn at the store, or after a failed trip. */
export type LookupPhase = 'before-trip' | 'waiting' | 'after-failure'

export interface RefusalMemory {
  /** ms; never decreases. */
  now(): number
  /**
   * Finds a refusal that is valid for the request.
   * @param switches that are in force now
   * @param recall returns the last answers of the store about the credential
   * @param phase default: `before-trip`
   * @returns the refusal, as the store would repeat it now; undefined: the store has to decide
   */
  find(
    evaluation: Evaluation,
    switches: Switches,
    recall?: () => RememberedCaller | undefined,
    phase?: LookupPhase,
  ): Outcome | undefined
  /**
   * How long a request should wait before it looks for a refusal again, because another one asks the store (ms). 0: it has to make a
   * trip.
   * @param switches that are in force now
   * @param looks how often the request has waited so far
   */
  pause(evaluation: Evaluation, switches: Switches, looks: number): number
  /**
   * Whether the store has refused the address of the request because of too many bad credentials, and would still refuse it. While this
   * is so, no lease may admit a request: the reply would show that its credential is valid.
   * @param switches that are in force now
   */
  hasTooManyGuesses(evaluation: Evaluation, switches: Switches): boolean
  /**
   * Remembers an outcome if it is a refusal, or an admission that leaves nothing. After an admission, discards the refusals that it
   * contradicts.
   * @param switches under which the request was bound
   * @param trip in which the store has decided
   */
  remember(evaluation: Evaluation, outcome: Outcome, switches: Switches, trip: TripTimes): void
  /**
   * Invalidates the refusals under these keys, also those of trips that have begun and not ended: their state was changed, or a request
   * in flight under them has ended.
   */
  forget(keys: readonly string[]): void
}

/** Times of a trip to the store (ms, by `RefusalMemory.now`). */
export interface TripTimes {
  /** When the request to the store was made. It may have waited for its turn afterwards. */
  begunAt: number
  /** The request was not sent before this time. */
  notSentBefore: number
  /** When the reply arrived; absent: when `remember` is called. */
  answeredAt?: number
}

interface Refusal {
  outcome: Outcome
  /** The cost of each rule, in their order. A request that costs less may be admitted. */
  costs: readonly number[]
  /** The state keys of the rules that have refused. */
  keys: readonly string[]
  switches: Switches
  trip: Readonly<Required<TripTimes>>
  /** ms */
  rememberedUntil: number
  /** Until when the store would refuse. */
  validUntil: number
  /** After `rememberedUntil`: the evaluation of the request that asks the store again, and from when on another may ask. */
  recheckBy: Evaluation | undefined
  recheckUntil: number
  /** After `validUntil`: when a request has asked the store. */
  askedAt?: number
}

/** About 1 kB each. The LRU keeps up to twice as many. */
const MAX_REFUSALS = 4000

/** How long a refusal can stay valid while the store does not answer (ms). */
const MAX_OUTAGE_MS = 60_000

/** After this time without an answer (ms), another request asks the store again. */
const RECHECK_TIMEOUT_MS = 1000

/**
 * How far the clock of a request that has just arrived can be behind that of another request (ms): the time in which the isolate was
 * busy with others.
 */
const MAX_CLOCK_LAG_MS = 100

/** Almost all trips take less time than this (ms). */
const MAX_TRIP_MS = 2000

/** The longest time that a request waits for the answer to another one (ms), without the time in which the isolate is late. */
const MAX_WAIT_MS = 250

/** The shortest pause between two looks (ms). */
const MIN_PAUSE_MS = 2

/** How many trips are compared to find the quickest. */
const COMPARED_TRIPS = 16

/** How long a refusal because of units in flight is remembered (ms). */
const IN_FLIGHT_REFUSAL_MS = 100

/**
 * Creates the memory of an isolate.
 * @param rememberForMs above 0
 * @param clock ms; should never decrease
 */
export function createRefusalMemory(rememberForMs: number, clock: () => number): RefusalMemory {
  const now = latestOf(clock, forgetAll)
  let refusals = new Lru<Refusal>({ size: MAX_REFUSALS })
  let forgotten = new Lru<number>({ size: MAX_REFUSALS })
  /** From this time on the memory is empty. A shortcut for most isolates, which have not refused a request lately. */
  let emptyFrom = Number.NEGATIVE_INFINITY
  /** Trips that have started up to this time may have started before the clock was set back (ms). */
  let trustedAfter = Number.NEGATIVE_INFINITY

  /** Of the last trips: the time of the store minus that of the isolate when the trip began (ms). */
  const leads: number[] = []
  let trips = 0

  /**
   * When the store has decided, by the clock of the isolate. In the quickest trips, that is at once: what another trip has taken longer
   * up to the decision is known from the clock of the store.
   * @param at by the clock of the store (µs)
   */
  function timeOfDecision(at: number, { notSentBefore, answeredAt }: Required<TripTimes>): number {
    const lead = at / 1e3 - notSentBefore
    leads[trips++ % COMPARED_TRIPS] = lead
    return Math.min(notSentBefore + lead - Math.min(...leads), answeredAt)
  }

  /** After the clock was set back, remembered refusals would last longer than the store has said. */
  function forgetAll(before: number, after: number): void {
    refusals = new Lru<Refusal>({ size: MAX_REFUSALS })
    forgotten = new Lru<number>({ size: MAX_REFUSALS })
    emptyFrom = Number.NEGATIVE_INFINITY
    trustedAfter = Math.min(before, after + MAX_TRIP_MS)
    leads.length = 0
  }

  /** A refusal that may be over. */
  function findKnown(
    answerKey: string,
    switches: Switches,
    recall?: () => RememberedCaller | undefined,
  ): Refusal | undefined {
    const refusal = refusals.get(answerKey)
    if (!refusal) return undefined
    const { outcome, keys, trip } = refusal
    const time = now()
    const isInvalid =
      time >= refusal.validUntil + MAX_WAIT_MS ||
      // The clock was set back.
      time < trip.answeredAt ||
      refusal.switches !== switches ||
      keys.some(key => (forgotten.peek(key) ?? -1) >= trip.begunAt) ||
      (recall && !isConsistent(outcome, recall()))
    if (!isInvalid) return refusal
    refusals.delete(answerKey)
    return undefined
  }

  /** The refusal that the store would repeat. It may be too old (`rememberedUntil`) to be used without a trip. */
  function findValid(
    answerKey: string,
    rules: readonly BoundRule[],
    switches: Switches,
    recall?: () => RememberedCaller | undefined,
  ): Refusal | undefined {
    const refusal = findKnown(answerKey, switches, recall)
    if (!refusal || now() >= refusal.validUntil) return undefined
    return rules.some(({ cost }, i) => cost < refusal.costs[i]!) ? undefined : refusal
  }

  function findUnder(
    answerKey: string,
    evaluation: Evaluation,
    rules: readonly BoundRule[],
    switches: Switches,
    recall: (() => RememberedCaller | undefined) | undefined,
    phase: LookupPhase,
  ): Outcome | undefined {
    const refusal = findValid(answerKey, rules, switches, recall)
    if (!refusal) return undefined
    const { outcome, costs, trip } = refusal
    const time = now()
    if (time >= refusal.rememberedUntil && phase !== 'after-failure') {
      // One request asks the store again. The others are still refused, or all of them would make a trip.
      if (refusal.recheckBy === evaluation) return undefined
      if (time >= refusal.recheckUntil) {
        refusal.recheckBy = evaluation
        refusal.recheckUntil = time + RECHECK_TIMEOUT_MS
        return undefined
      }
    }
    return repeatRefusal(outcome, Math.floor((time - trip.answeredAt) * 1e3), rules, costs)
  }

  /** Discards the refusals of a caller, because the store has admitted such a request. */
  function discardAll(evaluation: Evaluation): void {
    const { rules } = evaluation
    discard(answerKeyOf(rules, evaluation), rules)
    const guesses = rules.filter(isGuess)
    if (guesses.length > 0) discard(answerKeyOf(guesses), guesses)
  }

  /** A refusal of a higher cost may still be valid. If it is over, others would wait for an answer that has come. */
  function discard(answerKey: string, rules: readonly BoundRule[]): void {
    const refusal = refusals.peek(answerKey)
    if (!refusal) return
    const isContradicted = rules.every(({ cost }, i) => cost >= refusal.costs[i]!)
    if (isContradicted || now() >= refusal.validUntil) refusals.delete(answerKey)
  }

  return {
    now,

    find(evaluation, switches, recall, phase = 'before-trip') {
      // A request that has just arrived reads the current time, so an earlier time means that the clock was set back.
      if (now(phase === 'before-trip' ? MAX_CLOCK_LAG_MS : undefined) >= emptyFrom) return undefined
      const { rules, subject } = evaluation
      const guesses = subject && rules.filter(isGuess)
      return (
        (guesses?.length
          ? findUnder(answerKeyOf(guesses), evaluation, guesses, switches, undefined, phase)
          : undefined) ??
        findUnder(answerKeyOf(rules, evaluation), evaluation, rules, switches, recall, phase)
      )
    },

    pause(evaluation, switches, looks) {
      const time = now()
      if (time >= emptyFrom + MAX_WAIT_MS) return 0
      const refusal = findKnown(answerKeyOf(evaluation.rules, evaluation), switches)
      if (!refusal || time < refusal.validUntil) return 0
      const { notSentBefore, answeredAt } = refusal.trip
      const longest = Math.min(2 * (answeredAt - notSentBefore) + 2 * MIN_PAUSE_MS, MAX_WAIT_MS)
      const { askedAt = Number.NEGATIVE_INFINITY } = refusal
      const pauseMs = Math.max(MIN_PAUSE_MS, longest / 8)
      // While a flood keeps the isolate busy, pauses and the answer are late alike. So the pauses count, not the time.
      if (time < askedAt + longest && looks * pauseMs < longest) return pauseMs
      refusal.askedAt = time
      return 0
    },

    hasTooManyGuesses({ rules, subject }, switches) {
      // Most requests end here, without a read of the clock.
      if (!subject || !rules.some(isGuess) || now() >= emptyFrom) return false
      const guesses = rules.filter(isGuess)
      return findValid(answerKeyOf(guesses), guesses, switches) !== undefined
    },

    remember(evaluation, answer, switches, trip) {
      const { rules } = evaluation
      const isAdmitted = answer.status === 'admitted'
      // If a rule counts bad credentials, each of them must reach the store to be counted, so this answer is not remembered.
      const isCountedGuess = answer.status === 'unknown-credential' && answer.verdicts.length > 0
      if ((isAdmitted || isCountedGuess) && now() < emptyFrom + MAX_WAIT_MS) discardAll(evaluation)
      const outcome = isAdmitted ? refusalAfter(answer, rules) : answer
      if (!outcome || isCountedGuess) return
      const refusing = onlyEnforced(outcome.verdicts).filter(({ allowed }) => !allowed)
      // The fleet can have free capacity again at any moment.
      if (refusing.some(({ rule }) => rule.isSystemLimit)) return
      const { begunAt, notSentBefore, answeredAt = now() } = trip
      const decidedAt = timeOfDecision(answer.at, { begunAt, notSentBefore, answeredAt })
      const isGuessRefusal = refusing.some(isGuess)
      const remembered = isGuessRefusal ? rules.filter(isGuess) : rules
      const isInFlight = refusing.some(({ rule }) => countsInFlight(rule))
      const maxMs = isInFlight ? Math.min(IN_FLIGHT_REFUSAL_MS, rememberForMs) : rememberForMs
      const isKnown = outcome.verdicts.every(({ allowed, retryAfter }) => allowed || retryAfter !== 0)
      const wait = isKnown ? waitOf(refusing) : 0
      const rememberedUntil = decidedAt + Math.min(maxMs, wait)
      // A refusal without a refusing rule (a block, a bad credential) has no retry time.
      const retryAt =
        refusing.length > 0 ? decidedAt + Math.min(wait, MAX_OUTAGE_MS) : rememberedUntil + RECHECK_TIMEOUT_MS
      const validUntil = isInFlight ? rememberedUntil : retryAt
      if (begunAt <= trustedAfter || begunAt > answeredAt) return
      const names = new Set(refusing.map(({ rule }) => rule.name))
      refusals.set(answerKeyOf(remembered, isGuessRefusal ? undefined : evaluation), {
        outcome,
        costs: remembered.map(({ cost }) => cost),
        keys: remembered.filter(({ rule }) => names.has(rule.name)).map(({ key }) => key),
        switches,
        ...{ trip: { begunAt, notSentBefore, answeredAt }, rememberedUntil, validUntil },
        ...{ recheckBy: undefined, recheckUntil: 0 },
      })
      emptyFrom = Math.max(emptyFrom, validUntil)
    },

    forget(keys) {
      const time = now()
      for (const key of keys) forgotten.set(key, time)
    },
  }
}

const isGuess = ({ rule }: Pick<BoundRule | Verdict, 'rule'>) => rule.on === 'auth-failure'

/** The time until all rules would admit the same cost again (ms). Infinite if no rule has refused, or if one of them never admits it. */
function waitOf(refusing: readonly Verdict[]): number {
  const isForEver = refusing.length === 0 || refusing.some(({ retryAfter }) => retryAfter < 0)
  return isForEver
    ? Number.POSITIVE_INFINITY
    : Math.max(...refusing.map(({ retryAfter }) => retryAfter)) / 1e3
}
