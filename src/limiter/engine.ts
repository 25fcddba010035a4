/**
 * The one engine. An edge passes a demand in and gets `{ decision, finish }` back; it calls `finish` once, when the request is
 * over. Inside: bind under the live switches → decide without a trip, or evaluate in the store → apply newer switches → decide, or fall
 * back → maintain (probe the store, hand over local counts, refresh the switches).
 *
 * `decide` never throws: an error in limiting code is handled like a store that fails.
 */
import { type Background, detached } from '../background.ts'
import type { Clock, Sleep } from '../clock.ts'
import type { Config } from '../config/compile.ts'
import type { Rule } from '../config/compile-rule.ts'
import type { RememberedCaller } from '../credentials/caller-memory.ts'
import type { DecideVerb } from '../script/decide.ts'
import type { Outcome } from '../script/evaluation.ts'
import type { Changed } from '../script/refund.ts'
import { type StoreChange, withBreaker } from '../store/breaker.ts'
import { withInFlightLimit } from '../store/in-flight.ts'
import type { Store } from '../store/store.ts'
import { type SwitchBoard, withSwitches } from '../switches/live.ts'
import { isEnforced, marked, relax } from './apply-switches.ts'
import { ask, type Question } from './ask.ts'
import { bind, type Demand, type SwitchName } from './bind.ts'
import type { Claims } from './claims.ts'
import { type Decision, decisionOf } from './decision.ts'
import { type Degraded, degradedBy, evaluate, type OnCluster, orDegraded } from './evaluate.ts'
import { admitsUncounted, fallBack, NO_LOCAL } from './fallback.ts'
import type { KeptHoldings } from './keep-holdings.ts'
import type { createLocalLimiter } from './local.ts'
import type { OwnAnswers } from './own-answers.ts'

/** How the work that was admitted has ended. */
export type Ending =
  /** It ran to its end, or it was refused. */
  | 'complete'
  /** The caller went away, or stopped reading. */
  | 'cancelled'
  /** It broke off, or something threw. */
  | 'failed'

export interface Decided {
  decision: Decision
  /** The evaluation behind the decision; absent while degraded. */
  outcome?: Outcome
  /** When it was decided, by the clock of the store (µs); 0 without a trip. */
  at: number
  /** How long the decision took, with the trip to the store (ms). */
  storeMs: number
  /** Something depends on how and when this request ends, so the edge has to observe it. */
  awaitsEnding: boolean
  /**
   * The request is over. To be called exactly once for each decision, also when a later step throws; only the first call
   * counts.
   */
  finish(ending: Ending): void
}

/** What an edge provides beside the demand. */
export interface DecideOptions {
  background: Background
  /** The last answers of the store about the credential; called only when the store does not answer. */
  recall?: () => RememberedCaller | undefined
  /** Wait for switches that are read because no trip has brought them; default: read them in the background. */
  awaitsSwitches?: boolean
}

/** For a demand that could not be made: an exception came before. */
export interface BrokenDemand extends Pick<Demand, 'subject' | 'policy'> {
  /** Rules that may apply. */
  candidates: readonly Rule[]
  error: unknown
}

export interface Engine {
  /** May this be done? Spends when it may. */
  decide(demand: Demand, options: DecideOptions): Promise<Decided>
  /** Decides without a demand: nothing is counted, and rules that are `closed` refuse. */
  decideBroken(demand: BrokenDemand, options: DecideOptions): Decided
  /** How things stand. Spends nothing. */
  peek(demand: Demand, options: DecideOptions): Promise<Decided>
  /**
   * Changes what has been spent: `toRefund` gives back what one request has spent, `toReset` makes the whole budget available
   * again (ask.ts). Live switches do not apply. The verb comes from the caller, so that a Worker carries no script that it
   * does not use.
   */
  change(
    verb: 'refund' | 'reset',
    question: Question<Changed>,
    background: Background,
  ): Promise<Changed | Degraded>
  /** The isolate is to stop: gives back what it has leased. From then on the store decides each request. */
  stop(): Promise<void>
  /** For a request that was refused without a decision: what trips keep fresh must not grow old where all are refused like that. */
  keepFresh(options: DecideOptions): void
  /**
   * Something may depend on how and when admitted requests end. Where nothing does, an edge calls `finish` as soon as it hands
   * the reply on: observing costs a proxied request a fifth to a third more CPU.
   */
  readonly awaitsEndings: boolean
}

export interface EngineOptions {
  clock: Clock
  /** µs to decide by; absent: the clock of the store, as always in production. */
  decideAt?: (() => number) | undefined
  /** The live switches that the engine follows. */
  board: SwitchBoard
  /** The name under which a rule is switched. */
  switchName: SwitchName
  /** What a caller may do while its credential cannot be checked. */
  credentials: Config['credentials']['onStoreFailure']
  /** Finds out whether a store that has failed can decide again (probe.ts). */
  probe(store: Store): Promise<void>
  /** For a store that is a cluster. */
  onCluster?: OnCluster | undefined
  onStoreChange?: ((change: StoreChange) => void) | undefined
  /** Called once for each decision. */
  onFinish?: ((decision: Decision, ending: Ending) => void) | undefined
  /** How the isolate counts by itself while the store does not answer; absent: it counts nothing, which only suits rules that are `closed`. */
  createLocal?: typeof createLocalLimiter | undefined
  /** What the isolate holds. Only where a rule counts what is in flight. */
  kept?: KeptHoldings | undefined
  /** What the isolate can decide without a trip. Absent: each request is decided by the store. */
  ownAnswers?: OwnAnswers | undefined
  /** Lets a request wait for its turn at the store; tests pass their own. */
  sleep?: Sleep | undefined
  /** What is measured of the origin. Only where something follows it. */
  originLoad?: EngineLoad | undefined
}

/** What the engine needs of the load of the origin. */
export interface EngineLoad {
  limitOf(rule: Rule): number | undefined
  withReports(store: Store): Store
  keepFresh(store: Store, background: Background): void
}

/** One for an isolate: it keeps only plain data between requests. */
export function createEngine(
  config: Pick<Config, 'localShare'> & Partial<Pick<Config, 'breaker' | 'inFlight'>>,
  bare: Store,
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
    kept,
    ownAnswers,
    sleep,
    originLoad,
  }: EngineOptions,
): Engine {
  const now = () => clock.now()
  const switched = withSwitches(bare, board)
  const reporting = originLoad?.withReports(switched) ?? switched
  const returning = ownAnswers?.withReturns(reporting) ?? reporting
  const guarded = withBreaker(kept ? kept.withMessages(returning) : returning, config.breaker, probe, {
    now,
    ...(onStoreChange && { onChange: onStoreChange }),
  })
  const store = withInFlightLimit(guarded, config.inFlight, sleep && { sleep })
  const local = createLocal?.(config.localShare, now) ?? NO_LOCAL
  const fallback = { credentials, local, store }

  async function decideWith(verb: DecideVerb, demand: Demand, options: DecideOptions): Promise<Decided> {
    const startedAt = now()
    const wasOverdue = board.isOverdue()
    const { decision, outcome, claims, at = outcome?.at ?? 0 } = await decided(verb, demand, options)
    const begun = started(decision, claims, options.background)
    maintain({ hasAnswered: outcome !== undefined && outcome.at > 0 }, options.background)
    // A claim that was lost, or that only some slots of a cluster have counted.
    kept?.sendSoon(guarded, options.background)
    if (wasOverdue) await refreshOverdueSwitches(options)
    originLoad?.keepFresh(guarded, options.background)
    return { ...begun, ...(outcome && { outcome }), at, storeMs: now() - startedAt }
  }

  async function decided(
    verb: DecideVerb,
    { rules, subject, plan, policy, failure }: Demand,
    { recall }: DecideOptions,
  ): Promise<{ decision: Decision; at?: number; outcome?: Outcome; claims?: Claims | undefined }> {
    let claims: Claims | undefined
    try {
      const before = board.current()
      const bound = bind(rules, before, switchName, now())
      const demanded = { policy, plan, rules: bound, ...(subject && { subject }) }
      const own =
        verb === 'decide' && !failure
          ? ownAnswers?.of(demanded, before, () => board.current(), recall)
          : undefined
      const decidedHere = own?.decide()
      if (decidedHere) return decidedHere

      if (verb === 'decide') claims = kept?.claim(bound, originLoad?.limitOf)
      const evaluation = {
        ...{ ...demanded, rules: claims?.rules ?? bound },
        ...(own && { want: own.ask() }),
        ...(decideAt && { now: decideAt() }),
      }
      const answer = failure
        ? degradedBy(failure)
        : await evaluate(store, evaluation, {
            verb,
            onCluster,
            undoStore: guarded,
            ...(own && { isMoot: own.isKnown }),
          })
      if (answer.status === 'degraded') {
        const held = claims ? { ...evaluation, rules: claims.lose(answer.cause) } : evaluation
        own?.settle(undefined)
        // Another request may have learnt meanwhile what this one waited for.
        const decidedHere = own?.decideAfter()
        if (decidedHere) {
          claims?.putBack()
          return decidedHere
        }
        const decision = fallBack(held, answer, recall?.(), fallback, verb)
        claims?.hold(decision)
        return { decision, claims }
      }
      claims?.settle(answer, store.isCluster ?? false)
      const latest = board.current()
      const completed = claims?.completed(answer) ?? answer
      const outcome = own?.settle(completed, latest === before) ?? completed
      // What was leased before the store had nothing left is spent already.
      const leased = outcome.status === 'refused' ? own?.decideLeased() : undefined
      if (leased) return leased
      // Under the switches that it was asked under, the outcome stands.
      const relaxed = latest === before ? outcome : relax(outcome, evaluation, latest, switchName)
      // A request that was bound without any rule passes as such, even if its rules have been switched on again meanwhile.
      const decision = marked(decisionOf(relaxed), before.kill ? before : latest)
      return { decision, outcome, claims }
    } catch (error) {
      claims?.lose('internal')
      claims?.putBack()
      const candidates = rules.map(({ rule }) => rule)
      return { decision: withoutCounting({ candidates, policy, error, ...(subject && { subject }) }, recall) }
    }
  }

  /** Where it is unknown what to count, the isolate counts nothing either. */
  function withoutCounting(
    { candidates, subject, policy, error }: BrokenDemand,
    recall: DecideOptions['recall'],
  ): Decision {
    const degraded = degradedBy(error)
    const latest = board.current()
    const isRefused = candidates.some(
      rule => !admitsUncounted(rule.onStoreFailure) && isEnforced(rule, latest, switchName(rule)),
    )
    if (isRefused) return { kind: 'unavailable', what: 'limits', degraded: markOf(degraded) }
    const decision = fallBack(
      { policy, rules: [], ...(subject && { subject }) },
      degraded,
      orUndefined(recall),
      fallback,
    )
    return decision.kind === 'allowed' ? { ...decision, isUncounted: true } : decision
  }

  /** @param claims of the request: what is in flight is held until it is over */
  function started(
    decision: Decision,
    claims?: Claims,
    background: Background = detached,
  ): Pick<Decided, 'decision' | 'awaitsEnding' | 'finish'> {
    let isFinished = false
    const release = claims && kept?.keep(claims, guarded, background)
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
    question: Question<Changed>,
    background: Background,
  ): Promise<Changed | Degraded> {
    const changed = await orDegraded(() => ask(store, question))
    // What was leased before a reset is not given back to the new budget; a refund leaves it as it is.
    if ('keys' in question.call) ownAnswers?.forget(question.call.keys, verb)
    maintain({ hasAnswered: 'at' in changed }, background)
    return changed
  }

  /** @param hasAnswered the store has answered this time */
  function maintain({ hasAnswered }: { hasAnswered: boolean }, background: Background): void {
    if (store.isProbeDue()) background(store.probe())
    ownAnswers?.maintain(guarded, background)
    // Past the breaker: how long a hand-over takes says nothing about decisions.
    if (hasAnswered && local.hasSpent()) background(local.handOver(bare, decideAt?.()))
  }

  /** While nothing is counted no trip brings the switches, and it would go unnoticed that they are switched back. */
  async function refreshOverdueSwitches({ background, awaitsSwitches }: DecideOptions): Promise<void> {
    if (!board.isOverdue() || store.isOpen()) return
    // A store that has just failed to answer would cost one caller a second its whole deadline.
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
      // Where every demand breaks, the kill switch must still reach this isolate.
      void refreshOverdueSwitches({ background })
      return { ...started(withoutCounting(demand, recall)), at: 0, storeMs: 0 }
    },

    change,

    stop: async () => await ownAnswers?.giveBack(guarded),

    keepFresh(options) {
      maintain({ hasAnswered: false }, options.background)
      void refreshOverdueSwitches(options)
      originLoad?.keepFresh(guarded, options.background)
    },

    awaitsEndings: onFinish !== undefined || kept !== undefined,
  }
}

/** What the lookup says; nothing where it throws, since its error may be what broke the demand. */
function orUndefined<T>(lookup: (() => T | undefined) | undefined): T | undefined {
  try {
    return lookup?.()
  } catch {
    return undefined
  }
}

function markOf({ cause, detail }: Degraded) {
  return { cause, detail }
}
