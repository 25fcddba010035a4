/** Which rules are about this request: method, host and path. Whose plan it is, only the store knows. Pure. */
import type { Match, Rule } from '../config/compile.ts'
import { canonicalPath } from './path.ts'

export function match(rules: readonly Rule[], request: Request): Rule[] {
  const url = new URL(request.url)
  const place = { hostname: url.hostname, pathname: canonicalPath(url.pathname) }
  return rules.filter(rule => matches(rule.match, request.method, place))
}

function matches({ methods, url }: Match, method: string, place: URLPatternInit): boolean {
  return (methods?.has(method) ?? true) && (url?.test(place) ?? true)
}
