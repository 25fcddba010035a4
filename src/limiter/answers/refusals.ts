/**
 * Remembers refusals, so that an isolate can refuse the same caller again without a trip to the store. Until the retry time that the
 * store has returned, it would also refuse the same request, or one with a higher cost, unless a limit is raised, reset or refunded
 * meanwhile. Such changes take effect when the isolate checks with the store again, after `rememberFor` at the latest.
 * docs/hot-callers.md describes what is remembered for how long.
 *
 *     an admission that uses up a rule   is a refusal known in advance: its reply says until when the same cost would be refused
 *     too many bad credentials           is remembered for the address alone, so the reply does not show which guess was right
 *     too many units in flight           can end at any time, so it is remembered for 100 ms at most
 *     `rememberFor` is over              one request asks the store again. The others are still refused until it has the answer
 *     the refusal itself is over         one request asks the store, and the others wait for its answer: it may be that the store has units
 *                                        for only one of them. In a flood, each of them would make a trip
 *     the store does not answer          the refusal stays valid until its retry time, or the isolate would admit by its own counts what
 *                                        the store has refused
 */
import { countsInFlight } from '../../config/compile-rule.ts'
import { type BoundRule, type Outcome, onlyEnforced, type Verdict } from '../../script/evaluation.ts'
import { refusesGuesses } from '../decision.ts'
import { isOnItsWay, MAX_WAIT_TRIPS, pauseFor } from './asked.ts'
import { answerKeyOf, type KnownAnswers, type KnownRequest, type Refusal } from './known.ts'
import { refusalAfter, repeatRefusal } from './outcomes.ts'

/** At which point a request looks for a refusal: before its trip, while it waits for its turn at the store, or after a failed trip. */
export type LookupPhase = 'before-trip' | 'waiting' | 'after-failure'

/** How long a refusal can stay valid while the store does not answer (ms). */
const MAX_OUTAGE_MS = 60_000

/** After this time without an answer (ms), another request asks the store again. */
const RECHECK_TIMEOUT_MS = 1000

/**
 * How far the clock of a request that has just arrived can be behind that of another request (ms): the time in which the isolate was
 * busy with others. A clock that was set back by less is not recognized, and delays the end of a refusal by as much.
 */
const MAX_CLOCK_LAG_MS = 100

/** The longest time that a request waits for the answer to another one (ms), without the time in which the isolate is late. */
const MAX_WAIT_MS = 250

/** The shortest pause between two looks (ms). */
const MIN_PAUSE_MS = 2

/** How many trips are compared to find the quickest. */
const COMPARED_TRIPS = 16

/** How long a refusal because of units in flight is remembered (ms). */
const IN_FLIGHT_REFUSAL_MS = 100

/** Where a request looks for a refusal. `recall` is what has to be consistent with it. */
interface Scope extends Pick<KnownRequest, 'demand' | 'recall'> {
  readonly key: string
  /** The rules whose costs matter. */
  readonly rules: readonly BoundRule[]
}

export type RefusalMemory = ReturnType<typeof createRefusalMemory>

/** Creates the memory of an isolate. @param rememberForMs above 0 */
export function createRefusalMemory(known: KnownAnswers, rememberForMs: number) {
  const { now } = known
  /** From this time on the memory is empty. A shortcut for most isolates, which have not refused a request lately. */
  let emptyFrom = Number.NEGATIVE_INFINITY
  /** Of the last trips: the time of the store minus that of the isolate when the trip began (ms). */
  let leads: number[] = []
  known.onSetBack = () => {
    emptyFrom = Number.NEGATIVE_INFINITY
    leads = []
  }

  /** A refusal that may be over. */
  function findRecent(scope: Scope, time: number): Refusal | undefined {
    const entry = known.find(scope.key)
    const refusal = entry?.refusal
    if (!refusal) return undefined
    const isRecent = time < refusal.validUntil + MAX_WAIT_MS
    if (isRecent && known.isValid(refusal, scope.recall, refusal.keys)) return refusal
    entry.refusal = undefined
    return undefined
  }

  /** The refusal that the store would repeat. It may be too old (`rememberedUntil`) to be used without a trip. */
  function findValid(scope: Scope, time: number): Refusal | undefined {
    const refusal = findRecent(scope, time)
    if (!refusal || time >= refusal.validUntil) return undefined
    return scope.rules.some(({ cost }, i) => cost < refusal.costs[i]!) ? undefined : refusal
  }

  function repeat(scope: Scope, time: number, phase: LookupPhase): Outcome | undefined {
    const refusal = findValid(scope, time)
    if (!refusal) return undefined
    const { outcome, costs, asked, answeredAt } = refusal
    if (time >= refusal.rememberedUntil && phase !== 'after-failure') {
      // One request asks the store again. The others are still refused, or all of them would make a trip.
      if (asked?.by === scope.demand) return undefined
      if (!isOnItsWay(asked, time, RECHECK_TIMEOUT_MS)) {
        ask(refusal, scope, time)
        return undefined
      }
    }
    return repeatRefusal(outcome, Math.floor((time - answeredAt) * 1e3), scope.rules, costs)
  }

  /** Discards the refusals of a caller, because the store has admitted such a request. */
  function discard(request: KnownRequest): void {
    const time = now()
    if (time >= emptyFrom + MAX_WAIT_MS) return
    for (const scope of [scopeOf(request), guessesOf(request)]) {
      const entry = scope && known.find(scope.key)
      if (!scope || !entry?.refusal) continue
      const { costs, validUntil } = entry.refusal
      // A refusal of a higher cost may still be valid. If it is over, others would wait for an answer that has come.
      const isContradicted = scope.rules.every(({ cost }, i) => cost >= costs[i]!)
      if (isContradicted || time >= validUntil) entry.refusal = undefined
    }
  }

  /**
   * When the store has decided, by the clock of the isolate. In the quickest trips, that is at once: what another trip has taken longer
   * up to the decision is known from the clock of the store.
   * @param at by the clock of the store (µs)
   */
  function timeOfDecision(at: number, notSentBefore: number, answeredAt: number): number {
    const lead = at / 1e3 - notSentBefore
    leads = [...leads.slice(1 - COMPARED_TRIPS), lead]
    return Math.min(notSentBefore + lead - Math.min(...leads), answeredAt)
  }

  /** @param refusing the verdicts of enforced rules that refuse @param rules whose costs matter */
  function toRefusal(
    outcome: Outcome,
    refusing: readonly Verdict[],
    rules: readonly BoundRule[],
    { switches, trip }: KnownRequest,
  ): Refusal {
    const { asOf, notSentBefore, answeredAt = now() } = trip!
    const decidedAt = timeOfDecision(outcome.at, notSentBefore, answeredAt)
    const isInFlight = refusing.some(({ rule }) => countsInFlight(rule))
    const maxMs = isInFlight ? Math.min(IN_FLIGHT_REFUSAL_MS, rememberForMs) : rememberForMs
    const isKnown = outcome.verdicts.every(({ allowed, retryAfter }) => allowed || retryAfter !== 0)
    const wait = isKnown ? waitOf(refusing) : 0
    const rememberedUntil = decidedAt + Math.min(maxMs, wait)
    // A refusal without a refusing rule (a block, a bad credential) has no retry time.
    const retryAt =
      refusing.length > 0 ? decidedAt + Math.min(wait, MAX_OUTAGE_MS) : rememberedUntil + RECHECK_TIMEOUT_MS
    const names = new Set(refusing.map(({ rule }) => rule.name))
    return {
      ...{ outcome, switches, asOf, answeredAt, tripMs: answeredAt - notSentBefore, rememberedUntil },
      validUntil: isInFlight ? rememberedUntil : retryAt,
      costs: rules.map(({ cost }) => cost),
      keys: rules.filter(({ rule }) => names.has(rule.name)).map(({ key }) => key),
    }
  }

  return {
    /** Finds a refusal for the request. @returns it as the store would repeat it now; undefined: the store has to decide */
    find(request: KnownRequest, phase: LookupPhase): Outcome | undefined {
      // A request that has just arrived reads the current time, so an earlier time means that the clock was set back.
      const time = now(phase === 'before-trip' ? MAX_CLOCK_LAG_MS : undefined)
      if (time >= emptyFrom) return undefined
      const guesses = guessesOf(request)
      return (guesses && repeat(guesses, time, phase)) ?? repeat(scopeOf(request), time, phase)
    },

    /**
     * Whether the store has refused the address of the request because of too many bad credentials, and would still refuse it. While
     * this is so, no lease may admit a request: the reply would show that its credential is valid.
     */
    hasTooManyGuesses(request: KnownRequest): boolean {
      const { rules, subject } = request.demand
      // Most requests end here, without a read of the clock.
      if (!subject || !rules.some(isGuess)) return false
      const time = now()
      return time < emptyFrom && findValid(guessesOf(request)!, time) !== undefined
    },

    /** How long the request should wait for the answer to another one, and then look again (ms). 0: it has to make a trip. */
    pauseBeforeTrip(request: KnownRequest): number {
      const time = now()
      if (time >= emptyFrom + MAX_WAIT_MS) return 0
      const refusal = findRecent(scopeOf(request), time)
      if (!refusal || time < refusal.validUntil) return 0
      const tripMs = Math.min(refusal.tripMs + MIN_PAUSE_MS, MAX_WAIT_MS / MAX_WAIT_TRIPS)
      const { asked } = refusal
      const pauseMs = isOnItsWay(asked, time, MAX_WAIT_TRIPS * tripMs)
        ? pauseFor(request, asked, tripMs, Math.max(MIN_PAUSE_MS, tripMs / 4))
        : 0
      if (pauseMs === 0) ask(refusal, request, time)
      return pauseMs
    },

    /**
     * Remembers the outcome of a trip if it is a refusal, or an admission that leaves nothing. After an admission, discards the refusals
     * that it contradicts.
     */
    remember(request: KnownRequest, answer: Outcome): void {
      // The limiter remembers pauses (set-ups/limits/known-pauses.ts).
      if (answer.pausedUntil !== undefined) return
      const isAdmitted = answer.status === 'admitted'
      // If a rule counts bad credentials, each of them must reach the store to be counted, so this answer is not remembered.
      const isCountedGuess = answer.status === 'unknown-credential' && answer.verdicts.length > 0
      if (isAdmitted || isCountedGuess) discard(request)
      const refused = isAdmitted ? refusalAfter(answer, request.demand.rules) : answer
      if (!refused || isCountedGuess) return
      const guesses = refusesGuesses(refused.verdicts) ? guessesOf(request) : undefined
      // All callers of the address share this refusal, so it has nothing of this one: neither its limits nor how long they refuse.
      const outcome: Outcome = guesses
        ? { status: 'refused', plan: '', at: refused.at, verdicts: refused.verdicts.filter(isGuess) }
        : refused
      const refusing = onlyEnforced(outcome.verdicts).filter(({ allowed }) => !allowed)
      // The fleet can have free capacity again at any moment.
      if (refusing.some(({ rule }) => rule.isSystemLimit)) return
      const scope = guesses ?? scopeOf(request)
      const refusal = toRefusal(outcome, refusing, scope.rules, request)
      const entry = known.find(scope.key) ?? known.add(scope.key)
      entry.refusal = refusal
      emptyFrom = Math.max(emptyFrom, refusal.validUntil)
    },
  }
}

/** Notes that a request asks the store again. The others can all wait for its answer. */
function ask(refusal: Refusal, { demand }: Pick<KnownRequest, 'demand'>, at: number): void {
  refusal.asked = { at, by: demand, places: Number.POSITIVE_INFINITY }
}

function scopeOf({ demand, recall }: KnownRequest): Scope {
  return { demand, recall, key: answerKeyOf(demand.rules, demand), rules: demand.rules }
}

/** The scope of a refusal because of too many bad credentials: the address alone, whatever is known about the credential. */
function guessesOf({ demand }: KnownRequest): Scope | undefined {
  const rules = demand.subject ? demand.rules.filter(isGuess) : []
  return rules.length === 0 ? undefined : { demand, key: answerKeyOf(rules), rules }
}

const isGuess = ({ rule }: Pick<BoundRule | Verdict, 'rule'>) => rule.on === 'auth-failure'

/** The time until all rules would admit the same cost again (ms). Infinite if no rule has refused, or if one of them never admits it. */
function waitOf(refusing: readonly Verdict[]): number {
  const isForEver = refusing.length === 0 || refusing.some(({ retryAfter }) => retryAfter < 0)
  if (isForEver) return Number.POSITIVE_INFINITY
  return Math.max(...refusing.map(({ retryAfter }) => retryAfter)) / 1e3
}
