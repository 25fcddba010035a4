/** Counts what becomes of reservations, for the statistics. An isolate knows it exactly of its own requests. */
import type { Rule } from '../../config/compile-rule.ts'
import type { Verdict } from '../../script/evaluation.ts'
import type { SettledAmount, SettledRequest, SettleResult } from '../../script/settle.ts'
import type { Reservation } from './reservation.ts'

/**
 * - `reservation made`, `reservation settled`: reservations.
 * - `reservation late`: settlements that the store did not apply, because the reservation had ended or was settled before.
 * - `unsettled`: settlements that the isolate gave up. The store may have got one of which only the replies were lost.
 * - `units reserved`: the units of reservations. `units cost`: what the requests have cost. A background
 *   response or a batch counts with its estimate, because counters only grow.
 * - `units debt`: units that settlements have spent above the limit.
 */
export type ReservationCounter =
  | 'reservation made'
  | 'reservation settled'
  | 'reservation late'
  | 'unsettled'
  | 'units reserved'
  | 'units cost'
  | 'units debt'

export type CountReservations = (what: ReservationCounter, rule: Rule, by: number) => void

export function createReservationStatistics(count: CountReservations = () => {}) {
  /** Each rule that has reserved something. A rule with numbers for several plans can be in a reservation once for each of them. */
  function forEachRule(
    { rules }: Reservation,
    amounts: readonly SettledAmount[],
    use: (rule: Rule, amount: SettledAmount, place: number) => void,
  ): void {
    for (const [i, { rule }] of rules.entries()) if (amounts[i]!.reserved > 0) use(rule, amounts[i]!, i)
  }

  return {
    made({ rules }: Reservation): void {
      for (const { rule, reserved } of rules) {
        count('reservation made', rule, 1)
        count('units reserved', rule, reserved)
      }
    },

    cost(reservation: Reservation, amounts: readonly SettledAmount[]): void {
      forEachRule(reservation, amounts, (rule, { actual }) => count('units cost', rule, actual))
    },

    /**
     * @param requests of one call, which the store has answered
     * @param isRepeated whether an earlier message may have settled them: nothing says whether they are late
     */
    answered(
      reservation: Reservation,
      requests: readonly SettledRequest[],
      { applied, verdicts }: Pick<SettleResult, 'applied'> & { verdicts: readonly Pick<Verdict, 'debt'>[] },
      isRepeated = false,
    ): void {
      const settlements = requests.filter(({ isRenewal }) => !isRenewal)
      if (settlements.length === 0) return
      const { amounts } = settlements[0]!
      const keys = reservation.rules.filter((_, i) => amounts[i]!.reserved > 0).map(({ key }) => key)
      const identities = new Set(keys).size
      // Of each request, the store has applied the settlement for each of its identities, or for none.
      const missing = isRepeated ? 0 : Math.ceil((requests.length * identities - applied) / identities)
      const late = Math.max(0, Math.min(missing, settlements.length))
      forEachRule(reservation, amounts, (rule, _, i) => {
        if (late < settlements.length) count('reservation settled', rule, settlements.length - late)
        if (late > 0) count('reservation late', rule, late)
        const extra = settlements.reduce(
          (sum, { amounts }) => sum + amounts[i]!.actual - amounts[i]!.reserved,
          0,
        )
        // Whatever the debt was before: all of it, or the part that was not within the limit.
        const debt = late === settlements.length ? 0 : Math.min(extra, verdicts[i]!.debt ?? 0)
        if (debt > 0) count('units debt', rule, debt)
      })
    },

    givenUp({ rules }: Reservation, settlements: number): void {
      const byName = new Map(rules.map(({ rule }) => [rule.name, rule]))
      for (const rule of byName.values()) count('unsettled', rule, settlements)
    },
  }
}

export type ReservationStatistics = ReturnType<typeof createReservationStatistics>
