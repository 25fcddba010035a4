/**
 * The route of a request, and the rules for its method, host and path. Rules for a plan are among them: only the store knows
 * the plan of the caller. Pure.
 */
import type { Config, GatewayRule } from '../../config/compile.ts'
import { type Place, type Route, type RouteSettings, stricter } from '../../config/compile-route.ts'
import type { Match } from '../../config/compile-rule.ts'
import type { TrafficClass } from '../../config/compile-shedding.ts'
import { hostOf, readingsOf } from './path.ts'

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

type Matching = Pick<Config, 'routes' | 'elsewhere' | 'rules' | 'shedding'>

/**
 * How the origin reads a path that can be read in several ways is unknown here. So a rule applies if it matches any reading, and
 * where the readings have several routes, the strictest of each setting holds: only credentials that all of them accept are
 * accepted, and the highest cost counts.
 */
export function match(config: Matching, request: Request): Matched {
  const alike = forAll(config)
  return alike === DIFFERENT ? matchEach(config, request) : alike
}

/** By config, for one in which neither routes nor rules ask about the request: every request matches the same. */
const matchedByAll = new WeakMap<Matching, Matched | typeof DIFFERENT>()
const DIFFERENT = 'requests differ'

function forAll(config: Matching): Matched | typeof DIFFERENT {
  let alike = matchedByAll.get(config)
  if (alike === undefined) {
    const { routes, elsewhere, rules, shedding } = config
    const classes = shedding?.classes ?? []
    const asks = ({ methods, url }: Place = {}) => methods !== undefined || url !== undefined
    const isDifferent = routes.length > 0 || [...rules, ...classes].some(({ match }) => asks(match))
    const settings = elsewhere
    alike = isDifferent
      ? DIFFERENT
      : {
          settings,
          rules: rules.filter(rule => counts(rule, settings, [])),
          classes: classes.length > 0 ? [classes] : [],
        }
    matchedByAll.set(config, alike)
  }
  return alike
}

function matchEach({ routes, elsewhere, rules, shedding }: Matching, request: Request): Matched {
  const url = new URL(request.url)
  const hostname = hostOf(url)
  const paths = readingsOf(url.pathname)
  const methods = methodsOf(request)
  const routesAt = (path: string) =>
    methods.map(method => routes.find(({ match }) => matches(match, method, hostname, [path])))
  const classesAt = (path: string, method: readonly string[]) => {
    const route = routes.find(({ match }) => matches(match, method, hostname, [path]))
    return shedding!.classes.filter(
      ({ match }) =>
        !match || (isOnRoute(match, route ? [route.name] : []) && matches(match, method, hostname, [path])),
    )
  }
  // Without the slash at its end only where that has a route.
  const bare = paths.filter(path => /.\/$/.test(path)).map(path => path.slice(0, -1))
  const ways = new Set([
    ...paths.flatMap(routesAt),
    ...bare.flatMap(routesAt).filter(route => route !== undefined),
  ])
  const settings = [...ways].map((route): RouteSettings => route ?? elsewhere).reduce(stricter)
  const names = [...ways].flatMap(route => route?.name ?? [])
  // The spelling must not choose the route, or a client could choose the budget that it is counted in.
  const route = routes.find(route => ways.has(route))
  const [sent, everyPath] = [methods.flat(), [...paths, ...bare]]
  return {
    ...(route && { route }),
    settings,
    rules: rules.filter(
      rule => counts(rule, settings, names) && matches(rule.match, sent, hostname, everyPath),
    ),
    classes: shedding ? paths.flatMap(path => methods.map(method => classesAt(path, method))) : [],
  }
}

/** Bad credentials are counted on every route. */
function counts(
  { match, on }: GatewayRule,
  { isLimited }: RouteSettings,
  routes: readonly string[],
): boolean {
  if (!isLimited && on !== 'auth-failure') return false
  return isOnRoute(match, routes)
}

function isOnRoute({ routes }: Match, names: readonly string[]): boolean {
  return routes === undefined || names.some(name => routes.has(name))
}

/** Headers by which many frameworks take a POST for another method. */
const OVERRIDES = ['x-http-method-override', 'x-http-method', 'x-method-override']

/** As sent, and as the origin may take it. HEAD is GET without a body (RFC 9110, section 9.3.2). */
function methodsOf({ method, headers }: Request): string[][] {
  const claimed = OVERRIDES.flatMap(name => headers.get(name)?.trim().toUpperCase() ?? [])
  return [method, ...claimed].map(method => (method === 'HEAD' ? ['HEAD', 'GET'] : [method]))
}

function matches(
  { methods, url }: Place,
  sent: readonly string[],
  hostname: string,
  paths: readonly string[],
): boolean {
  const hasMethod = methods === undefined || sent.some(method => methods.has(method))
  return hasMethod && (url === undefined || paths.some(pathname => url.test({ hostname, pathname })))
}
