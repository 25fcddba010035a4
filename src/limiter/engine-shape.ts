/** The interface of the engine (engine.ts): what an edge passes in, and what it gets. */
import type { Background } from '../background.ts'
import type { Clock, Sleep, Timer } from '../clock.ts'
import type { Config } from '../config/compile.ts'
import type { Rule } from '../config/compile-rule.ts'
import type { RememberedCaller } from '../credentials/caller-memory.ts'
import type { Log } from '../log.ts'
import type { Outcome } from '../script/evaluation.ts'
import type { SettleResult } from '../script/settle.ts'
import type { Store } from '../store/store.ts'
import type { SwitchBoard } from '../switches/live.ts'
import type { StoreChange } from '../trips/breaker.ts'
import type { Rider } from '../trips/rider.ts'
import type { Answers } from './answers/answers.ts'
import type { Demand, SwitchName } from './bind.ts'
import type { CallGuard } from './call-guard.ts'
import type { Decision } from './decision.ts'
import type { Degraded, EvaluateOnCluster } from './evaluate.ts'
import type { Guesses } from './guesses.ts'
import type { Keeper, Stake } from './keeper.ts'
import type { LocalLimiter } from './outage/local.ts'
import type { PreparedCall } from './prepared-call.ts'
import type { ActualOf, Reservation, Settling } from './reservations/reservation.ts'

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
  /** The evaluation behind the decision. Absent if it comes from a lease, a remembered refusal or the fallbacks. */
  outcome?: Outcome
  /** When the store decided the request or spent its leased units, by its own clock (µs); 0 for all other decisions. */
  at: number
  /** How long the decision took, including the trip to the store (ms). */
  storeMs: number
  /** Whether the edge has to observe the end of this request, because something depends on how and when it ends. */
  awaitsEnding: boolean
  /** What the request has in the store until it is over, such as its reservation. */
  stake?: Pick<Stake, 'reservation'> | undefined
  /**
   * Ends the request. The edge calls it once for each decision, also when a later step throws. Only the first call has an
   * effect.
   * @param settling what the request has cost under each rule that reserves; absent: as much as was reserved
   * @param isFollowed whether the store is about to decide another request about the same identities: then no report has to go before
   */
  finish(ending: Ending, settling?: Settling, isFollowed?: boolean): void
}

/** What an edge provides beside the demand. */
export interface DecideOptions {
  background: Background
  /** Returns the last answers of the store about the credential. */
  recall?: () => RememberedCaller | undefined
  /** As for CallListener: whose request this is, if it has to wait for the store. */
  line?: () => string | undefined
  /** Whether to wait for a separate read of overdue switches. By default it runs in the background. */
  awaitsSwitches?: boolean
  /** Whether the costs are final, so nothing is reserved, and rules with a settlement count like all others. */
  isFinal?: boolean
  /** Checked in the trip of the decision. Not on a cluster, where the check needs a trip of its own. */
  guard?: CallGuard | undefined
  /** Whether the store has to decide, and not what the isolate knows. */
  asksStore?: boolean
}

/** The input for a request whose demand could not be built, because an exception was thrown. */
export interface BrokenDemand extends Pick<Demand, 'subject' | 'ruleSet'> {
  /** The rules that may apply to the request. */
  candidates: readonly Rule[]
  error: unknown
}

export interface Engine {
  /** Decides all rules of the demand together, and spends if the request is admitted. Throws only what its guard throws. */
  decide(demand: Demand, options: DecideOptions): Promise<Decided>
  /** Decides without a demand: nothing is counted, and enforced rules with the fallback `closed` refuse. */
  decideBroken(demand: BrokenDemand, options: DecideOptions): Decided
  /** Counts a bad key that the isolate has refused by itself, without a trip (guesses.ts). Absent if no config setting makes it do so. */
  noteGuess?: Guesses['note'] | undefined
  /** Returns what `decide` would return, and spends nothing. */
  peek(demand: Demand, options: DecideOptions): Promise<Decided>
  /**
   * Changes what has been spent: `prepareRefund` gives back what one request has spent, `prepareReset` makes the whole budget
   * available again (prepared-call.ts). Live switches do not apply. The edge prepares the call, so that a Worker does not carry
   * scripts that it never uses.
   * `preparePause` pauses an identity of a limit by name: answers that the isolate remembers are no longer valid, as after a refund.
   * @returns the state after the change, or the cause if the store failed
   */
  change<Result extends { at: number }>(
    verb: 'refund' | 'reset',
    preparedCall: PreparedCall<Result>,
    background: Background,
    guard?: CallGuard,
  ): Promise<Result | Degraded>
  /**
   * Replaces what a request has reserved by what it has cost, unless that was done before, by any isolate, or the reservation has ended.
   * If the store fails, the isolate repeats it in the background. Absent without reservations (reservations/engine-with-reservations.ts).
   * @returns the states afterwards, or the cause if the store failed
   */
  settle?(
    reservation: Reservation,
    actualOf: ActualOf | undefined,
    background: Background,
    guard?: CallGuard,
  ): Promise<SettleResult | Degraded>
  /**
   * Gives back all leased units, and sends settlements, counts of an outage and released units, before the isolate stops. Afterwards the
   * store decides each request.
   */
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

/** @param rules all rules that the engine may have to decide */
export type CreateEngine = (
  config: Partial<Pick<Config, 'breaker' | 'tripLimit' | 'storeDeadlineMs'>>,
  store: Store,
  options: EngineOptions,
  rules: readonly Rule[],
) => Engine

export interface EngineOptions {
  clock: Clock
  log: Log
  /** The time to decide by (µs). Absent, as always in production: the clock of the store. */
  decideAt?: (() => number) | undefined
  board: SwitchBoard
  switchName: SwitchName
  /** The fallback for credentials that cannot be checked. */
  credentials: Config['credentials']['onStoreFailure']
  /** Checks whether a store that has failed can decide again (probe.ts). */
  probe(store: Store): Promise<void>
  onCluster: EvaluateOnCluster
  onStoreChange?: ((change: StoreChange) => void) | undefined
  /** Counts what becomes of reservations (src/metrics/counters.ts). */
  stats?: { readonly counters: { add(counter: string, by: number): void } } | undefined
  /** Called once for each decision. */
  onFinish?: ((decision: Decision, ending: Ending) => void) | undefined
  /** Counts in the isolate while the store does not answer. Not needed if all rules are `closed`. */
  local?: LocalLimiter | undefined
  /** Keeps what requests have in the store until they are over. Needed if a rule counts units in flight or has a settlement. */
  keeper?: Keeper | undefined
  timer: Timer
  /** Counts guesses that were refused without a trip. Absent: the store counts all of them. */
  guesses?: Guesses | undefined
  /** Decides without a trip where possible. Absent: the store decides each request. */
  answers?: Answers | undefined
  /** Used by requests that wait for their turn at the store, or for leased units; tests pass their own. */
  sleep?: Sleep | undefined
  /** The measurements of the origin that load shedding or an adaptive limit follows: one rider for each signal. */
  signals?: readonly Rider[] | undefined
}
