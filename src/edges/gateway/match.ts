/**
 * The route of a request, and the rules for its method, host and path. Rules for a plan are among them: only the store knows
 * the plan of the caller. Pure.
 */
import type { Config, GatewayRule } from '../../config/compile.ts'
import type { CredentialMethod, Place, Route } from '../../config/compile-route.ts'
import { hostOf, readingsOf } from './path.ts'

export interface Matched {
  /** The most specific route among those of all readings of the path; absent where none matches. */
  route?: Route
  /** Credentials that are accepted here, in the order in which they are looked for. */
  accept: readonly CredentialMethod[]
  /** Multiplies the cost of every rule. */
  cost: number
  /** Every rule that matches, for callers of any kind. */
  rules: readonly GatewayRule[]
}

type Matching = Pick<Config, 'routes' | 'rules' | 'credentials'>

/**
 * How the origin reads a path that can be read in several ways is unknown here. So a rule applies if it matches any reading, and
 * where the readings have several routes, only credentials that all of them accept are accepted, and the highest cost
 * counts.
 */
export function match({ routes, rules, credentials }: Matching, request: Request): Matched {
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
  const lists = [...ways].map(route => route?.accept ?? credentials.accept)
  const isLimited = [...ways].some(route => route?.isLimited ?? true)
  const names = new Set([...ways].map(route => route?.name))
  // The spelling must not choose the route, or a client could choose the budget that it is counted in.
  const route = routes.find(route => ways.has(route))
  return {
    ...(route && { route }),
    accept: lists.reduce((all, list) => all.filter(method => list.includes(method))),
    cost: Math.max(...[...ways].map(route => route?.cost ?? 1)),
    rules: rules.filter(
      ({ match, on }) =>
        // Bad credentials are counted on every route.
        (isLimited || on === 'auth-failure') &&
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
