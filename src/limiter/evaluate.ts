/**
 * The only place where a decision waits for the store: one decision, one trip. Also the only place where a failure of the
 * store becomes an outcome; nothing above it sees a store error.
 */
import { GatewayError, traceOf } from '../errors.ts'
import type { DecideVerb } from '../script/decide.ts'
import type { Evaluation, Outcome } from '../script/evaluation.ts'
import type { Store } from '../store/store.ts'
import { ask, toDecide } from './ask.ts'
import type { DegradedCause, DegradedMark } from './decision.ts'

export interface Degraded extends DegradedMark {
  status: 'degraded'
}

/** Decides over several slots (slots.ts). Only where the config has a cluster is it there. */
export type OnCluster = (
  store: Store,
  evaluation: Evaluation,
  verb: DecideVerb,
  undoStore: Store,
) => Promise<Outcome>

export interface EvaluateOptions {
  verb?: DecideVerb
  /** For a store that is a cluster. */
  onCluster?: OnCluster | undefined
  /** For giving back what some slots of a cluster have spent: it must not be bounded, or the units are lost. */
  undoStore?: Store
  /** Asked while the decision waits for its turn: whether it is known by now. Then it fails like a store that is overloaded. */
  isMoot?: () => boolean
}

export async function evaluate(
  store: Store,
  evaluation: Evaluation,
  { verb = 'decide', onCluster, undoStore = store, isMoot }: EvaluateOptions = {},
): Promise<Outcome | Degraded> {
  // No rule to count and no credential to look up: decided without a trip.
  if (evaluation.rules.length === 0 && !evaluation.subject) {
    return { status: 'admitted', plan: '', at: 0, verdicts: [] }
  }
  return await orDegraded(() => {
    if (!store.isCluster) return ask(store, toDecide(evaluation, verb), isMoot)
    if (!onCluster) throw new Error('The store is a cluster, and this edge cannot decide over several slots.')
    return onCluster(store, evaluation, verb, undoStore)
  })
}

/** A failure of the store, or of limiting code, as a value. */
export async function orDegraded<T>(run: () => Promise<T>): Promise<T | Degraded> {
  try {
    return await run()
  } catch (error) {
    return degradedBy(error)
  }
}

/** The cause and the log text for an error of the store or of limiting code. */
export function degradedBy(error: unknown): Degraded {
  // Messages of foreign errors may quote keys and tokens: only messages of Sluice are passed on.
  if (!(error instanceof GatewayError)) {
    return { status: 'degraded', cause: 'internal', detail: traceOf(error) }
  }
  return { status: 'degraded', cause: causeOf(error), detail: error.message }
}

export function causeOf(error: GatewayError): DegradedCause {
  switch (error.code) {
    case 'ERR_STORE_TIMEOUT':
      return 'store-timeout'
    case 'ERR_STORE_UNREACHABLE':
      return 'store-unreachable'
    case 'ERR_STORE_REFUSED':
      return 'store-refused'
    case 'ERR_STORE_QUOTA':
      return 'store-quota'
    case 'ERR_STORE_BREAKER_OPEN':
      return 'breaker-open'
    case 'ERR_STORE_REPLY_INVALID':
      return 'store-reply-invalid'
    case 'ERR_STORE_OVERLOAD':
      return 'overload'
    case 'ERR_CONFIG_INVALID':
    case 'ERR_HOOK_FAILED':
      return 'internal'
  }
}
