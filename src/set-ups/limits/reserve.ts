/** Converts reservations of limits by name to plain data, by which any process can settle them, and back. Pure. */
import type { LimitRule } from '../../config/compile.ts'
import type { Reservation } from '../../limiter/reservations/reservation.ts'
import type { RuleSet } from '../../script/rule-set-shape.ts'
import type { Amounts } from './arguments.ts'
import type { SettleableDecision } from './limiter-shape.ts'

/** The units of a reservation, by rule name. */
export const reservedUnits = ({ rules }: Reservation): Readonly<Record<string, number>> =>
  Object.fromEntries(rules.map(({ rule, reserved }) => [rule.name, reserved]))

/** The reservation of a decision. @param keyed the rules of the limit with the keys of the identity */
export function reservationFor(
  { id = '', at, reserved = {} }: SettleableDecision,
  ruleSet: RuleSet,
  keyed: readonly { rule: LimitRule; key: string }[],
): Reservation {
  const rules = keyed.flatMap(({ rule, key }) => {
    const units = Object.hasOwn(reserved, rule.name) ? reserved[rule.name]! : 0
    return units > 0 && rule.settlement ? [{ rule, key, mode: 'enforce' as const, reserved: units }] : []
  })
  return { id, ruleSet, rules, spentAt: at }
}

/** What a call has cost under a rule; undefined if the amounts do not name its unit. */
export function amountFor({ unit }: LimitRule, amounts: Amounts): number | undefined {
  return Object.hasOwn(amounts, unit) ? amounts[unit] : undefined
}
