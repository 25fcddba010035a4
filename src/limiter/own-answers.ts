/** What an isolate can decide without a trip to the store: from units that it has leased, and by refusals that it remembers. */
import type { Background } from '../background.ts'
import type { RememberedCaller } from '../credentials/caller-memory.ts'
import type { Evaluation, Outcome } from '../script/evaluation.ts'
import type { Store } from '../store/store.ts'
import type { Switches } from '../switches/switches.ts'
import { type Decision, decisionOf } from './decision.ts'
import type { Leases } from './leases.ts'
import type { RefusalMemory, When } from './refusals.ts'

export interface OwnDecision {
  decision: Decision
  /** When its units were spent, by the clock of the store (µs); 0 for a refusal. */
  at: number
}

/** One request, as far as it may be decided without a trip. */
export interface OwnAnswer {
  /** The decision, where no trip is needed. */
  decide(): OwnDecision | undefined
  /** Whether `decideAfter` would decide by now. */
  isKnown(): boolean
  /** The store is asked now. @returns for how many requests it shall spend */
  ask(): number
  /**
   * @param outcome undefined: the store has not answered
   * @param isCurrent under the switches that it was asked under
   * @returns the outcome, as its caller is told: what is leased and left counts as left
   */
  settle<T extends Outcome | undefined>(outcome: T, isCurrent?: boolean): T
  /** The decision after a trip that has failed. */
  decideAfter(): OwnDecision | undefined
  /** The decision after a trip that has refused. */
  decideLeased(): OwnDecision | undefined
}

export interface OwnAnswers {
  /**
   * @param switches that the request was bound under, and those that are in force now
   * @param recall the last answers of the store about the credential
   */
  of(
    demanded: Omit<Evaluation, 'now'>,
    switches: Switches,
    current: () => Switches,
    recall?: () => RememberedCaller | undefined,
  ): OwnAnswer
  /** The store; each request to it also gives back what leases have left. */
  withReturns(store: Store): Store
  /** Gives back in the background what leases have left. */
  maintain(store: Store, background: Background): void
  /** Ends all leases, and gives back what they have left. */
  giveBack(store: Store): Promise<void>
  /** What is stored under these keys was reset, or it was refunded, or something in flight under them has ended. */
  forget(keys: readonly string[], what: 'reset' | 'refund' | 'ended'): void
}

/** One for an isolate; undefined where each request is decided by the store. */
export function createOwnAnswers(
  refusals: RefusalMemory | undefined,
  leases: Leases | undefined,
): OwnAnswers | undefined {
  if (!refusals && !leases) return undefined
  return {
    of(demanded, switches, current, recall) {
      const lease = leases?.of(demanded, switches, recall)
      let askedAt = 0

      const refused = (when: When): OwnDecision | undefined => {
        const refusal = refusals?.find(demanded, current(), recall, when)
        return refusal && { decision: { ...decisionOf(refusal), from: 'refusals' } as Decision, at: 0 }
      }
      const leased = (isNeeded: boolean): OwnDecision | undefined => {
        const outcome = lease?.serve(isNeeded)
        return outcome && { decision: { ...decisionOf(outcome), from: 'leases' } as Decision, at: outcome.at }
      }
      const decideAfter = () => leased(true) ?? refused('last')

      return {
        // While the store refuses, what is leased is used up.
        decide() {
          const served = leased(false)
          if (served) return served
          const refusal = refused('first')
          return refusal && (leased(true) ?? refusal)
        },
        isKnown: () => lease?.canServe() || refused('waiting') !== undefined,
        ask() {
          askedAt = refusals?.now() ?? 0
          return lease?.ask() ?? 1
        },
        settle(outcome, isCurrent = true) {
          if (outcome && isCurrent) refusals?.keep(demanded, outcome, switches, askedAt)
          return lease ? lease.settle(outcome) : outcome
        },
        decideAfter,
        decideLeased: () => leased(true),
      }
    },

    withReturns: store => leases?.withReturns(store) ?? store,
    maintain: (store, background) => leases?.giveBackSoon(store, background),
    giveBack: async store => await leases?.giveBack(store),
    forget(keys, what) {
      refusals?.forget(keys, what === 'ended' ? 'ended' : 'changed')
      if (what === 'reset') leases?.drop(keys)
    },
  }
}
