/** From the rules that match a request to the identities that they count, and what the request costs. */
import { isInRanges } from '../../config/address-ranges.ts'
import type { Config, GatewayRule } from '../../config/compile.ts'
import { withoutPlans } from '../../config/compile-rule.ts'
import type { TrafficClass } from '../../config/compile-shedding.ts'
import type { DemandedRule } from '../../limiter/bind.ts'
import { type Caller, callerKey } from './caller.ts'
import { identityKeys } from './identity-keys.ts'
import type { Matched } from './match.ts'

/**
 * @param request has the values that rules count by, beside those of the caller
 * @param trafficClass of the request, where traffic is shed
 */
export function bindRules(
  request: Request,
  caller: Caller,
  matched: Matched,
  allow: Config['allow'],
  trafficClass?: Pick<TrafficClass, 'rank'>,
): DemandedRule[] {
  const keyOf = identityKeys(request, caller, matched.route?.name)
  const demanded: DemandedRule[] = []
  for (const rule of limiting(matched.rules, caller, allow)) {
    const form = formFor(rule, caller, trafficClass)
    const key = form && keyOf(rule)
    if (!key) continue
    const costed = atCost(form, matched.settings.cost)
    // A rule of the system counts all callers together, and its share is one of callers all the same.
    const place = rule.isSystemLimit && callerKey(caller)
    demanded.push({ rule: costed, key, cost: costed.cost, ...(place && { place }) })
  }
  return demanded
}

/** A claimed consumer may be a guess, so guesses are counted for allowed consumers too; an allowed address is verified. */
function limiting(
  rules: readonly GatewayRule[],
  { address, credential }: Caller,
  allow: Config['allow'],
): readonly GatewayRule[] {
  if (isInRanges(allow.addresses, address)) return []
  const isAllowed = credential !== undefined && allow.consumers.has(credential.consumer)
  return isAllowed ? rules.filter(({ on }) => on === 'auth-failure') : rules
}

/** The rule in its form for this kind of caller; undefined where it does not apply. */
function formFor(
  rule: GatewayRule,
  { credential }: Caller,
  trafficClass: Pick<TrafficClass, 'rank'> | undefined,
): GatewayRule | undefined {
  const { match, on, isForOthers } = rule
  if (match.fromRank !== undefined && !(trafficClass && trafficClass.rank >= match.fromRank)) return undefined
  if (match.authenticated !== undefined && match.authenticated !== (credential !== undefined))
    return undefined
  if (credential) return on === 'request' || credential.subject.kind !== 'token' ? rule : undefined
  // A caller without a credential does not guess, and has no plan. (Where a hook names one, it has chosen the rules of that plan.)
  if (on === 'auth-failure' || (match.plans && !isForOthers)) return undefined
  return isForOthers ? withoutPlans(rule) : rule
}

/** A guess costs the same everywhere, and so does a place in the fleet. */
function atCost(rule: GatewayRule, factor: number): GatewayRule {
  if (factor === 1 || rule.on === 'auth-failure' || rule.isSystemLimit) return rule
  return { ...rule, cost: rule.cost * factor }
}
