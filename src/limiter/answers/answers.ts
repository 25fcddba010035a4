/** Decides requests without a trip to the store: from leased units, or by repeating a remembered refusal. */
import type { Outcome } from '../../script/evaluation.ts'
import { type Decision, toDecision, type WithoutTrip } from '../decision.ts'
import type { KnownAnswers, KnownRequest } from './known.ts'
import type { Leases } from './leases.ts'
import type { LookupPhase, RefusalMemory } from './refusals.ts'

type AllAnswers = ReturnType<typeof createAnswers>

/** The answers to one request. Each decision is undefined if the store has to decide. */
export type Answer = ReturnType<AllAnswers['forRequest']>

export interface Answers extends Omit<AllAnswers, 'forRequest'> {
  /** undefined: the isolate must not decide this request. */
  forRequest(request: KnownRequest): Answer | undefined
}

export function createAnswers(
  known: KnownAnswers,
  refusals: RefusalMemory | undefined,
  leases: Leases | undefined,
) {
  return {
    forRequest(request: KnownRequest) {
      const lease = leases?.forRequest(request)

      const repeatRefusal = (when: LookupPhase) => {
        const refusal = refusals?.find(request, when)
        return refusal && { decision: decisionFrom('refusals', refusal), at: 0 }
      }
      const serveFromLease = (isNeeded: boolean) => {
        // Invalid credentials have no lease. If they are refused and this one were admitted, the reply would show that it is valid.
        if (!lease || refusals?.hasTooManyGuesses(request)) return undefined
        const outcome = leases!.serve(lease, isNeeded)
        return outcome && { decision: decisionFrom('leases', outcome), at: outcome.at }
      }

      return {
        decideBeforeTrip() {
          const served = serveFromLease(false)
          if (served) return served
          const refusal = repeatRefusal('before-trip')
          // If the store has refused lately, the leased units are used up before a refusal is repeated, unless guesses were refused.
          return refusal && (serveFromLease(true) ?? refusal)
        },

        /** How long the request should wait before `decideAfterWait`, because an answer is on its way (ms). 0: it has to make a trip. */
        pauseBeforeTrip: () =>
          lease ? leases!.pauseBeforeTrip(lease) : (refusals?.pauseBeforeTrip(request) ?? 0),
        decideAfterWait: () => serveFromLease(true) ?? repeatRefusal('waiting'),

        /** Notes that a trip begins. @returns for how many requests the store is to spend */
        beginTrip(): number {
          // Before the clock is read: if that finds that it was set back, the answer to this trip is not used again.
          const asOf = known.changes
          const begunAt = known.now()
          request.trip = { asOf, begunAt, notSentBefore: begunAt }
          return lease ? leases!.beginTrip(lease) : 1
        },

        /** As for CallListener: whether a lease or a remembered refusal decides the request while it waits for its turn at the store. */
        isNoLongerNeeded(): boolean {
          request.trip!.notSentBefore = known.now()
          const canServe = lease && leases!.canServe(lease) && !refusals?.hasTooManyGuesses(request)
          return canServe || repeatRefusal('waiting') !== undefined
        },
        noteArrival(): void {
          request.trip!.answeredAt = known.now()
        },

        /** Notes that the trip has ended. Parameter and result are those of `endTrip` in leases.ts. */
        endTrip(outcome: Outcome | undefined): Outcome | undefined {
          if (outcome && known.currentSwitches() === request.switches) refusals?.remember(request, outcome)
          return lease ? leases!.endTrip(lease, outcome) : outcome
        },
        decideAfterFailure: () => serveFromLease(true) ?? repeatRefusal('after-failure'),
        decideAfterRefusal: () => serveFromLease(true),
      }
    },

    returns: leases?.active.returns,
    giveBack: leases?.active.giveBack,

    /** Forgets answers that are no longer valid: the keys were reset or refunded, or a request in flight under them has ended. */
    forget(keys: readonly string[], what: 'reset' | 'refund' | 'ended'): void {
      known.noteChange(keys)
      if (what === 'reset') leases?.active.discard(keys)
    },
  }
}

const decisionFrom = (from: WithoutTrip['from'], outcome: Outcome) =>
  ({ ...toDecision(outcome), from }) as Decision
