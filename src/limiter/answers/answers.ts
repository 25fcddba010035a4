/** Decides requests without a trip to the store: from leased units, or by repeating a remembered refusal. */
import type { RememberedCaller } from '../../credentials/caller-memory.ts'
import type { Evaluation, Outcome } from '../../script/evaluation.ts'
import type { CallListener } from '../../store/store.ts'
import type { Switches } from '../../switches/switches.ts'
import type { Rider } from '../../trips/rider.ts'
import { type Decision, toDecision } from '../decision.ts'
import type { Leases } from './leases.ts'
import type { LookupPhase, RefusalMemory, TripTimes } from './refusals.ts'

export interface KnownDecision {
  decision: Decision
  /** When its units were spent, by the clock of the store (µs); 0 for a refusal. */
  at: number
}

/** The answers of the isolate to one request. Each decision is undefined if the store has to decide. */
export interface Answer {
  /** The decision, if no trip is needed. */
  decideBeforeTrip(): KnownDecision | undefined
  /**
   * For the calls of the trip. Their result is no longer needed as soon as a lease or a remembered refusal decides the request. The
   * answer is valid from the last time when the calls were found waiting for their turn.
   */
  readonly listener: CallListener
  /**
   * How long the request should wait before `decideAfterWait`, because an answer for it is on its way (ms). 0: it has to make a
   * trip.
   */
  pauseBeforeTrip(): number
  /** The decision after a pause. */
  decideAfterWait(): KnownDecision | undefined
  /** Notes that a trip begins. @returns for how many requests the store is to spend */
  beginTrip(): number
  /**
   * Notes that the trip has ended.
   * @param outcome undefined: the store has not answered
   * @param isCurrent whether the switches are still those that the request was bound under
   * @returns the outcome to show to the caller: its `remaining` includes the unused leased units
   */
  endTrip<T extends Outcome | undefined>(outcome: T, isCurrent?: boolean): T
  /** The decision after a trip that has failed. */
  decideAfterFailure(): KnownDecision | undefined
  /** The decision after a trip in which the store has refused. */
  decideAfterRefusal(): KnownDecision | undefined
}

export interface Answers {
  /**
   * @param switches under which the request was bound
   * @param current returns the switches that are in force now
   * @param recall returns the last answers of the store about the credential
   */
  forRequest(
    demand: Omit<Evaluation, 'now'>,
    switches: Switches,
    current: () => Switches,
    recall?: () => RememberedCaller | undefined,
  ): Answer
  /** Gives back unused units of leases. */
  readonly returns: Rider | undefined
  /** Ends all leases, and gives back their unused units. */
  giveBack: Leases['giveBack']
  /** Forgets answers that are no longer valid: the keys were reset or refunded, or a request in flight under them has ended. */
  forget(keys: readonly string[], what: 'reset' | 'refund' | 'ended'): void
}

/**
 * Creates the answers that an isolate gives by itself.
 * @returns undefined if the isolate has neither remembered refusals nor leases: the store decides each request
 */
export function createAnswers(
  refusals: RefusalMemory | undefined,
  leases: Leases | undefined,
): Answers | undefined {
  if (!refusals && !leases) return undefined
  return {
    forRequest(demand, switches, current, recall) {
      const lease = leases?.forRequest(demand, switches, recall)
      const trip: TripTimes = { begunAt: 0, notSentBefore: 0 }
      let looks = 0

      const repeatRefusal = (when: LookupPhase): KnownDecision | undefined => {
        const refusal = refusals?.find(demand, current(), recall, when)
        return refusal && { decision: { ...toDecision(refusal), from: 'refusals' } as Decision, at: 0 }
      }
      const serveFromLease = (isNeeded: boolean): KnownDecision | undefined => {
        // Invalid credentials have no lease. If they are refused and this one were admitted, the reply would show that it is valid.
        if (!lease || refusals?.hasTooManyGuesses(demand, current())) return undefined
        const outcome = lease.serve(isNeeded)
        return outcome && { decision: { ...toDecision(outcome), from: 'leases' } as Decision, at: outcome.at }
      }
      const decideAfterFailure = () => serveFromLease(true) ?? repeatRefusal('after-failure')

      return {
        // If the store has refused lately, the leased units are used up before a refusal is repeated, unless guesses were refused.
        decideBeforeTrip() {
          const served = serveFromLease(false)
          if (served) return served
          const refusal = repeatRefusal('before-trip')
          return refusal && (serveFromLease(true) ?? refusal)
        },
        pauseBeforeTrip() {
          if (lease || !refusals) return lease?.pauseBeforeTrip() ?? 0
          return refusals.pause(demand, current(), looks++)
        },
        decideAfterWait: () => serveFromLease(true) ?? repeatRefusal('waiting'),
        listener: {
          isNoLongerNeeded() {
            trip.notSentBefore = refusals?.now() ?? 0
            return (
              (lease?.canServe() && !refusals?.hasTooManyGuesses(demand, current())) ||
              repeatRefusal('waiting') !== undefined
            )
          },
          noteArrival() {
            trip.answeredAt = refusals?.now() ?? 0
          },
        },
        beginTrip() {
          trip.begunAt = refusals?.now() ?? 0
          trip.notSentBefore = trip.begunAt
          return lease?.beginTrip() ?? 1
        },
        endTrip(outcome, isCurrent = true) {
          if (outcome && isCurrent) refusals?.remember(demand, outcome, switches, trip)
          return lease ? lease.endTrip(outcome) : outcome
        },
        decideAfterFailure,
        decideAfterRefusal: () => serveFromLease(true),
      }
    },

    returns: leases?.returns,
    giveBack: async send => await leases?.giveBack(send),
    forget(keys, what) {
      refusals?.forget(keys)
      if (what === 'reset') leases?.discard(keys)
    },
  }
}
