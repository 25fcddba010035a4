/**
 * The decisions of an isolate that the store has not answered yet, by rule and identity. The store may still admit them. So a request
 * that the isolate decides meanwhile (its own trip took too long) must leave units for them, or a flood that makes the store late
 * would get more than the limit.
 */
import { countsInFlight } from '../../config/compile-rule.ts'
import type { BoundRule, Evaluation, Subject } from '../../script/evaluation.ts'
import { isWithin } from '../../trips/turn.ts'
import { FAILURE_POLICIES } from './failure-policy.ts'

export interface OpenTrips {
  /**
   * Notes that a decision is on its way to the store.
   * @returns a function to call when it is answered, or has failed
   */
  begin(evaluation: Pick<Evaluation, 'rules' | 'subject' | 'wantedRequests'>): () => void
  /** The units of a rule that decisions on their way may spend for the same identity. */
  unitsOf(bound: BoundRule, subject: Subject | undefined): number
}

/** The platform can end a request without notice. Its trip is forgotten after one to two times this (ms), longer than any trip takes. */
const FORGET_AFTER_MS = 20_000

/** @param now ms since the epoch */
export function createOpenTrips(now: () => number): OpenTrips {
  let recent = new Map<string, number>()
  let older = new Map<string, number>()
  let recentSince = Number.NEGATIVE_INFINITY

  function forgetOld(): void {
    const time = now()
    if (isWithin(FORGET_AFTER_MS, recentSince, time)) return
    older = time - recentSince < 2 * FORGET_AFTER_MS ? recent : new Map()
    recent = new Map()
    recentSince = time
  }

  function add(units: Map<string, number>, key: string, change: number): void {
    const sum = (units.get(key) ?? 0) + change
    if (sum > 0) units.set(key, sum)
    else units.delete(key)
  }

  return {
    begin({ rules, subject, wantedRequests = 1 }) {
      const spending = rules.filter(
        ({ rule, role, mode }) =>
          role === 'spend' &&
          mode === 'enforce' &&
          rule.on === 'request' &&
          !countsInFlight(rule) &&
          FAILURE_POLICIES[rule.onStoreFailure].isCountedLocally,
      )
      if (spending.length === 0) return () => {}
      forgetOld()
      const trips = recent
      // The variants of a rule for several plans count once: only one of them applies.
      const entries = new Map(spending.map(bound => [keyOf(bound, subject), bound.cost * wantedRequests]))
      for (const [key, units] of entries) add(trips, key, units)
      return () => {
        for (const [key, units] of entries) add(trips, key, -units)
      }
    },

    unitsOf(bound, subject) {
      forgetOld()
      const key = keyOf(bound, subject)
      return (recent.get(key) ?? 0) + (older.get(key) ?? 0)
    },
  }
}

/** If only the store knows the consumer, the trips of each key are counted by themselves. */
function keyOf({ key, rule }: BoundRule, subject: Subject | undefined): string {
  return subject?.kind === 'pointer' ? `${subject.pointerKey} ${key} ${rule.name}` : `${key} ${rule.name}`
}
