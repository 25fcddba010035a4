/**
 * The engine that all edges share. An edge passes in a demand and gets `{ decision, finish }`. It calls `finish` once, when the
 * request is over. The steps of one decision:
 *
 *     1. bind the rules under the live switches
 *     2. decide from a lease or a remembered refusal, or evaluate the rules in the store
 *     3. apply the switches that came with the reply; if the store did not answer, fall back to each rule's failure policy
 *     4. maintain: probe the store, hand over local counts, refresh the switches
 *
 * `decide` never throws. An error in limiting code is handled like a failure of the store.
 */
import { type Background, detached } from '../background.ts'
import type { Clock, Sleep } from '../clock.ts'
import type { Config } from '../config/compile.ts'
import type { Rule } from '../config/compile-rule.ts'
import type { RememberedCaller } from '../credentials/caller-memory.ts'
import type { DecideVerb } from '../script/decide.ts'
import type { Outcome } from '../script/evaluation.ts'
import type { ChangeResult } from '../script/refund.ts'
import { type StoreChange, withBreaker } from '../store/breaker.ts'
import { withInFlightLimit } from '../store/in-flight.ts'
import { isolateSleep } from '../store/lag.ts'
import type { Store } from '../store/store.ts'
import { type SwitchBoard, withSwitches } from '../switches/live.ts'
import { applyNewerSwitches, isEnforcedForAny, markKillSwitch } from './apply-switches.ts'
import { bindRules, type Demand, type SwitchName } from './bind.ts'
import type { Claims } from './claims.ts'
import { type Decision, toDecision } from './decision.ts'
import { catchFailure, type Degraded, type EvaluateOnCluster, evaluate, toDegraded } from './evaluate.ts'
import { admitsUncounted } from './failure-policy.ts'
import { fallBack, NO_LOCAL_LIMITER } from './fallback.ts'
import type { HoldingsKeeper } from './keep-holdings.ts'
import type { createLocalLimiter } from './local.ts'
import type { OwnAnswers } from './own-answers.ts'
import { type PreparedCall, runCall } from './prepared-call.ts'

/** How the admitted work has ended. */
export type Ending =
  /** The work is complete, or the request was refused, and the caller has not disconnected. */
  | 'complete'
  /** The caller disconnected, or stopped reading. */
  | 'cancelled'
  /** The work was aborted, or a step threw. */
  | 'failed'

/** A decision, and what the edge has to do with it. */
export interface Decided {
  decision: Decision
  /** The evaluation behind the decision. Absent if it comes from a lease, a remembered refusal or the failure policies. */
  outcome?: Outcome
  /** When the store decided the request or spent its leased units, by its own clock (µs); 0 for all other decisions. */
  at: number
  /** How long the decision took, including the trip to the store (ms). */
  storeMs: number
  /** Whether the edge has to observe the end of this request, because something depends on how and when it ends. */
  awaitsEnding: boolean
  /**
   * Ends the request. The edge calls it once for each decision, also when a later step throws. Only the first call has an
   * effect.
   */
  finish(ending: Ending): void
}

/** What an edge provides beside the demand. */
export interface DecideOptions {
  background: Background
  /** Returns the last answers of the store about the credential. */
  recall?: () => RememberedCaller | undefined
  /** Whether to wait for a separate read of overdue switches. By default it runs in the background. */
  awaitsSwitches?: boolean
}

/** The input for a request whose demand could not be built, because an exception was thrown. */
export interface BrokenDemand extends Pick<Demand, 'subject' | 'policy'> {
  /** The rules that may apply to the request. */
  candidates: readonly Rule[]
  error: unknown
}

export interface Engine {
  /** Decides all rules of the demand together, and spends if the request is admitted. Never throws. */
  decide(demand: Demand, options: DecideOptions): Promise<Decided>
  /** Decides without a demand: nothing is counted, and enforced rules with the failure policy `closed` refuse. */
  decideBroken(demand: BrokenDemand, options: DecideOptions): Decided
  /** Returns what `decide` would return, and spends nothing. */
  peek(demand: Demand, options: DecideOptions): Promise<Decided>
  /**
   * Changes what has been spent: `prepareRefund` gives back what one request has spent, `prepareReset` makes the whole budget
   * available again (prepared-call.ts). Live switches do not apply. The edge prepares the call, so that a Worker does not carry
   * scripts that it never uses.
   * @returns the state after the change, or the cause if the store failed
   */
  change(
    verb: 'refund' | 'reset',
    preparedCall: PreparedCall<ChangeResult>,
    background: Background,
  ): Promise<ChangeResult | Degraded>
  /** Gives back all leased units, before the isolate stops. Afterwards the store decides each request. */
  stop(): Promise<void>
  /**
   * For a request that was refused without a decision. Trips keep the switches and the measurements fresh; this refreshes them
   * where no request makes a trip.
   */
  keepFresh(options: DecideOptions): void
  /**
   * Whether anything can depend on how and when admitted requests end. If not, an edge calls `finish` as soon as it passes on
   * the reply, because observing a proxied response takes a fifth to a third more CPU.
   */
  readonly awaitsEndings: boolean
}

export interface EngineOptions {
  clock: Clock
  /** The time to decide by (µs). Absent, as always in production: the clock of the store. */
  decideAt?: (() => number) | undefined
  /** The live switches that the engine follows. */
  board: SwitchBoard
  /** Returns the name under which a rule is switched. */
  switchName: SwitchName
  /** The failure policy for credentials that cannot be checked. */
  credentials: Config['credentials']['onStoreFailure']
  /** Checks whether a store that has failed can decide again (probe.ts). */
  probe(store: Store): Promise<void>
  /** Evaluates over several slots. Required if the store is a cluster. */
  onCluster?: EvaluateOnCluster | undefined
  onStoreChange?: ((change: StoreChange) => void) | undefined
  /** Called once for each decision. */
  onFinish?: ((decision: Decision, ending: Ending) => void) | undefined
  /** Creates the limiter that counts in the isolate while the store does not answer. Not needed if all rules are `closed`. */
  createLocal?: typeof createLocalLimiter | undefined
  /** The units in flight that the isolate holds. Needed if a rule counts units in flight. */
  holdingsKeeper?: HoldingsKeeper | undefined
  /** Decides without a trip where possible. Absent: the store decides each request. */
  ownAnswers?: OwnAnswers | undefined
  /** Used by requests that wait for their turn at the store, or for leased units; tests pass their own. */
  sleep?: Sleep | undefined
  /** The measurements of the origin. Needed if load shedding or an adaptive limit follows them. */
  originLoad?: EngineLoad | undefined
}

/** The part of the origin's load that the engine uses (src/edges/http/origin-load.ts). */
export interface EngineLoad {
  /** The current limit of a rule whose limit adapts; undefined for a fixed limit. */
  limitOf(rule: Rule): number | undefined
  /** Wraps the store: measurements travel with the requests of decisions. */
  withReports(store: Store): Store
  /** Sends a report in the background if no decision has carried one for too long. */
  keepFresh(store: Store, background: Background): void
}

/**
 * Creates the engine of an isolate. It keeps only plain data between requests.
 * @param bareStore the store, without the breaker and the other layers that the engine adds
 */
export function createEngine(
  config: Pick<Config, 'localShare'> & Partial<Pick<Config, 'breaker' | 'inFlight'>>,
  bareStore: Store,
  {
    clock,
    decideAt,
    board,
    switchName,
    credentials,
    probe,
    onCluster,
    onStoreChange,
    onFinish,
    createLocal,
    holdingsKeeper,
    ownAnswers,
    sleep = isolateSleep,
    originLoad,
  }: EngineOptions,
): Engine {
  const now = () => clock.now()
  // Each layer adds its messages to the HTTP requests of decisions. The breaker and the in-flight limit see the whole requests.
  const switched = withSwitches(bareStore, board)
  const storeWithReports = originLoad?.withReports(switched) ?? switched
  const returning = ownAnswers?.withReturns(storeWithReports) ?? storeWithReports
  const local = createLocal?.(config.localShare, now) ?? NO_LOCAL_LIMITER
  const handingOver = local.withHandOvers(returning, decideAt)
  const guarded = withBreaker(
    holdingsKeeper ? holdingsKeeper.withMessages(handingOver) : handingOver,
    config.breaker,
    // Without messages: whether the store is back must not depend on how many there are.
    () => probe(handingOver),
    {
      now,
      ...(onStoreChange && { onChange: onStoreChange }),
    },
  )
  /** For streams: if their isolate gets no other requests, only they can find out that the store is back. */
  const probed: Store = {
    ...guarded,
    async run(calls) {
      if (guarded.isProbeDue()) await guarded.probe()
      return await guarded.run(calls)
    },
  }
  const store = withInFlightLimit(guarded, config.inFlight, { sleep })
  const fallback = { credentials, local, store }

  async function decideWith(verb: DecideVerb, demand: Demand, options: DecideOptions): Promise<Decided> {
    const startedAt = now()
    const wasOverdue = board.isOverdue()
    const { decision, outcome, claims, at = outcome?.at ?? 0 } = await makeDecision(verb, demand, options)
    const started = withFinish(decision, claims, options.background)
    maintain({ hasAnswered: outcome !== undefined && outcome.at > 0 }, options.background)
    // Corrects claims that were lost, and claims that only some slots of a cluster have counted.
    holdingsKeeper?.sendSoon(guarded, options.background)
    if (wasOverdue) await refreshOverdueSwitches(options)
    originLoad?.keepFresh(guarded, options.background)
    return { ...started, ...(outcome && { outcome }), at, storeMs: now() - startedAt }
  }

  async function makeDecision(
    verb: DecideVerb,
    { rules, subject, plan, policy, failure }: Demand,
    { recall }: DecideOptions,
  ): Promise<{ decision: Decision; at?: number; outcome?: Outcome; claims?: Claims | undefined }> {
    let claims: Claims | undefined
    try {
      const switchesAtBinding = board.current()
      const bound = bindRules(rules, switchesAtBinding, switchName, now())
      const boundDemand = { policy, plan, rules: bound, ...(subject && { subject }) }
      const ownAnswer =
        verb === 'decide' && !failure
          ? ownAnswers?.forRequest(boundDemand, switchesAtBinding, () => board.current(), recall)
          : undefined
      let ownDecision = ownAnswer?.decideBeforeTrip()
      // Requests share no promise, so each one checks by itself whether an answer that is on its way has come. Nothing may be awaited
      // between the last check and `beginTrip`: of several requests at once, the first one renews the lease, and the others wait.
      while (ownAnswer && !ownDecision) {
        const pauseMs = ownAnswer.pauseBeforeTrip()
        if (pauseMs === 0) break
        await sleep(pauseMs)
        ownDecision = ownAnswer.decideAfterWait()
      }
      if (ownDecision) return ownDecision

      if (verb === 'decide') claims = holdingsKeeper?.claim(bound, originLoad?.limitOf)
      const evaluation = {
        ...{ ...boundDemand, rules: claims?.rulesForStore ?? bound },
        ...(ownAnswer && { wantedRequests: ownAnswer.beginTrip() }),
        ...(decideAt && { now: decideAt() }),
      }
      const endTrip = verb === 'decide' && !failure ? local.beginTrip(evaluation) : undefined
      const answer = failure
        ? toDegraded(failure)
        : await evaluate(store, evaluation, {
            verb,
            onCluster,
            undoStore: guarded,
            ...(store.isCluster && { isCallerKnown: isInGoodStanding(callOrUndefined(recall)) }),
            ...(ownAnswer && { listener: ownAnswer.listener }),
          })
      endTrip?.()
      if (answer.status === 'degraded') {
        const withHeld = claims ? { ...evaluation, rules: claims.markUndecided(answer.fate) } : evaluation
        ownAnswer?.endTrip(undefined)
        // While this request waited, another one may have received an answer that also decides this one.
        const ownDecision = ownAnswer?.decideAfterFailure()
        if (ownDecision) return ownDecision
        const decision = fallBack(withHeld, answer, recall?.(), fallback, verb)
        claims?.holdLocally(decision)
        return { decision, claims }
      }
      claims?.settle(answer, store.isCluster ?? false)
      const latestSwitches = board.current()
      local.noteReport(evaluation.rules, answer)
      const outcome = ownAnswer?.endTrip(answer, latestSwitches === switchesAtBinding) ?? answer
      // The store has nothing left, but units that were leased before are already paid for.
      const leasedDecision = outcome.status === 'refused' ? ownAnswer?.decideAfterRefusal() : undefined
      if (leasedDecision) return leasedDecision
      // If the switches have not changed during the trip, the outcome is final.
      const underLatestSwitches =
        latestSwitches === switchesAtBinding
          ? outcome
          : applyNewerSwitches(outcome, evaluation, latestSwitches, switchName)
      // Under the kill switch the request was bound without rules. It stays marked, even if the switch was turned off during the trip.
      const decision = markKillSwitch(
        toDecision(underLatestSwitches),
        switchesAtBinding.kill ? switchesAtBinding : latestSwitches,
      )
      return { decision, outcome, claims }
    } catch (error) {
      claims?.markUndecided('may-have-run')
      const candidates = rules.map(({ rule }) => rule)
      return {
        decision: decideWithoutCounting({ candidates, policy, error, ...(subject && { subject }) }, recall),
      }
    }
  }

  /** Without a demand it is unknown what to count, so the isolate does not count either. */
  function decideWithoutCounting(
    { candidates, subject, policy, error }: BrokenDemand,
    recall: DecideOptions['recall'],
  ): Decision {
    const degraded = toDegraded(error)
    const latest = board.current()
    const isRefused = candidates.some(
      rule => !admitsUncounted(rule.onStoreFailure) && isEnforcedForAny(rule, latest, switchName(rule)),
    )
    if (isRefused) return { kind: 'unavailable', what: 'limits', degraded: toDegradedMark(degraded) }
    const decision = fallBack(
      { policy, rules: [], ...(subject && { subject }) },
      degraded,
      callOrUndefined(recall),
      fallback,
    )
    return decision.kind === 'allowed' ? { ...decision, isUncounted: true } : decision
  }

  /** @param claims of the request; its units stay in flight until `finish` */
  function withFinish(
    decision: Decision,
    claims?: Claims,
    background: Background = detached,
  ): Pick<Decided, 'decision' | 'awaitsEnding' | 'finish'> {
    let isFinished = false
    const release = claims && holdingsKeeper?.keep(claims, probed, background)
    return {
      decision,
      awaitsEnding: release !== undefined || onFinish !== undefined,
      finish(ending) {
        if (isFinished) return
        isFinished = true
        if (release)
          ownAnswers?.forget(
            claims!.inFlight.map(({ rule }) => rule.key),
            'ended',
          )
        release?.()
        onFinish?.(decision, ending)
      },
    }
  }

  async function change(
    verb: 'refund' | 'reset',
    preparedCall: PreparedCall<ChangeResult>,
    background: Background,
  ): Promise<ChangeResult | Degraded> {
    const changed = await catchFailure(() => runCall(store, preparedCall))
    // A reset discards leased units, so that they are not given back on top of the whole budget. A refund keeps them.
    if ('keys' in preparedCall.call) {
      ownAnswers?.forget(preparedCall.call.keys, verb)
      if (verb === 'reset' && 'at' in changed) local.forgetReports(preparedCall.call.keys)
    }
    maintain({ hasAnswered: 'at' in changed }, background)
    return changed
  }

  /** @param hasAnswered whether the store has answered this request */
  function maintain({ hasAnswered }: { hasAnswered: boolean }, background: Background): void {
    if (store.isProbeDue()) background(store.probe())
    ownAnswers?.maintain(guarded, background)
    // Bypasses the breaker, because the duration of a hand-over says nothing about decisions.
    if (hasAnswered && local.isHandOverDue()) background(local.handOver(bareStore, decideAt?.()))
  }

  /** Reads the switches in a separate trip. Without it, an isolate that makes no trips would never see them change back. */
  async function refreshOverdueSwitches({ background, awaitsSwitches }: DecideOptions): Promise<void> {
    if (!board.isOverdue() || store.isOpen()) return
    // If the last read has failed, waiting would cost one request per second the whole deadline.
    const isAwaited = awaitsSwitches && !switched.hasFailed()
    const refresh = switched.refresh()
    if (isAwaited) await refresh.catch(() => {})
    else background(refresh)
  }

  return {
    decide: (demand, options) => decideWith('decide', demand, options),
    peek: (demand, options) => decideWith('peek', demand, options),

    decideBroken(demand, { recall, background }) {
      maintain({ hasAnswered: false }, background)
      // If no demand can be built, decisions make no trip, and the kill switch must still reach this isolate.
      void refreshOverdueSwitches({ background })
      return { ...withFinish(decideWithoutCounting(demand, recall)), at: 0, storeMs: 0 }
    },

    change,

    stop: async () => await ownAnswers?.giveBack(guarded),

    keepFresh(options) {
      maintain({ hasAnswered: false }, options.background)
      void refreshOverdueSwitches(options)
      originLoad?.keepFresh(guarded, options.background)
    },

    awaitsEndings: onFinish !== undefined || holdingsKeeper !== undefined,
  }
}

/** The result of the lookup, or undefined if it throws: its error may be the one that broke the demand. */
/** Whether the store has admitted the caller, and has not refused its credential or blocked its consumer since. */
const isInGoodStanding = (seen: RememberedCaller | undefined) =>
  seen?.plan !== undefined && !seen.isBlocked && !seen.isUnknown

function callOrUndefined<T>(lookup: (() => T | undefined) | undefined): T | undefined {
  try {
    return lookup?.()
  } catch {
    return undefined
  }
}

function toDegradedMark({ cause, detail }: Degraded) {
  return { cause, detail }
}
