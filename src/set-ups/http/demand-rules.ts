/** Turns the rules that match a request into a demand: which of them apply to the caller, which identities they count, and at what cost. */
import { MAX_IN_FLIGHT } from '../../algorithms/concurrency.descriptor.ts'
import { isInRanges } from '../../config/address-ranges.ts'
import type { Config, GatewayRule } from '../../config/compile.ts'
import { isVariantFor, type Rule, withoutPlans } from '../../config/compile-rule.ts'
import { limitForClass, type TrafficClass } from '../../config/compile-shedding.ts'
import type { DemandedRule } from '../../limiter/bind.ts'
import type { BodyFields } from './body-fields.ts'
import { type Caller, callerKey, modeOf } from './caller.ts'
import { createKeyReader } from './identity-keys.ts'
import type { Matched } from './match.ts'

/** Returns what a request costs under a rule, in the rule's unit. */
export type CostOf = (rule: GatewayRule, matched: Pick<Matched, 'settings'>) => number

interface MoreOfRequest {
  trafficClass?: Pick<TrafficClass, 'rank' | 'isCritical' | 'mayBeCritical'> | undefined
  adaptedLimitOf?: ((rule: Rule) => number | undefined) | undefined
  costOf?: CostOf | undefined
  fields?: BodyFields | undefined
}

/**
 * Returns each rule that applies to this caller, with the key of its identity and the cost of the request.
 *
 * @param request for the values that rules count by, beside those of the caller
 * @param more `trafficClass`: of the request, if the config sheds load; `adaptedLimitOf`: returns the current limit of a rule whose limit
 * adapts; `costOf`: if the rules count other units than requests; `fields`: of the body. Without them, rules by a field do not apply
 */
export function demandRules(
  request: Request,
  caller: Caller,
  matched: Matched,
  allow: Config['allow'],
  { trafficClass, adaptedLimitOf, costOf = costInRequests, fields }: MoreOfRequest = {},
): DemandedRule[] {
  const keyOf = createKeyReader(request, caller, matched.route?.name, fields)
  const demanded: DemandedRule[] = []
  for (const rule of dropExempt(matched.rules, caller, allow)) {
    const adapted = adaptRule(rule, caller, trafficClass)
    const key = adapted && keyOf(rule)
    if (!key) continue
    if (rule.isSystemLimit) {
      const limit = adaptedLimitOf?.(rule) ?? rule.limit
      const ofClass = trafficClass ? limitForClass(rule, limit, trafficClass) : limit
      // All callers are counted together, but `enforce` can still name a share of the callers.
      const shareKey = callerKey(caller)
      const { isCritical, mayBeCritical } = trafficClass ?? {}
      const limited = isCritical ? neverRefusing(adapted, ofClass) : withLimit(adapted, ofClass)
      const open = isCritical || mayBeCritical ? neverClosed(limited) : limited
      demanded.push({ rule: open, key, cost: adapted.cost, shareKey })
    } else {
      const cost = costOf(adapted, matched)
      const costed = cost === adapted.cost ? adapted : { ...adapted, cost }
      demanded.push({ rule: costed, key, cost })
    }
  }
  return demanded
}

/**
 * Drops the rules that the caller is exempt from. A claimed consumer may be a guess, so guesses are counted for
 * allowed consumers too; an allowed address is verified.
 */
function dropExempt(
  rules: readonly GatewayRule[],
  { address, credential }: Caller,
  allow: Config['allow'],
): readonly GatewayRule[] {
  if (isInRanges(allow.addresses, address)) return []
  const isAllowed = credential !== undefined && allow.consumers.has(credential.consumer)
  return isAllowed ? rules.filter(({ on }) => on === 'auth-failure') : rules
}

/** Adapts a rule to the caller. Returns undefined if it does not apply. */
function adaptRule(
  rule: GatewayRule,
  { credential }: Caller,
  trafficClass: Pick<TrafficClass, 'rank'> | undefined,
): GatewayRule | undefined {
  const { match, on, isForOthers } = rule
  if (match.fromRank !== undefined && !(trafficClass && trafficClass.rank >= match.fromRank)) return undefined
  if (match.authenticated !== undefined && match.authenticated !== (credential !== undefined))
    return undefined
  if (match.mode !== undefined && match.mode !== modeOf(credential)) return undefined
  if (credential) return on === 'request' || credential.subject.kind !== 'token' ? rule : undefined
  // A caller without a credential does not guess, and has no plan. If a hook names a plan, the hook has already
  // chosen the rules of that plan.
  if (on === 'auth-failure' || !isVariantFor(rule, undefined)) return undefined
  return isForOthers ? withoutPlans(rule) : rule
}

/** The rule with the limit for this request. Its quota keeps the numbers of the config. */
const withLimit = (rule: GatewayRule, limit: number) => (limit === rule.limit ? rule : { ...rule, limit })

/** The rule as it counts a request of a critical class. */
const neverRefusing = (rule: GatewayRule, limit: number): GatewayRule => ({
  ...rule,
  limit: MAX_IN_FLIGHT,
  exceedableLimit: limit,
})

/** The rule of a request that may be critical: if it is `closed`, only the store counts it. */
const neverClosed = (rule: GatewayRule): GatewayRule =>
  rule.onStoreFailure === 'closed' ? { ...rule, onStoreFailure: 'open' } : rule

/** The cost of the rule times the factor of the request. Guesses always cost the same. */
export const costInRequests: CostOf = ({ cost, on }, { settings }) =>
  on === 'auth-failure' ? cost : cost * settings.cost
