/**
 * Evaluates one decision in the store, in one trip. This is the only place where a decision waits for the store, and where an error
 * of the store becomes a value: `evaluate` returns a `Degraded`, and throws no exception.
 */
import { type CallFate, type ErrorCode, GatewayError, traceOf } from '../errors.ts'
import type { DecideVerb } from '../script/decide.ts'
import type { Evaluation, Outcome, Verdict } from '../script/evaluation.ts'
import type { CallListener, Store } from '../store/store.ts'
import type { DegradedCause, DegradedMark } from './decision.ts'
import { prepareDecide, runCall } from './prepared-call.ts'

/** The store has not decided, with the cause. */
export interface Degraded extends DegradedMark {
  status: 'degraded'
  /** Whether the store may have spent something nevertheless. */
  fate: CallFate
  /** On a cluster: what other slots have spent. */
  inPart?: AdmittedInPart
}

/** What the slots have spent that have admitted a request, when another slot has not answered. */
export interface AdmittedInPart {
  /** The names of their rules. */
  names: ReadonlySet<string>
  verdicts: readonly Verdict[]
  /** The plan of the caller; undefined if the slot of its consumer has not answered. */
  plan: string | undefined
  /** Gives the units back. Never throws. */
  undo(): Promise<void>
}

/** Some slots have admitted a request, and another one has not answered. Not a class, which Workers without a cluster would carry. */
export type SlotFailure = GatewayError & { inPart?: AdmittedInPart }

/** Evaluates over several slots of a cluster (cluster.ts). A Worker carries it only if its config has a cluster. */
export type EvaluateOnCluster = (
  store: Store,
  evaluation: Evaluation,
  options: EvaluateOptions,
) => Promise<Outcome>

export interface EvaluateOptions {
  verb: DecideVerb
  onCluster: EvaluateOnCluster
  /** The store for refunds of what some slots of a cluster have spent. It must not limit the calls in flight, or the units are lost. */
  undoStore: Store
  /** Whether the store has lately admitted the caller. On a cluster, another caller is looked up before shared rules count it. */
  isCallerKnown(): boolean
  /** ms. On a cluster, decides how long a refusal counts as likely. */
  now(): number
  /** As for Store.run. If the result is no longer needed, the decision fails with the cause `overload`. */
  listener?: CallListener
}

/** Evaluates in the store. Never throws: errors become a `Degraded`. */
export async function evaluate(
  store: Store,
  evaluation: Evaluation,
  options: EvaluateOptions,
): Promise<Outcome | Degraded> {
  // Without rules to count and a credential to look up, no trip is needed.
  if (evaluation.rules.length === 0 && !evaluation.subject) {
    return { status: 'admitted', plan: '', at: 0, verdicts: [] }
  }
  const { verb, onCluster, listener } = options
  try {
    return store.isCluster
      ? await onCluster(store, evaluation, options)
      : await runCall(store, prepareDecide(evaluation, verb), listener)
  } catch (error) {
    return toDegraded(error)
  }
}

/** The cause and the log text for an error of the store or of limiting code. */
export function toDegraded(error: unknown): Degraded {
  // Messages of errors from other code may contain keys and tokens, so only messages of Sluice are passed on.
  if (!(error instanceof GatewayError)) {
    return { status: 'degraded', cause: 'internal', detail: traceOf(error), fate: 'may-have-run' }
  }
  const { message: detail, fate, inPart }: SlotFailure = error
  return { status: 'degraded', cause: causeOf(error), detail, fate, ...(inPart && { inPart }) }
}

export const causeOf = ({ code }: GatewayError): DegradedCause => CAUSES[code]

const CAUSES: Readonly<Record<ErrorCode, DegradedCause>> = {
  ERR_STORE_TIMEOUT: 'store-timeout',
  ERR_STORE_UNREACHABLE: 'store-unreachable',
  ERR_STORE_REFUSED: 'store-refused',
  ERR_STORE_QUOTA: 'store-quota',
  ERR_STORE_BREAKER_OPEN: 'breaker-open',
  ERR_STORE_REPLY_INVALID: 'store-reply-invalid',
  ERR_STORE_OVERLOAD: 'overload',
  ERR_STORE_CALLS_EXHAUSTED: 'overload',
  ERR_CONFIG_INVALID: 'internal',
  ERR_HOOK_FAILED: 'internal',
}
