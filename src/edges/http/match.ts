/**
 * The route of a request, and the rules for its method, host and path. Rules for a plan are among them: only the store knows
 * the plan of the caller. Pure.
 */
import type { Config, GatewayRule } from '../../config/compile.ts'
import type { RequestPattern, Route, RouteSettings } from '../../config/compile-route.ts'
import type { Match } from '../../config/compile-rule.ts'
import type { TrafficClass } from '../../config/compile-shedding.ts'

export interface Matched {
  /** The most specific route among those of all readings of the path; absent where none matches. */
  route?: Route
  /** Those of its route; where the readings of the path have several routes, the strictest of each. */
  settings: RouteSettings
  /** Every rule that matches, for callers of any kind. */
  rules: readonly GatewayRule[]
  /**
   * For each way in which the request can be read every traffic class that matches, for callers of any kind. The least important of
   * them counts: no spelling chooses a better one. Empty where no traffic is shed.
   */
  classes: readonly (readonly TrafficClass[])[]
}

/** Matches a request of a config that asks about it (match-each.ts). */
export type MatchEach = (config: Matching, request: Request) => Matched

export type Matching = Pick<Config, 'routes' | 'routeDefaults' | 'rules' | 'shedding'>

/** @param each for a config that asks about the request */
export function match(config: Matching, request: Request, each: MatchEach): Matched {
  return forAll(config) ?? each(config, request)
}

/** Whether routes, rules or traffic classes ask about the request: then `matchEach` is needed. */
export function asksAboutRequest({ routes, rules, shedding }: Omit<Matching, 'routeDefaults'>): boolean {
  const asks = ({ methods, url }: RequestPattern = {}) => methods !== undefined || url !== undefined
  return routes.length > 0 || [...rules, ...(shedding?.classes ?? [])].some(({ match }) => asks(match))
}

/** By config, for one in which neither routes nor rules ask about the request: every request matches the same. */
const matchedByAll = new WeakMap<Matching, Matched | undefined>()

function forAll(config: Matching): Matched | undefined {
  if (!matchedByAll.has(config)) {
    const { routeDefaults: settings, rules, shedding } = config
    matchedByAll.set(
      config,
      asksAboutRequest(config)
        ? undefined
        : {
            settings,
            rules: rules.filter(rule => counts(rule, settings, [])),
            classes: shedding ? [shedding.classes] : [],
          },
    )
  }
  return matchedByAll.get(config)
}

/** Bad credentials are counted on every route. */
export function counts(
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
