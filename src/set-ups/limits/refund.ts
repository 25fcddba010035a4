/** Gives back what a decision has spent, at most once. */
import type { LimitRule } from '../../config/compile.ts'
import { REQUESTS } from '../../config/compile-rule.ts'
import { bindRule } from '../../limiter/bind.ts'
import type { CallGuard } from '../../limiter/call-guard.ts'
import type { Degraded } from '../../limiter/evaluate.ts'
import { type PreparedCall, prepareRefund } from '../../limiter/prepared-call.ts'
import type { ChangeResult, RefundedRule } from '../../script/refund.ts'
import type { RuleSet } from '../../script/rule-set-shape.ts'
import {
  type BindEarlier,
  checkCost,
  checkOptions,
  type LimitIdentity,
  type LimitOptions,
  type RulesWith,
} from './arguments.ts'
import type { LimitDecision, Limiter, RefundableDecision } from './limiter-shape.ts'
import { changedRulesOf, isSameRecord, writtenIn } from './records-of.ts'
import { refundOnce } from './refund-once.ts'
import { isUndecided, refundableUnits } from './spent-units.ts'

/** What refunds need from the limiter. */
export interface RefundingOptions {
  /** @throws TypeError for an unknown limit */
  rulesOf(name: string): readonly LimitRule[]
  rulesWith: RulesWith
  ruleSetOf(name: string): RuleSet
  bindEarlier: BindEarlier
  change(call: PreparedCall<ChangeResult>, guard: CallGuard | undefined): Promise<ChangeResult | Degraded>
  /** The decision that shows the state after a change. */
  showResult(
    name: string,
    identity: LimitIdentity,
    result: ChangeResult | Pick<Degraded, 'cause'>,
  ): LimitDecision
  nowMs(): number
  decideAt?: (() => number) | undefined
}

/** Creates `refund`. A decision's units are given back once, whatever guard a call has. */
export function createRefunding(options: RefundingOptions): (guard?: CallGuard) => Pick<Limiter, 'refund'> {
  const { rulesOf, rulesWith, ruleSetOf, bindEarlier, change, showResult, nowMs, decideAt } = options
  /** Units given back of each decision, by rule name. */
  const refunded = new WeakMap<RefundableDecision, Map<string, number>>()

  return guard => ({
    async refund(decision, options = {}) {
      checkOptions('refund', options, ['cost'])
      const { cost } = options
      const { limit: name, identity, at, id, numbers } = decision
      if (cost !== undefined) checkCost(name, cost, rulesOf(name), decision.costs)
      if (isUndecided(decision)) return showResult(name, identity, { cause: decision.degraded })
      const spentUnits = refundableUnits(decision, rulesOf(name))
      const refundedUnits = refunded.get(decision) ?? new Map<string, number>()
      refunded.set(decision, refundedUnits)
      const keyed = bindEarlier(name, identity, decision.costs, numbers)
      const changed = changedRulesOf(decision, [...spentUnits.keys()], rulesWith(name, numbers, true))
      const refunds = keyed.flatMap(({ rule, key }) => {
        if (!isSameRecord(rule, decision)) return []
        const before = refundedUnits.get(rule.name) ?? 0
        const spent = (spentUnits.get(rule.name) ?? 0) - before
        if (spent <= 0) return []
        const units = Math.min(spent, cost === undefined ? spent : costFor(rule, cost))
        refundedUnits.set(rule.name, before + units)
        const written = writtenIn(rule, decision)
        return [{ ...bindRule(rule, key, units, nowMs()), units, spent, before, ...(written && { written }) }]
      })
      if (refunds.length === 0) return { ...showResult(name, identity, { at: 0, verdicts: [] }), ...changed }
      const once = id === undefined ? undefined : refundOnce(decision, id, keyed)
      const rules = refunds.map(({ before, units, spent, ...bound }): RefundedRule => {
        const ofAll = once ? before : 0
        return { ...bound, units: ofAll + units, spent: ofAll + spent }
      })
      const refund = { ruleSet: ruleSetOf(name), rules, spentAt: at, once, now: decideAt?.() }
      // With an id, the store has given back nothing twice if the caller tries again.
      const tryAgain = () => {
        for (const { rule, units } of once ? refunds : [])
          refundedUnits.set(rule.name, refundedUnits.get(rule.name)! - units)
      }
      const changing = change(prepareRefund(refund), guard)
      const result = await changing.catch(error => {
        tryAgain()
        throw error
      })
      if ('cause' in result) tryAgain()
      return { ...showResult(name, identity, result), ...changed }
    },
  })
}

/** The units of a rule that are given back: 0 if the cost does not name it. */
function costFor(rule: LimitRule, cost: NonNullable<LimitOptions['cost']>): number {
  if (typeof cost === 'number') return rule.unit === REQUESTS ? cost : 0
  return Object.hasOwn(cost, rule.name) ? cost[rule.name]! : 0
}
