/** The route of a request and its rules, where the config asks about method, host or path. Pure. */
import { mergeStricter, type RequestPattern, type RouteSettings } from '../../config/compile-route.ts'
import { counts, isOnRoute, type Matched, type Matching } from './match.ts'
import { hostOf, readingsOf } from './path.ts'

/**
 * How the origin reads a path that can be read in several ways is unknown here. So a rule applies if it matches any reading, and
 * where the readings have several routes, the strictest of each setting holds: only credentials that all of them accept are
 * accepted, and the highest cost counts.
 */
export function matchEach({ routes, routeDefaults, rules, shedding }: Matching, request: Request): Matched {
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
  const settings = [...ways].map((route): RouteSettings => route ?? routeDefaults).reduce(mergeStricter)
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

/** Headers by which many frameworks take a POST for another method. */
const OVERRIDES = ['x-http-method-override', 'x-http-method', 'x-method-override']

/** As sent, and as the origin may take it. HEAD is GET without a body (RFC 9110, section 9.3.2). */
function methodsOf({ method, headers }: Request): string[][] {
  const claimed = OVERRIDES.flatMap(name => headers.get(name)?.trim().toUpperCase() ?? [])
  return [method, ...claimed].map(method => (method === 'HEAD' ? ['HEAD', 'GET'] : [method]))
}

function matches(
  { methods, url }: RequestPattern,
  sent: readonly string[],
  hostname: string,
  paths: readonly string[],
): boolean {
  const hasMethod = methods === undefined || sent.some(method => methods.has(method))
  return hasMethod && (url === undefined || paths.some(pathname => url.test({ hostname, pathname })))
}
