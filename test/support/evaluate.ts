/** Evaluates in a store, with defaults for tests. */
import { evaluateOnCluster } from '../../src/limiter/cluster.ts'
import { type EvaluateOptions as AllOptions, evaluate as evaluateWith } from '../../src/limiter/evaluate.ts'
import type { Evaluation } from '../../src/script/evaluation.ts'
import type { Store } from '../../src/store/store.ts'

export type EvaluateOptions = Partial<AllOptions>

export const evaluate = (store: Store, evaluation: Evaluation, options: EvaluateOptions = {}) =>
  evaluateWith(store, evaluation, {
    ...{ verb: 'decide', onCluster: evaluateOnCluster, undoStore: store },
    ...{ isCallerKnown: () => false, now: Date.now },
    ...options,
  })
