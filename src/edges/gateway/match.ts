/**
 * The route of a request, and the rules for its method, host and path. Rules for a plan are among them: only the store knows
 * the plan of the caller. Pure.
 */
import type { Config, GatewayRule } from '../../config/compile.ts'
import { type Place, type Route, type RouteSettings, stricter } from '../../config/compile-route.ts'
import { hostOf, readingsOf } from './path.ts'

export interface Matched {
  /** The most specific route among those of all readings of the path; absent where none matches. */
  route?: Route
  /** Those of its route; where the readings of the path have several routes, the strictest of each. */
  settings: RouteSettings
  /** Every rule that matches, for callers of any kind. */
  rules: readonly GatewayRule[]
}

type Matching = Pick<Config, 'routes' | 'elsewhere' | 'rules'>

/**
 * How the origin reads a path that can be read in several ways is unknown here. So a rule applies if it matches any reading, and
 * where the readings have several routes, the strictest of each setting holds: only credentials that all of them accept are
 * accepted, and the highest cost counts.
 */
export function match({ routes, elsewhere, rules }: Matching, request: Request): Matched {
  const url = new URL(request.url)
  const hostname = hostOf(url)
  const paths = readingsOf(url.pathname)
  const methods = methodsOf(request)
  const routesAt = (path: string) =>
    methods.map(method => routes.find(({ match }) => matches(match, method, hostname, [path])))
  // Without the slash at its end only where that has a route.
  const bare = paths.filter(path => /.\/$/.test(path)).map(path => path.slice(0, -1))
  const ways = new Set([
    ...paths.flatMap(routesAt),
    ...bare.flatMap(routesAt).filter(route => route !== undefined),
  ])
  const settings = [...ways].map((route): RouteSettings => route ?? elsewhere).reduce(stricter)
  const names = new Set([...ways].map(route => route?.name))
  // The spelling must not choose the route, or a client could choose the budget that it is counted in.
  const route = routes.find(route => ways.has(route))
  return {
    ...(route && { route }),
    settings,
    rules: rules.filter(
      ({ match, on }) =>
        // Bad credentials are counted on every route.
        (settings.isLimited || on === 'auth-failure') &&
        matches(match, methods.flat(), hostname, [...paths, ...bare]) &&
        (match.routes === undefined || [...names].some(name => name && match.routes!.has(name))),
    ),
  }
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
