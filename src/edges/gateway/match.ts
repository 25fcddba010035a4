/**
 * What of the config is about this request: its route, and the rules for its method, host and path. Whose plan it is, only
 * the store knows. Pure.
 */
import type { Config, GatewayRule } from '../../config/compile.ts'
import type { CredentialMethod, Place, Route } from '../../config/compile-route.ts'
import { hostOf, readingsOf } from './path.ts'

export interface Matched {
  /** The most specific one of those that its ways lead to, if any matches. */
  route?: Route
  /** Credentials that are taken here, in the order in which they are looked for. */
  accept: readonly CredentialMethod[]
  /** Multiplies the cost of every rule. */
  cost: number
  /** Every rule that matches, for callers of whatever kind. */
  rules: readonly GatewayRule[]
}

type Matching = Pick<Config, 'routes' | 'rules' | 'credentials'>

/**
 * What the origin will make of a path that can be read in several ways is not known here. So a rule limits in whichever
 * way it matches, and where the ways lead to several routes, only what all of them accept is accepted, and the highest
 * cost counts.
 */
export function match({ routes, rules, credentials }: Matching, request: Request): Matched {
  const url = new URL(request.url)
  const hostname = hostOf(url)
  const paths = readingsOf(url.pathname)
  const methods = methodsOf(request)
  const routesAt = (path: string) =>
    methods.map(method => routes.find(({ match }) => matches(match, method, hostname, [path])))
  // Without the slash at its end only where that leads somewhere.
  const bare = paths.filter(path => /.\/$/.test(path)).map(path => path.slice(0, -1))
  const ways = new Set([
    ...paths.flatMap(routesAt),
    ...bare.flatMap(routesAt).filter(route => route !== undefined),
  ])
  const lists = [...ways].map(route => route?.accept ?? credentials.accept)
  const isLimited = [...ways].some(route => route?.isLimited ?? true)
  const names = new Set([...ways].map(route => route?.name))
  // Not the one that a client chooses by its spelling, or it would choose the budget that it is counted in.
  const route = routes.find(route => ways.has(route))
  return {
    ...(route && { route }),
    accept: lists.reduce((all, list) => all.filter(method => list.includes(method))),
    cost: Math.max(...[...ways].map(route => route?.cost ?? 1)),
    rules: rules.filter(
      ({ match, on }) =>
        // Guesses are counted wherever they can be made.
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
