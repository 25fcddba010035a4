/** What a decision of a limit by name has spent in the store, and what of it can be given back. Pure. */
import type { LimitRule } from '../../config/compile.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import type { DegradedCause } from '../../limiter/decision.ts'
import type { Reservation } from '../../limiter/reservations/reservation.ts'
import type { RefundableDecision } from './limiter-shape.ts'

/** Whether the store has spent nothing for a decision because it did not make it. */
export function isUndecided<D extends Pick<RefundableDecision, 'degraded' | 'at'>>(
  decision: D,
): decision is D & { degraded: DegradedCause } {
  return decision.degraded !== undefined && decision.at === 0
}

/**
 * The units that a decision has spent in the store, by rule name. A refused decision has spent nothing, and a rule
 * that refused has spent nothing, also in shadow mode. Units in flight are released and reserved ones settled, not
 * refunded.
 *
 * @param rules those of the limit
 */
export function refundableUnits(
  decision: RefundableDecision,
  rules: readonly LimitRule[],
): Map<string, number> {
  if (!decision.allowed || isUndecided(decision)) return new Map()
  const inFlight = new Set(rules.filter(countsInFlight).map(({ name }) => name))
  const { costs, reserved = {} } = decision
  const charged = decision.rules.filter(
    ({ name, allowed }) =>
      allowed && !inFlight.has(name) && Object.hasOwn(costs, name) && !Object.hasOwn(reserved, name),
  )
  return new Map(charged.map(({ name }) => [name, costs[name]!]))
}

/** The units of a reservation, by rule name. */
export const reservedUnits = ({ rules }: Reservation): Readonly<Record<string, number>> =>
  Object.fromEntries(rules.map(({ rule, reserved }) => [rule.name, reserved]))
