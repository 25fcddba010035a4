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

/** Matches a request whose path `readingsOf` has not refused. */
export type MatchRequest = (request: Request) => Matched

export type Matching = Pick<Config, 'routes' | 'routeDefaults' | 'rules' | 'shedding'>

/**
 * Creates the function that matches the requests of a config.
 *
 * @param createMatchByRequest for a config that depends on the request
 */
export function createMatch(
  config: Matching,
  createMatchByRequest: (config: Matching) => MatchRequest,
): MatchRequest {
  if (dependsOnRequest(config)) return createMatchByRequest(config)
  const { routeDefaults: settings, rules, shedding } = config
  const matched: Matched = {
    settings,
    rules: rules.filter(rule => ruleApplies(rule, settings, [])),
    classes: shedding ? [shedding.classes] : [],
  }
  return () => matched
}

/** Whether the match depends on the request, through routes, rules or traffic classes. If so, `createMatchByRequest` is needed. */
export function dependsOnRequest({ routes, rules, shedding }: Omit<Matching, 'routeDefaults'>): boolean {
  const isSelective = ({ methods, host, path }: RequestPattern = {}) =>
    (methods ?? host ?? path) !== undefined
  return routes.length > 0 || [...rules, ...(shedding?.classes ?? [])].some(({ match }) => isSelective(match))
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
