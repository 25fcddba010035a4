/** Routes, from what the user wrote to what a request is compared with: the most specific first. Pure. */
import type { RouteInput, RouteMatchInput } from './check/route-schema.ts'

/** Taken from callers without a credential. */
export const ANONYMOUS = 'anonymous'

/** Named by the hook `identify` (hooks.ts). */
export const IDENTIFY = 'identify'

/** One way to say who one is, as a route lists it: `api-key`, `opaque-key`, the name of a JWT method, `identify`, `anonymous`. */
export type CredentialMethod = string

/** What a route sets for its requests. Every field is required, so that no place that makes one can leave it out. */
export interface RouteSettings {
  /** Credentials, in the order in which they are looked for. */
  accept: readonly CredentialMethod[]
  /** Multiplies the cost of every rule. */
  cost: number
  /** False: no request is counted. */
  isLimited: boolean
}

export interface Route extends RouteSettings {
  name: string
  match: Place
}

/** Method, host and path that a request is compared with. */
export interface Place {
  /** Undefined: any. */
  methods?: ReadonlySet<string>
  url?: URLPattern
}

export function compilePlace({ methods, host, path }: RouteMatchInput): Place {
  return {
    ...(methods && { methods: new Set(methods) }),
    ...((host || path) && {
      // Many origins take /Login for /login: a limit must not hang on the case.
      url: new URLPattern(
        { ...(host && { hostname: host }), ...(path && { pathname: path }) },
        { ignoreCase: true },
      ),
    }),
  }
}

/** In the order in which they are tried. Of two that are equally specific the one that is written first. */
export function compileRoutes(inputs: readonly RouteInput[], accept: readonly CredentialMethod[]): Route[] {
  return [...inputs]
    .sort((a, b) => compareSpecificity(specificity(a.match), specificity(b.match)))
    .map(input => ({
      name: input.name,
      match: compilePlace(input.match),
      ...compileRouteSettings(input, accept),
    }))
}

/** @param accept for what the route does not say; without any input: the settings of a request without a route */
export function compileRouteSettings(
  input: Omit<RouteInput, 'name' | 'match'>,
  accept: readonly CredentialMethod[],
): RouteSettings {
  return {
    accept: input.accept ?? accept,
    cost: input.cost ?? 1,
    isLimited: input.limits ?? true,
  }
}

/** Of each setting the stricter one, for a path that can be read in two ways that lead to two routes. */
export function stricter(a: RouteSettings, b: RouteSettings): RouteSettings {
  return {
    accept: a.accept.filter(method => b.accept.includes(method)),
    cost: Math.max(a.cost, b.cost),
    isLimited: a.isLimited || b.isLimited,
  }
}

/**
 * Host, then each segment of the path from the left, then the methods; the larger number is the more specific. A literal
 * is more specific than a name or a pattern, that more than a wildcard, and anything more than nothing.
 */
function specificity({ host, path, methods }: RouteMatchInput): number[] {
  const segments = path?.split('/').slice(1) ?? []
  return [host ? rank(host) : 0, methods ? 1 : 0, ...segments.map(rank)]
}

function rank(pattern: string): number {
  if (pattern === '*') return 1
  return /[*:{}()?+\\]/.test(pattern) ? 2 : 3
}

function compareSpecificity(
  [hostA = 0, methodsA = 0, ...a]: number[],
  [hostB = 0, methodsB = 0, ...b]: number[],
): number {
  if (hostA !== hostB) return hostB - hostA
  const longer = Math.max(a.length, b.length)
  for (let i = 0; i < longer; i++) {
    const difference = (b[i] ?? 0) - (a[i] ?? 0)
    if (difference !== 0) return difference
  }
  return methodsB - methodsA
}
