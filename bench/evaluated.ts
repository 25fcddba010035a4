/** A decision that the store has made. One that passes because nothing was counted would make any limiter look fast. */
import { evaluate } from '../src/limiter/evaluate.ts'
import type { Evaluation, Outcome } from '../src/limiter/wire.ts'
import type { Store } from '../src/store/store.ts'

export async function evaluated(store: Store, asked: Evaluation): Promise<Outcome> {
  const outcome = await evaluate(store, asked)
  if (outcome.status === 'degraded') throw new Error(`The store made no decision: ${outcome.cause}`)
  return outcome
}
