/** What the store is asked: is the credential good, and may this caller pass under the rules that can count it? */
import { isInRanges } from '../config/address-ranges.ts'
import type { Config, GatewayRule } from '../config/compile.ts'
import { type CountedRule, count } from '../limiter/count.ts'
import type { Evaluation } from '../limiter/wire.ts'
import { switchedMode } from '../switches/relax.ts'
import { NO_SWITCHES } from '../switches/switches.ts'
import type { Caller } from './identify.ts'
import { identityKeys } from './identity.ts'
import type { Matched } from './match.ts'

/**
 * @param request what is counted by stands in it, beside what the caller is
 * @param switches by which a rule is asked about otherwise than the config has it, or not at all
 */
export async function question(
  request: Request,
  caller: Caller,
  matched: Matched,
  { plans, allow }: Pick<Config, 'plans' | 'allow'>,
  switches = NO_SWITCHES,
): Promise<Evaluation> {
  const { credential } = caller
  const keyOf = identityKeys(request, caller, matched.route?.name)
  const counted = await Promise.all(
    limiting(matched.rules, caller, allow).map(async (rule): Promise<CountedRule[]> => {
      const form = formFor(rule, caller)
      const key = form && (await keyOf(rule.by))
      if (!key) return []
      const mode = switchedMode(form, key, switches)
      if (mode === 'off') return []
      const staysShadow = mode === 'shadow' && switches.rules.has(rule.name)
      return [{ ...count(atCost(form, matched.cost), key), mode, ...(staysShadow && { staysShadow }) }]
    }),
  )
  return { rules: counted.flat(), plans, ...(credential && { who: credential.who }) }
}

/** Who says to be an allowed consumer may be guessing, an allowed address is one. */
function limiting(
  rules: readonly GatewayRule[],
  { address, credential }: Caller,
  allow: Config['allow'],
): readonly GatewayRule[] {
  if (isInRanges(allow.addresses, address)) return []
  const isAllowed = credential !== undefined && allow.consumers.has(credential.consumer)
  return isAllowed ? rules.filter(({ on }) => on === 'auth-failure') : rules
}

/** The rule as it is for this kind of caller, or nothing where it is not for them. */
function formFor(rule: GatewayRule, { credential }: Caller): GatewayRule | undefined {
  const { match, on, isForOthers } = rule
  if (match.authenticated !== undefined && match.authenticated !== (credential !== undefined))
    return undefined
  if (credential) return on === 'request' || credential.who.kind !== 'token' ? rule : undefined
  // Who shows no credential has no plan, and guesses none.
  if (on === 'auth-failure' || (match.plans && !isForOthers)) return undefined
  return isForOthers ? withoutPlans(rule) : rule
}

/** A guess costs the same everywhere. */
function atCost(rule: GatewayRule, factor: number): GatewayRule {
  if (factor === 1 || rule.on === 'auth-failure') return rule
  return { ...rule, quota: { ...rule.quota, cost: rule.quota.cost * factor } }
}

function withoutPlans(rule: GatewayRule): GatewayRule {
  const { plans: _, ...match } = rule.match
  return { ...rule, match }
}
