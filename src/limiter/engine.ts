/**
 * The engine that all edges share. An edge passes in a demand and gets `{ decision, finish }`. It calls `finish` once, when the
 * request is over. The steps of one decision:
 *
 *     bind                    the rules under the live switches
 *     answer without a trip   from leased units, or by a remembered refusal
 *     trip                    the store evaluates all rules, and the riders travel with it (src/trips); once more for an opaque test key
 *     complete                apply the switches that came with the reply; without a reply, each rule's fallback decides
 *     schedule                wait in the background for the trips that riders need
 *     finish                  end what the request has in the store (keeper.ts): release units in flight, settle reserved units
 *
 * `decide` never throws, unless the call has a guard (call-guard.ts). An error in limiting code is handled like a failure of the store.
 */
import type { Background } from '../background.ts'
import type { Config } from '../config/compile.ts'
import { isAdmitted } from '../credentials/caller-memory.ts'
import type { DecideVerb } from '../script/decide.ts'
import type { Evaluation, Outcome } from '../script/evaluation.ts'
import { isolateSleep } from '../store/lag.ts'
import type { Store } from '../store/store.ts'
import { refreshSwitches } from '../switches/live.ts'
import type { Switches } from '../switches/switches.ts'
import { createTrips, type Trips } from '../trips/trips.ts'
import type { Answer } from './answers/answers.ts'
import { applyNewerSwitches, markKillSwitch } from './apply-switches.ts'
import { bindRules, type Demand } from './bind.ts'
import { createChange } from './change.ts'
import { toDecision } from './decision.ts'
import type { BrokenDemand, Decided, DecideOptions, Ending, Engine, EngineOptions } from './engine-shape.ts'
import { type Degraded, evaluate, toDegraded } from './evaluate.ts'
import type { Stake, UndecidedRequest } from './keeper.ts'
import { decideWithoutCounting, fallBack } from './outage/fallback.ts'
import type { Settling } from './reservations/reservation.ts'

/** A request while it is decided. */
interface Attempt extends UndecidedRequest, Pick<DecideOptions, 'recall' | 'line' | 'guard'> {
  verb: DecideVerb
  /** Under which the request was bound. */
  switches: Switches
  /** What the isolate may answer without a trip. */
  answer: Answer | undefined
  /** What the request has in the store until it is over. */
  stake?: Stake | undefined
}

/** A decision, before the edge gets it. */
interface Made extends Pick<Decided, 'decision' | 'outcome'>, Partial<Pick<Decided, 'at'>> {
  stake?: Stake | undefined
}

/**
 * Creates the engine of an isolate. It keeps only plain data between requests.
 * @param bareStore the store, without the queue, the breaker and the riders
 */
export function createEngine(
  config: Partial<Pick<Config, 'breaker' | 'tripLimit'>>,
  bareStore: Store,
  options: EngineOptions,
): Engine & { readonly trips: Trips } {
  const { clock, decideAt, board, switchName, onCluster, onFinish, signals = [] } = options
  const { local, keeper, answers, guesses, timer, sleep = isolateSleep } = options
  const now = () => clock.now()
  const trips = createTrips(bareStore, {
    // Their calls follow this order. Settlements come before hand-overs, because the units that they give back make room for those.
    riders: [
      board,
      keeper?.firstRider,
      local?.handOvers,
      keeper?.rider,
      answers?.returns,
      guesses?.rider,
      ...signals,
    ],
    ...{ breaker: config.breaker, tripLimit: config.tripLimit, probe: options.probe },
    ...{ onStoreChange: options.onStoreChange, now, timer, sleep },
  })
  const { store } = trips
  const fallback = { credentials: options.credentials, local, store }

  async function decideWith(verb: DecideVerb, demand: Demand, options: DecideOptions): Promise<Decided> {
    const startedAt = now()
    const wasOverdue = board.isOverdue()
    const made = await makeDecision(verb, demand, options)
    const { outcome, at = outcome?.at ?? 0 } = made
    const started = withFinish(made, options.background)
    trips.schedule(options.background)
    if (wasOverdue) await refreshSwitches(board, trips, options)
    return { ...started, ...(outcome && { outcome }), at, storeMs: now() - startedAt }
  }

  async function makeDecision(verb: DecideVerb, demand: Demand, options: DecideOptions): Promise<Made> {
    let attempt: Attempt | undefined
    try {
      attempt = bind(verb, demand, options)
      const made = await decideAttempt(attempt)
      if ('decision' in made) return made
      // Only the store knew the mode of the key. The rules were bound for another mode, and the store has spent nothing.
      attempt = undefined
      const again = demand.inMode?.(made.mode!, made.consumer)
      return again ? await makeDecision(verb, again, options) : { decision: toDecision(made) }
    } catch (error) {
      const stake = attempt?.stake
      stake?.markUndecided('may-have-run')
      // If the store has admitted the request before the exception, that is given back: the fallbacks decide it instead.
      stake?.keep(trips, options.background)?.(() => 0)
      options.guard?.passFailure(toDegraded(error))
      const candidates = demand.rules.map(({ rule }) => rule)
      return { decision: decideUncounted({ ...demand, candidates, error }, options.recall) }
    }
  }

  function bind(verb: DecideVerb, demand: Demand, options: DecideOptions): Attempt {
    const { rules, subject, plan, ruleSet, failure } = demand
    const { guard, asksStore } = options
    const switches = board.current()
    const bound = bindRules(rules, switches, switchName, now())
    const evaluation = { ruleSet, plan, rules: bound, ...(subject && { subject }) }
    const isPlain = verb === 'decide' && !failure
    const isKnown = !asksStore && (guard === undefined || guard.isFresh())
    const answer =
      isPlain && isKnown ? answers?.forRequest({ ...options, demand: evaluation, switches }) : undefined
    return { ...options, verb, evaluation, switches, failure, answer }
  }

  /** @returns an outcome with the status `other-mode` if the rules have to be bound again */
  async function decideAttempt(attempt: Attempt): Promise<Made | Outcome> {
    const { answer } = attempt
    let known: Made | undefined = answer?.decideBeforeTrip()
    // Requests share no promise, so each one checks by itself whether an answer that is on its way has come. Nothing may be awaited
    // between the last check and `beginTrip`: of several requests at once, the first one asks the store, and the others wait.
    while (answer && !known) {
      const pauseMs = answer.pauseBeforeTrip()
      if (pauseMs === 0) break
      await sleep(pauseMs)
      known = answer.decideAfterWait()
    }
    return known ?? (await decideByTrip(attempt))
  }

  async function decideByTrip(attempt: Attempt): Promise<Made | Outcome> {
    const { verb, failure, answer, recall, line, guard } = attempt
    const decides = verb === 'decide'
    attempt.stake = decides ? keeper?.stakeOf(attempt) : undefined
    const evaluation: Evaluation = {
      ...attempt.evaluation,
      ...attempt.stake?.forStore,
      ...(answer && { wantedRequests: answer.beginTrip() }),
      ...(decideAt && { now: decideAt() }),
    }
    const endTrip = decides && !failure ? local?.beginTrip(evaluation) : undefined
    const reply = failure
      ? toDegraded(failure)
      : await evaluate(guard?.on(store) ?? store, evaluation, {
          ...{ verb, onCluster, undoStore: trips.storeWithoutQueue, now },
          isCallerKnown: () => isAdmitted(recall?.()),
          listener: { line, isNoLongerNeeded: answer?.isNoLongerNeeded, noteArrival: answer?.noteArrival },
        })
    endTrip?.()
    if (reply.status === 'other-mode') {
      attempt.stake?.resolve(reply)
      answer?.endTrip(undefined)
      return reply
    }
    return reply.status === 'degraded'
      ? await completeWithoutStore(attempt, evaluation, reply)
      : complete(attempt, evaluation, reply)
  }

  function complete(attempt: Attempt, evaluation: Evaluation, reply: Outcome): Made {
    const { answer, stake, switches } = attempt
    stake?.resolve(reply)
    const latest = board.current()
    local?.noteReport(evaluation.rules, reply)
    const outcome = answer?.endTrip(reply) ?? reply
    // The store has nothing left, but it has already counted the units that were leased before.
    const isSpent = outcome.status === 'refused' && outcome.pausedUntil === undefined
    const leased = isSpent ? answer?.decideAfterRefusal() : undefined
    if (leased) return leased
    const underLatest =
      latest === switches ? outcome : applyNewerSwitches(outcome, evaluation, latest, switchName)
    // Under the kill switch the request was bound without rules. The decision stays marked, even if the switch was turned off during the trip.
    const decision = markKillSwitch(toDecision(underLatest), switches.kill ? switches : latest)
    return { decision, outcome, stake }
  }

  async function completeWithoutStore(attempt: Attempt, evaluation: Evaluation, degraded: Degraded) {
    const { verb, answer, stake, recall, guard } = attempt
    answer?.endTrip(undefined)
    const seen = recall?.()
    const rules = stake?.markUndecided(degraded.fate, seen)
    const withHeld = rules ? { ...evaluation, rules } : evaluation
    guard?.passFailure(degraded)
    // While this request waited, another one may have received an answer that also decides this one.
    const known = answer?.decideAfterFailure()
    const decision = known?.decision ?? fallBack(withHeld, degraded, seen, fallback, verb)
    if (!known) stake?.holdLocally(decision)
    // The request is refused, or a lease has paid for it: undo what some slots of a cluster have counted.
    if (known || decision.kind !== 'allowed') await degraded.inPart?.undo()
    return known ?? { decision, stake }
  }

  const decideUncounted = (demand: BrokenDemand, recall: DecideOptions['recall']) =>
    decideWithoutCounting(demand, board.current(), switchName, recall, fallback)

  function withFinish({ decision, stake }: Made, background: Background) {
    let isFinished = false
    const end = stake?.keep(trips, background)
    return {
      ...{ decision, stake },
      awaitsEnding: end !== undefined || onFinish !== undefined,
      finish(ending: Ending, settling?: Settling, isFollowed?: boolean) {
        if (isFinished) return
        isFinished = true
        end?.(settling, isFollowed)
        onFinish?.(decision, ending)
      },
    }
  }

  function keepFresh(options: DecideOptions): void {
    trips.schedule(options.background)
    void refreshSwitches(board, trips, options)
  }

  return {
    decide: (demand, options) => decideWith('decide', demand, options),
    peek: (demand, options) => decideWith('peek', demand, options),

    noteGuess: guesses?.note,

    decideBroken(demand, { recall, background }) {
      // Without a demand this request makes no trip, and the kill switch must still reach the isolate.
      keepFresh({ background })
      return { ...withFinish({ decision: decideUncounted(demand, recall) }, background), at: 0, storeMs: 0 }
    },

    change: createChange(trips, answers, local),

    async stop() {
      await answers?.giveBack?.(trips.sendAlone)
      await trips.sendRest([local?.handOvers, keeper?.rider])
    },

    keepFresh,
    trips,

    awaitsEndings: onFinish !== undefined || keeper !== undefined,
  }
}
