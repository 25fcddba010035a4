/** Finds the route of a path. */
import type { Route } from './route.ts'

export interface MatchedRoute {
  route: Route
  params: Readonly<Record<string, string>>
}

/** @returns the methods of the path if it has no route with this method; none: there is no such path */
export type MatchRoute = (method: string, path: string) => MatchedRoute | { methods: readonly string[] }

export function createMatchRoute(routes: readonly Route[]): MatchRoute {
  const candidates = routes.map(route => ({ route, parts: route.path.split('/') }))
  // Every route begins with a word.
  const byWord = Map.groupBy(candidates, ({ parts }) => parts[0])

  return (method, path) => {
    const segments = path.split('/').map(decode)
    const matching = (byWord.get(segments[0]!) ?? []).flatMap(({ route, parts }) => {
      const params = paramsOf(parts, segments)
      return params ? [{ route, params }] : []
    })
    return (
      // A word is more specific than a parameter, and comes first in the table.
      matching.find(({ route }) => route.method === method) ?? {
        methods: [...new Set(matching.map(({ route }) => route.method))],
      }
    )
  }
}

function paramsOf(
  parts: readonly string[],
  segments: readonly (string | undefined)[],
): Record<string, string> | undefined {
  if (parts.length !== segments.length) return undefined
  const params: Record<string, string> = {}
  for (const [i, part] of parts.entries()) {
    const segment = segments[i]
    if (!segment) return undefined
    if (part.startsWith('{')) params[part.slice(1, -1)] = segment
    else if (part !== segment) return undefined
  }
  return params
}

/** @returns undefined for a segment that is not UTF-8 */
function decode(segment: string): string | undefined {
  if (!segment.includes('%')) return segment
  try {
    return decodeURIComponent(segment)
  } catch {
    return undefined
  }
}
