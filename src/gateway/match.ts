/**
 * What of the config is about this request: its route, and the rules for its method, host and path. Whose plan it is, only
 * the store knows. Pure.
 */
import type { Config, GatewayRule } from '../config/compile.ts'
import { ANONYMOUS, type CredentialMethod, type Place, type Route } from '../config/compile-route.ts'
import { canonicalPath } from './path.ts'

export interface Matched {
  /** The most specific one, if any matches. */
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
 * What the origin will make of a path that can be read in two ways is not known here. So a rule limits in whichever way
 * it matches, and where the ways lead to several routes, only what all of them accept is accepted, and the highest cost
 * counts.
 */
export function match({ routes, rules, credentials }: Matching, request: Request): Matched {
  const readings = readingsOf(request.url)
  const found = readings.map(reading => routes.find(({ match }) => matches(match, request.method, [reading])))
  // As sent, as it is spelled out, and without the slash at its end where that leads somewhere.
  const [sent, canonical, bare] = found
  const ways = new Set([canonical, sent, ...(bare ? [bare] : [])])
  const lists = [...ways].map(route => route?.accept ?? credentials.accept)
  const isLimited = [...ways].some(route => route?.isLimited ?? true)
  const names = new Set(found.map(route => route?.name))
  return {
    ...(canonical && { route: canonical }),
    accept: lists.reduce((all, list) => all.filter(method => list.includes(method))),
    cost: Math.max(...[...ways].map(route => route?.cost ?? 1)),
    rules: rules.filter(
      ({ match, on }) =>
        // Guesses are counted wherever they can be made.
        (isLimited || on === 'auth-failure') &&
        matches(match, request.method, readings) &&
        (match.routes === undefined || [...names].some(name => name && match.routes!.has(name))),
    ),
  }
}

export function acceptsAnonymous({ accept }: Matched): boolean {
  return accept.includes(ANONYMOUS)
}

interface Reading {
  hostname: string
  pathname: string
}

function readingsOf(url: string): Reading[] {
  const { hostname, pathname } = new URL(url)
  const resolved = canonicalPath(pathname)
  return [pathname, resolved, resolved.replace(/(.)\/$/, '$1')].map(path => ({ hostname, pathname: path }))
}

function matches({ methods, url }: Place, method: string, readings: readonly Reading[]): boolean {
  // HEAD is GET without a body (RFC 9110, section 9.3.2).
  const hasMethod = methods === undefined || methods.has(method) || (method === 'HEAD' && methods.has('GET'))
  return hasMethod && (url === undefined || readings.some(reading => url.test(reading)))
}
