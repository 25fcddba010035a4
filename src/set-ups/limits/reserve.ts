/** Reservations of limits by name: units whose amount is known only afterwards. */
import type { LimitRule } from '../../config/compile.ts'
import type { Degraded } from '../../limiter/evaluate.ts'
import type { ActualOf, Reservation } from '../../limiter/reservations/reservation.ts'
import type { ChangeResult } from '../../script/refund.ts'
import type { RuleSet } from '../../script/rule-set-shape.ts'
import type { SettleResult } from '../../script/settle.ts'
import {
  type Amounts,
  type BindEarlier,
  type CallNumbers,
  checkCosts,
  checkOptions,
  checkSettled,
  costOf,
  type LimitIdentity,
  type RulesWith,
} from './arguments.ts'
import type { LimitDecision, Limiter, SettleableDecision } from './limiter-shape.ts'
import { changedRulesOf, isSameFamily, isSameRecord, writtenIn } from './records-of.ts'
import { isUndecided } from './spent-units.ts'

/** What reservations need from the limiter. */
export interface ReservingOptions {
  /** @throws TypeError for an unknown limit */
  rulesOf(name: string): readonly LimitRule[]
  rulesWith: RulesWith
  ruleSetOf(name: string): RuleSet
  bindEarlier: BindEarlier
  /** Decides a call, and counts it. */
  decide(
    name: string,
    identity: LimitIdentity,
    costOf: (rule: LimitRule) => number,
    numbers: CallNumbers | undefined,
  ): Promise<LimitDecision>
  settle(reservation: Reservation, actualOf: ActualOf): Promise<SettleResult | Degraded>
  /** The decision that shows the state after a change. */
  showResult(
    name: string,
    identity: LimitIdentity,
    result: ChangeResult | Pick<Degraded, 'cause'>,
  ): LimitDecision
}

/** Creates the methods of limits that have rules with a settlement. */
export function createReserving({
  rulesOf,
  rulesWith,
  ruleSetOf,
  bindEarlier,
  decide,
  settle,
  showResult,
}: ReservingOptions): Pick<Limiter, 'reserve' | 'settle'> {
  const reserving: Pick<Limiter, 'reserve' | 'settle'> = {
    async reserve(name, identity = {}, options = {}) {
      checkOptions('reserve', options, ['cost', 'amounts', 'numbers'])
      checkCosts(name, options, rulesOf(name))
      const decision = await decide(name, identity, rule => costOf(rule, options), options.numbers)
      return {
        ...decision,
        async settle(amounts) {
          const settled = await reserving.settle(decision, amounts)
          decision.release()
          return settled
        },
      }
    },

    async settle(decision, amounts) {
      const { limit: name, identity, numbers } = decision
      checkSettled(name, amounts, rulesOf(name), decision.reserved)
      const keyed = bindEarlier(name, identity, decision.reserved ?? {}, numbers)
      const reservation = reservationFor(decision, ruleSetOf(name), keyed)
      const result = isUndecided(decision)
        ? { cause: decision.degraded }
        : reservation.rules.length > 0
          ? await settle(reservation, rule => amountFor(rule as LimitRule, amounts, decision))
          : { at: 0, verdicts: [] }
      const applied = 'applied' in result && result.applied > 0
      const rules = rulesWith(name, numbers, true)
      const changed = changedRulesOf(decision, Object.keys(decision.reserved ?? {}), rules)
      return { ...showResult(name, identity, result), ...changed, applied }
    },
  }
  return reserving
}

/** The reservation of a decision. @param keyed the rules of the limit with the keys of the identity */
function reservationFor(
  decision: SettleableDecision,
  ruleSet: RuleSet,
  keyed: readonly { rule: LimitRule; key: string }[],
): Reservation {
  const { id = '', at, reserved = {} } = decision
  const rules = keyed.flatMap(({ rule, key }) => {
    if (!isSameFamily(rule, decision)) return []
    const units = Object.hasOwn(reserved, rule.name) ? reserved[rule.name]! : 0
    const written = writtenIn(rule, decision)
    return units > 0 && rule.settlement
      ? [{ rule, key, mode: 'enforce' as const, reserved: units, ...(written && { written }) }]
      : []
  })
  // A reservation that is given back at the end names its records.
  const isPartial =
    rules.length < Object.keys(reserved).length ||
    rules.some(({ rule }) => !isSameRecord(rule as LimitRule, decision))
  return { id, ruleSet, rules, spentAt: at, isPartial }
}

/**
 * What a call has cost under a rule; undefined if the amounts do not name its unit. Another record than the one that has reserved gets
 * nothing back, but what was not reserved is spent.
 */
function amountFor(rule: LimitRule, amounts: Amounts, decision: SettleableDecision): number | undefined {
  const { name, unit } = rule
  const amount = Object.hasOwn(amounts, unit) ? amounts[unit] : undefined
  if (amount === undefined || isSameRecord(rule, decision)) return amount
  return Math.max(amount, decision.reserved?.[name] ?? 0)
}
