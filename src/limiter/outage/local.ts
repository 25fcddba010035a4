/**
 * Decides in the isolate while the store does not answer. It admits at most:
 *
 *     a share of each limit                        local-counts.ts
 *     what the store had left when it last         store-reports.ts
 *     answered about the identity
 *     less what decisions that are still on        open-trips.ts
 *     their way to the store may spend
 *
 * When the store answers again, it counts what was admitted meanwhile (hand-overs.ts). So the outages that one isolate sees do not give
 * a caller more than the limit, except for units whose hand-over was lost.
 */
import type { DecideVerb } from '../../script/decide.ts'
import type { BoundRule, Verdict } from '../../script/evaluation.ts'
import type { RuleSet } from '../../script/rule-set-shape.ts'
import { createHandOvers } from './hand-overs.ts'
import { createLocalCounts, type Spender } from './local-counts.ts'
import { createOpenTrips } from './open-trips.ts'
import { createStoreReports, type Report, type ReportedRule } from './store-reports.ts'

export type LocalLimiter = ReturnType<typeof createLocalLimiter>

/** Trips end within their deadline, unless the isolate is very late (µs). */
const OPEN_TRIPS_WAIT = 1e6

/**
 * Creates the local limiter of an isolate.
 * @param share the part of each limit that the isolate admits, above 0 and up to 1
 * @param now ms since the epoch
 * @param decideAt returns the time to count by (µs); absent: the clock of the store
 */
export function createLocalLimiter(share: number, now: () => number, decideAt?: () => number) {
  const counts = createLocalCounts(share, now, key => handOvers.drop(key))
  const handOvers = createHandOvers(counts, now, decideAt)
  const reports = createStoreReports(handOvers.unreportedUnits)
  const openTrips = createOpenTrips(now)

  /** The refusal of a request that would take units which the store may still spend. Spends nothing. */
  function refuseForOpenTrips(rules: readonly BoundRule[], openUnits: readonly number[]) {
    if (!openUnits.some(units => units > 0)) return undefined
    const { verdicts } = counts.decide(rules, 'peek')
    const lowered = verdicts.map((verdict, i) => {
      const remaining = Math.max(0, verdict.remaining - (openUnits[i] ?? 0))
      if (remaining >= counts.costOf(rules[i]!)) return { ...verdict, remaining }
      // When open trips have ended, units may be left again. A request that costs too much (-1) can never be admitted.
      const retryAfter = verdict.retryAfter < 0 ? -1 : Math.max(verdict.retryAfter, OPEN_TRIPS_WAIT)
      return { ...verdict, remaining, allowed: false, retryAfter }
    })
    return lowered.every(({ allowed }) => allowed) ? undefined : { admitted: false, verdicts: lowered }
  }

  return {
    /**
     * Decides all rules together, all or nothing, as the store would. `peek` spends nothing.
     * @param openUnits for each rule the units that it must leave, because the store may still spend them. Default: 0
     * @param spender for the hand-over
     */
    decide(
      ruleSet: RuleSet,
      rules: readonly BoundRule[],
      verb: DecideVerb = 'decide',
      openUnits: readonly number[] = [],
      spender: Omit<Spender, 'ruleSet'> = {},
    ): { admitted: boolean; verdicts: Verdict[] } {
      handOvers.noteDecision(false)
      for (const bound of rules) {
        handOvers.reduce(bound)
        const report = reports.take(bound)
        if (report) counts.lowerTo(report.remaining, bound, report.spentAt)
      }
      const result = refuseForOpenTrips(rules, openUnits) ?? counts.decide(rules, verb)
      const isSpent = result.admitted && verb === 'decide'
      for (const bound of isSpent ? rules : []) {
        // A rule that only reports has spent nothing. It may have no counts, so their eviction could not drop its key from the hand-overs.
        if (bound.role === 'spend') handOvers.add(bound, { ruleSet, ...spender })
      }
      return result
    },

    beginTrip: openTrips.begin,
    openUnits: openTrips.unitsOf,

    /** Notes an answer of the store. While the store does not answer, the isolate admits no more than it reported as remaining. */
    noteReport(rules: readonly ReportedRule[], report: Report): void {
      if (report.at > 0) handOvers.noteDecision(true)
      reports.note(rules, report, now())
    },
    /** Forgets what the store has reported for these keys, because they were reset. */
    forgetReports: reports.forget,

    handOvers: handOvers.rider,
  }
}
