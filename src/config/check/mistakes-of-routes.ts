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
              message: `is that of routes[${same}], which comes first: no request would have this route. Leave one out.`,
            },
          ]
        : []),
      ...(limits === false && cost !== undefined
        ? [
            {
              path: `${path}.cost`,
              message: `${cost} means nothing with limits: false. Leave one of them out.`,
            },
          ]
        : []),
      ...(twin < i
        ? [
            {
              path: `${path}.name`,
              message: `'${name}' is taken by routes[${twin}]. Give each route a name of its own.`,
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
      const fix = FIXES[method] ?? `There are ${known.join(', ')}`
      const meant = didYouMean(method, known)
      return [
        { path: `${path}[${i}]`, message: `'${method}' is not a credential of this config.${meant} ${fix}.` },
      ]
    }
    if (accept!.indexOf(method) < i) {
      return [{ path: `${path}[${i}]`, message: `'${method}' is there twice. Leave one out.` }]
    }
    if (method === ANONYMOUS && i < accept!.length - 1) {
      return [
        {
          path: `${path}[${i}]`,
          message: `'anonymous' is not the last. Put it at the end: what follows is never looked for.`,
        },
      ]
    }
    return []
  })
}

/** A text that is equal for two routes that match the same requests. */
function placeOf({ host = '', path = '', methods = [] }: RouteMatchInput): string {
  return [host, path, ...[...methods].sort()].join(' ').toLowerCase()
}

/** Fixes for credentials that a config can have, but does not have. */
const FIXES: Record<string, string> = {
  'opaque-key': 'Add credentials.opaqueKeys',
  [IDENTIFY]: 'Add hooks.identify',
}
