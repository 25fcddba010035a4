/** Which rules are about this request: method, host and path. Whose plan it is, only the store knows. Pure. */
import type { GatewayRule } from '../config/compile.ts'
import type { Match } from '../config/compile-rule.ts'
import { canonicalPath } from './path.ts'

/**
 * What the origin will make of a path that can be read in two ways is not known here. So a rule limits in whichever
 * way it matches, and lets anonymous callers in only where it matches in every way.
 */
export function match(rules: readonly GatewayRule[], request: Request): GatewayRule[] {
  const { hostname, pathname } = new URL(request.url)
  const resolved = canonicalPath(pathname)
  const readings = [pathname, resolved, resolved.replace(/(.)\/$/, '$1')].map(path => ({
    hostname,
    pathname: path,
  }))
  const [sent, canonical] = readings
  return rules.flatMap(rule => {
    const matching = readings.filter(place => rule.match.url?.test(place) ?? true)
    if (!matchesMethod(rule.match, request.method) || matching.length === 0) return []
    const isSure = matching.includes(sent!) && matching.includes(canonical!)
    return [isSure ? rule : { ...rule, anonymous: false }]
  })
}

/** HEAD is GET without a body (RFC 9110, section 9.3.2). */
function matchesMethod({ methods }: Match, method: string): boolean {
  return methods === undefined || methods.has(method) || (method === 'HEAD' && methods.has('GET'))
}
