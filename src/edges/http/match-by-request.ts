/** Finds the route and the rules of a request, if the config depends on method, host or path. Pure. */
import { mergeStricter, type RequestPattern, type RouteSettings } from '../../config/compile-route.ts'
import { isMethodOverride } from './header-names.ts'
import { isOnRoute, type Matched, type Matching, ruleApplies } from './match.ts'
import { hostOf, readingsOf } from './path.ts'

/**
 * Some paths can be read in several ways, and the gateway does not know which one the origin chooses. So a
 * rule applies if it matches any reading. If the readings have different routes, the strictest value of each setting
 * applies: only credentials that all of them accept, and the highest cost.
 */
export function matchByRequest(
  { routes, routeDefaults, rules, shedding }: Matching,
  request: Request,
): Matched {
  const url = new URL(request.url)
  const hostname = hostOf(url)
  const paths = readingsOf(url.pathname)
  const methods = httpMethodsOf(request)
  const routesAt = (path: string) =>
    methods.map(method => routes.find(({ match }) => matches(match, method, hostname, [path])))
  const classesAt = (path: string, method: readonly string[]) => {
    const route = routes.find(({ match }) => matches(match, method, hostname, [path]))
    return shedding!.classes.filter(
      ({ match }) =>
        !match || (isOnRoute(match, route ? [route.name] : []) && matches(match, method, hostname, [path])),
    )
  }
  // A path without its last slash counts only if it has a route.
  const withoutSlash = paths.filter(path => /.\/$/.test(path)).map(path => path.slice(0, -1))
  const routesOfReadings = new Set([
    ...paths.flatMap(routesAt),
    ...withoutSlash.flatMap(routesAt).filter(route => route !== undefined),
  ])
  const settings = [...routesOfReadings]
    .map((route): RouteSettings => route ?? routeDefaults)
    .reduce(mergeStricter)
  const names = [...routesOfReadings].flatMap(route => route?.name ?? [])
  // The spelling must not choose the route, or clients could choose their budget.
  const route = routes.find(route => routesOfReadings.has(route))
  const [everyMethod, everyPath] = [methods.flat(), [...paths, ...withoutSlash]]
  return {
    ...(route && { route }),
    settings,
    rules: rules.filter(
      rule => ruleApplies(rule, settings, names) && matches(rule.match, everyMethod, hostname, everyPath),
    ),
    classes: shedding ? paths.flatMap(path => methods.map(method => classesAt(path, method))) : [],
  }
}

/**
 * The methods that the origin may see: as sent, and as overridden. HEAD is GET without a body (RFC 9110, section
 * 9.3.2).
 */
function httpMethodsOf({ method, headers }: Request): string[][] {
  const claimed: string[] = []
  headers.forEach((value, name) => {
    // Of a header that was sent twice, origins may read any value.
    if (isMethodOverride(name)) claimed.push(...value.split(',').map(method => method.trim().toUpperCase()))
  })
  return [method, ...claimed].map(method => (method === 'HEAD' ? ['HEAD', 'GET'] : [method]))
}

function matches(
  { methods, url }: RequestPattern,
  methodsSent: readonly string[],
  hostname: string,
  paths: readonly string[],
): boolean {
  const hasMethod = methods === undefined || methodsSent.some(method => methods.has(method))
  return hasMethod && (url === undefined || paths.some(pathname => url.test({ hostname, pathname })))
}
