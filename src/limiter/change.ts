/** Changes what has been spent, in a trip without a decision: refunds, resets, and pauses of limits by name. */
import type { Trips } from '../trips/trips.ts'
import type { Answers } from './answers/answers.ts'
import type { Engine } from './engine-shape.ts'
import { toDegraded } from './evaluate.ts'
import type { LocalLimiter } from './outage/local.ts'
import { runCall } from './prepared-call.ts'

/** @param answers and `local` forget what a change makes invalid */
export const createChange =
  (
    trips: Pick<Trips, 'store' | 'schedule'>,
    answers: Answers | undefined,
    local: LocalLimiter | undefined,
  ): Engine['change'] =>
  async (verb, preparedCall, background, guard) => {
    const changed = await runCall(guard?.on(trips.store) ?? trips.store, preparedCall).catch(toDegraded)
    const wasSent = 'at' in changed || changed.fate !== 'not-sent'
    // A reset discards leased units, so that they are not given back on top of the whole budget. A refund keeps them.
    if ('keys' in preparedCall.call && wasSent) {
      answers?.forget(preparedCall.call.keys, verb)
      if (verb === 'reset' && 'at' in changed) local?.forgetReports(preparedCall.call.keys)
    }
    trips.schedule(background)
    if ('cause' in changed) guard?.passFailure(changed)
    return changed
  }
