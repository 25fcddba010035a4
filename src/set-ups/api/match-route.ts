/** Finds the route of a path. */
import type { Route } from './route.ts'

type Params = Readonly<Record<string, string>>

/** @returns the methods of the path if it has no route with this method; none: there is no such path */
export type MatchRoute<R> = (
  method: string,
  path: string,
) => { route: R; params: Params } | { methods: readonly string[] }

export function createMatchRoute<R extends Pick<Route, 'method' | 'path'>>(
  routes: readonly R[],
): MatchRoute<R> {
  const candidates = routes.map(route => ({ route, parts: route.path.split('/') }))

  return (method, path) => {
    const segments = path.split('/').map(decode)
    const matching = candidates.filter(({ parts }) => isPathOf(parts, segments))
    // A word is more specific than a parameter, and comes first in the table.
    const found = matching.find(({ route }) => route.method === method)
    if (!found) return { methods: [...new Set(matching.map(({ route }) => route.method))] }
    return { route: found.route, params: paramsOf(found.parts, segments as string[]) }
  }
}

const isParam = (part: string) => part.startsWith('{')

const isPathOf = (parts: readonly string[], segments: readonly (string | undefined)[]): boolean =>
  parts.length === segments.length &&
  parts.every((part, i) => (isParam(part) ? segments[i] : segments[i] === part))

const paramsOf = (parts: readonly string[], segments: readonly string[]): Params =>
  Object.fromEntries(parts.flatMap((part, i) => (isParam(part) ? [[part.slice(1, -1), segments[i]!]] : [])))

/** @returns undefined for a segment that is not UTF-8 */
function decode(segment: string): string | undefined {
  if (!segment.includes('%')) return segment
  try {
    return decodeURIComponent(segment)
  } catch {
    return undefined
  }
}
