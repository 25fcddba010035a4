/** Finds mistakes in routes that the schema cannot find. */
import { ANONYMOUS, type CredentialMethod, IDENTIFY } from '../compile-route.ts'
import type { Mistake } from '../config-error.ts'
import { didYouMean } from './did-you-mean.ts'
import type { RouteInput, RouteMatchInput } from './route-schema.ts'

/** Finds routes that conflict with each other, and credentials that the config does not have. @param methods the config's credentials */
export function mistakesOfRoutes(
  routes: readonly RouteInput[],
  methods: readonly CredentialMethod[],
): Mistake[] {
  return routes.flatMap(({ name, match, accept, cost, limits }, i) => {
    const twin = routes.findIndex(other => other.name === name)
    const same = routes.findIndex(other => placeOf(other.match) === placeOf(match))
    const path = `routes[${i}]`
    return [
      ...(same < i && twin === i
        ? [
            {
              path: `${path}.match`,
              message: `is the same as in routes[${same}], which comes first: no request would get this route. Leave one of them out.`,
            },
          ]
        : []),
      ...(limits === false && cost !== undefined
        ? [
            {
              path: `${path}.cost`,
              message: `${cost} has no effect with limits: false. Leave one of them out.`,
            },
          ]
        : []),
      ...(twin < i
        ? [
            {
              path: `${path}.name`,
              message: `'${name}' is already the name of routes[${twin}]. Give each route its own name.`,
            },
          ]
        : []),
      ...mistakesOfAccept(accept, methods, `${path}.accept`),
    ]
  })
}

export function mistakesOfAccept(
  accept: readonly string[] | undefined,
  methods: readonly CredentialMethod[],
  path: string,
): Mistake[] {
  const known = [...methods, ANONYMOUS]
  return (accept ?? []).flatMap((method, i) => {
    if (!known.includes(method)) {
      const fix = FIXES.get(method) ?? `Use one of: ${known.join(', ')}`
      const meant = didYouMean(method, known)
      return [
        { path: `${path}[${i}]`, message: `'${method}' is not a credential of this config.${meant} ${fix}.` },
      ]
    }
    if (accept!.indexOf(method) < i) {
      return [{ path: `${path}[${i}]`, message: `'${method}' is listed twice. Leave one out.` }]
    }
    if (method === ANONYMOUS && i < accept!.length - 1) {
      return [
        {
          path: `${path}[${i}]`,
          message: `'anonymous' is not the last one. Move it to the end: credentials after it are never looked for.`,
        },
      ]
    }
    return []
  })
}

/** A text that is equal for two routes with the same host, path and methods, in any case and order. */
function placeOf({ host = '', path = '', methods = [] }: RouteMatchInput): string {
  return [host, path, ...[...methods].sort()].join(' ').toLowerCase()
}

/** Fixes for credentials that a config can have, but does not have. */
const FIXES: ReadonlyMap<string, string> = new Map([
  ['opaque-key', 'Add credentials.opaqueKeys'],
  [IDENTIFY, 'Add hooks.identify'],
])
