/** Compiles `routes`, the most specific first. Pure. */
import type { RouteInput, RouteMatchInput } from './check/route-schema.ts'

/** The method of callers without a credential. */
export const ANONYMOUS = 'anonymous'

/** The method of callers that the hook `identify` names (hooks.ts). */
export const IDENTIFY = 'identify'

/** A way to authenticate, as a route lists it: `api-key`, `opaque-key`, the name of a JWT method, `identify` or `anonymous`. */
export type CredentialMethod = string

/** The settings of a route. Every field is required, so that the compiler reports each place that leaves one out. */
export interface RouteSettings {
  /** Accepted credentials, in the order in which they are tried. */
  accept: readonly CredentialMethod[]
  /** Factor for the cost of every rule. */
  cost: number
  /** False: rules do not count requests of the route. */
  isLimited: boolean
}

export interface Route extends RouteSettings {
  name: string
  match: RequestPattern
}

/** The methods, host and path of the requests that a route, a rule or a traffic class is for. */
export interface RequestPattern {
  /** Absent: all methods. */
  methods?: ReadonlySet<string>
  /** A pattern (src/patterns). Absent: all hosts. */
  host?: string
  /** A pattern. Absent: all paths. */
  path?: string
}

export function compileRequestPattern({ methods, host, path }: RouteMatchInput): RequestPattern {
  return {
    ...(methods && { methods: new Set(methods) }),
    ...(host && { host }),
    ...(path && { path }),
  }
}

/** Routes in the order in which they are tried: the most specific first. Equally specific routes keep the order of the config. */
export function compileRoutes(inputs: readonly RouteInput[], accept: readonly CredentialMethod[]): Route[] {
  return [...inputs]
    .sort((a, b) => compareSpecificity(specificity(a.match), specificity(b.match)))
    .map(input => ({
      name: input.name,
      match: compileRequestPattern(input.match),
      ...compileRouteSettings(input, accept),
    }))
}

/**
 * The settings of a route, with defaults.
 * @param input `{}` gives the settings of requests without a route
 * @param accept the default of `accept`
 */
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

/** Merges the settings of two routes by taking the stricter value of each, for a path that can be read in two ways. */
export function mergeStricter(a: RouteSettings, b: RouteSettings): RouteSettings {
  return {
    accept: a.accept.filter(method => b.accept.includes(method)),
    cost: Math.max(a.cost, b.cost),
    isLimited: a.isLimited || b.isLimited,
  }
}

/**
 * The ranks that are compared to order two routes: host first, then each segment of the path from the left, then the methods. A larger
 * number is more specific: a literal (3), a parameter or pattern (2), a wildcard (1), absent (0).
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
