/**
 * The decisions of an isolate that the store has not answered yet, by rule and identity. The store may still admit them. So a request
 * that the isolate decides meanwhile (its own trip took too long) must leave units for them, or a flood that makes the store late
 * would get more than the limit.
 */
import type { BoundRule, Evaluation, Subject } from '../../script/evaluation.ts'
import { isWithin } from '../../trips/turn.ts'
import { followsStore } from './fallbacks.ts'

export type OpenTrips = ReturnType<typeof createOpenTrips>

/** The platform can end a request without notice. Its trip is forgotten after one to two times this (ms), longer than any trip takes. */
const FORGET_AFTER_MS = 20_000

/** @param now ms since the epoch */
export function createOpenTrips(now: () => number) {
  let recent: Units = new Map()
  let older: Units = new Map()
  let recentSince = Number.NEGATIVE_INFINITY

  function forgetOld(): void {
    const time = now()
    if (isWithin(FORGET_AFTER_MS, recentSince, time)) return
    older = time - recentSince < 2 * FORGET_AFTER_MS ? recent : new Map()
    recent = new Map()
    recentSince = time
  }

  return {
    /**
     * Notes that a decision is on its way to the store.
     * @returns a function to call when it is answered, or has failed
     */
    begin(evaluation: Pick<Evaluation, 'rules' | 'subject' | 'wantedRequests'>): () => void {
      const { rules, subject, wantedRequests = 1 } = evaluation
      // The variants of a rule for several plans count once: only one of them applies.
      const spending = new Map<string, BoundRule>()
      for (const bound of rules) if (maySpend(bound)) spending.set(bound.rule.name, bound)
      if (spending.size === 0) return () => {}
      forgetOld()
      const trips = recent
      const add = (requests: number) => {
        for (const [name, bound] of spending)
          addUnits(trips, name, keyOf(bound, subject), bound.cost * requests)
      }
      add(wantedRequests)
      return () => add(-wantedRequests)
    },

    /** The units of a rule that decisions on their way may spend for the same identity. */
    unitsOf(bound: BoundRule, subject: Subject | undefined): number {
      forgetOld()
      const unitsIn = (units: Units) => units.get(bound.rule.name)?.get(keyOf(bound, subject)) ?? 0
      return unitsIn(recent) + unitsIn(older)
    },
  }
}

/**
 * Units by the name of the rule, and by identity. Not by one text of both, because building and hashing such texts took twice as long as
 * all the rest.
 */
type Units = Map<string, Map<string, number>>

function addUnits(units: Units, name: string, key: string, change: number): void {
  const ofRule = units.get(name) ?? new Map<string, number>()
  if (ofRule.size === 0) units.set(name, ofRule)
  const sum = (ofRule.get(key) ?? 0) + change
  if (sum > 0) ofRule.set(key, sum)
  else ofRule.delete(key)
}

/** Whether a decision on its way may spend units of a rule that the isolate may have to leave. */
const maySpend = ({ rule, role, mode }: BoundRule) =>
  role === 'spend' && mode === 'enforce' && followsStore(rule)

/** If only the store knows the consumer, the trips of each key are counted by themselves. */
function keyOf({ key }: BoundRule, subject: Subject | undefined): string {
  return subject?.kind === 'pointer' ? `${subject.pointerKey} ${key}` : key
}
