/**
 * Finds the route of a request, and the rules for its method, host and path. Rules for a plan are included, because
 * only the store knows the plan of the caller. Pure.
 */
import type { Config, GatewayRule } from '../../config/compile.ts'
import type { RequestPattern, Route, RouteSettings } from '../../config/compile-route.ts'
import type { Match } from '../../config/compile-rule.ts'
import type { TrafficClass } from '../../config/compile-shedding.ts'

export interface Matched {
  /** The most specific route of all readings of the path; absent if none matches. */
  route?: Route
  /** The settings of the route. If the readings of the path have several routes, the strictest value of each. */
  settings: RouteSettings
  /** Every rule that matches, for all kinds of callers. */
  rules: readonly GatewayRule[]
  /**
   * For each reading of the request, every traffic class that matches, for all kinds of callers. The least important
   * reading counts, so that no spelling can choose a better class. Empty if the config does not shed load.
   */
  classes: readonly (readonly TrafficClass[])[]
}

/** Matches a request with a config that depends on it (match-by-request.ts). */
export type MatchByRequest = (config: Matching, request: Request) => Matched

export type Matching = Pick<Config, 'routes' | 'routeDefaults' | 'rules' | 'shedding'>

/**
 * Matches a request.
 *
 * @param matchByRequest for a config that depends on the request
 */
export function match(config: Matching, request: Request, matchByRequest: MatchByRequest): Matched {
  return matchWithoutRequest(config) ?? matchByRequest(config, request)
}

/** Whether the match depends on the request, through routes, rules or traffic classes. If so, `matchByRequest` is needed. */
export function dependsOnRequest({ routes, rules, shedding }: Omit<Matching, 'routeDefaults'>): boolean {
  const isSelective = ({ methods, url }: RequestPattern = {}) => methods !== undefined || url !== undefined
  return routes.length > 0 || [...rules, ...(shedding?.classes ?? [])].some(({ match }) => isSelective(match))
}

/** Cached by config. Undefined if the match depends on the request. */
const matchesWithoutRequest = new WeakMap<Matching, Matched | undefined>()

function matchWithoutRequest(config: Matching): Matched | undefined {
  if (!matchesWithoutRequest.has(config)) {
    const { routeDefaults: settings, rules, shedding } = config
    matchesWithoutRequest.set(
      config,
      dependsOnRequest(config)
        ? undefined
        : {
            settings,
            rules: rules.filter(rule => ruleApplies(rule, settings, [])),
            classes: shedding ? [shedding.classes] : [],
          },
    )
  }
  return matchesWithoutRequest.get(config)
}

/** Whether a rule applies on these routes. Bad credentials are counted on every route. */
export function ruleApplies(
  { match, on }: GatewayRule,
  { isLimited }: RouteSettings,
  routes: readonly string[],
): boolean {
  if (!isLimited && on !== 'auth-failure') return false
  return isOnRoute(match, routes)
}

export function isOnRoute({ routes }: Match, names: readonly string[]): boolean {
  return routes === undefined || names.some(name => routes.has(name))
}
