/** Explains why a rule of the config does not count a request: the first reason, in the order of the gateway's steps. */
import { isInRanges } from '../config/address-ranges.ts'
import type { Config, GatewayRule } from '../config/compile.ts'
import type { TrafficClass } from '../config/compile-shedding.ts'
import { needsCredential } from '../config/identity-parts.ts'
import { hostMatcher } from '../patterns/patterns.ts'
import type { Evaluation } from '../script/evaluation.ts'
import { type Caller, modeOf } from '../set-ups/http/caller.ts'
import type { Matched } from '../set-ups/http/match.ts'
import { hostOf } from '../set-ups/http/path.ts'

/** Everything that decides whether a rule applies to a request. */
export interface RequestUnderRules {
  config: Config
  request: Request
  caller: Caller
  matched: Matched
  plan: string | undefined
  evaluation: Evaluation
  /** Absent: the config does not shed traffic. */
  trafficClass?: TrafficClass | undefined
  /** Whether the gateway would ask the store to decide the request. */
  reachesStore: boolean
}

/**
 * @param variants all variants of the rule
 * @param variant the variant for the caller's plan, if there is one
 */
export function whyNot(
  variants: readonly GatewayRule[],
  variant: GatewayRule | undefined,
  context: RequestUnderRules,
): string {
  const { matched, caller, config, plan, reachesStore } = context
  const first = variants[0]!
  if (first.mode === 'off') return "mode: 'off'"
  const mismatch = requestMismatch(first, context)
  if (mismatch) return mismatch
  if (!reachesStore) return 'the request is answered before rules are evaluated'
  const { trafficClass } = context
  if (trafficClass && trafficClass.rank < (first.match.fromRank ?? 0)) {
    return `only for traffic classes below ${trafficClass.name}`
  }
  if (isInRanges(config.allow.addresses, caller.address)) return 'the address is in allow.addresses'
  const { credential } = caller
  if (credential && config.allow.consumers.has(credential.consumer) && first.on === 'request') {
    return `${credential.consumer} is in allow.consumers`
  }
  if (first.match.authenticated === true && !credential) return 'only for callers with a credential'
  if (first.match.authenticated === false && credential) return 'only for callers without a credential'
  if (first.match.mode !== undefined && first.match.mode !== modeOf(credential))
    return `only for ${first.match.mode} callers`
  if (first.on === 'auth-failure') {
    return credential
      ? 'counts only requests with a key: a token is verified without the store'
      : 'only for requests with a credential'
  }
  if (!variant) {
    const plans = [...new Set(variants.flatMap(({ match }) => match.plans ?? []))].join(', ')
    if (plan === undefined) return `only for plan ${plans}, and a caller without a credential has no plan`
    return plans ? `not for plan ${plan}, only for ${plans}` : `not for plan ${plan}`
  }
  if (matched.rules.length === 0) return 'no rule counts this request'
  return `the caller has no ${variant.by.filter(needsCredential).join(' and ')}`
}

/** Why the request itself or its route does not match the rule, if so. */
function requestMismatch(rule: GatewayRule, { matched, request }: RequestUnderRules): string | undefined {
  const { route } = matched
  if (matched.rules.some(({ name }) => name === rule.name)) return undefined
  if (route && !route.isLimited) return `the route ${route.name} has limits: false`
  const { methods, host, path, routes } = rule.match
  const { hostname, pathname } = new URL(request.url)
  if (methods && !methods.has(request.method)) return `method: only ${[...methods].join(', ')}`
  if (host && !hostMatcher(host)(hostOf(new URL(request.url)))) {
    return `host: ${hostname} does not match ${host}`
  }
  if (routes && !(route && routes.has(route.name))) {
    return `route: only ${[...routes].join(', ')}${route ? `; the request is on route ${route.name}` : '; the request has no route'}`
  }
  return path ? `path: ${pathname} does not match ${path}` : 'the request does not match'
}
