/** Requests that no enforced rule is sure to cover: what `check` warns of, since they pass without a limit. */
import { methodsOf } from '../compile-credentials.ts'
import { ANONYMOUS } from '../compile-route.ts'
import type { Mistake } from '../config-error.ts'
import { needsCredential, needsToken } from '../identity-parts.ts'
import type { RouteInput } from './route-schema.ts'
import { adaptiveOf, type RuleInput } from './rule-schema.ts'
import type { ConfigInput } from './schema.ts'
import { listed } from './values.ts'

/** A route, or what has none. */
type Place = Pick<RouteInput, 'match'> & { name?: string; accept: readonly string[] }

/** Who calls: without a plan where there is no credential. */
interface Caller {
  kind: 'key' | 'token' | 'anonymous'
  plan?: string
}

export function uncovered(config: ConfigInput): Mistake[] {
  // Limits by name have no requests that they could leave out.
  if (!config.rules) return []
  const rules = config.rules.filter(isEnforced)
  if (rules.length === 0) {
    return [{ path: 'rules', message: 'has no rule that is enforced: every request passes without a limit.' }]
  }
  const gaps = placesOf(config).flatMap(place =>
    callersAt(place, config).flatMap(caller => {
      const methods = methodsCovered(
        place,
        rules.filter(rule => isFor(rule, place, caller)),
      )
      return methods === 'all' ? [] : [{ where: wordsOf(place, methods, config), caller }]
    }),
  )
  // The same callers for all that they can reach.
  const byPlace = Map.groupBy(gaps, ({ where }) => where)
  const places = Map.groupBy([...byPlace.keys()], where =>
    whoIn(
      byPlace.get(where)!.map(({ caller }) => caller),
      config,
    ),
  )
  return [...places].map(([who, wheres]) => ({
    path: 'rules',
    message: `no enforced rule is certain to match ${listedOne(wheres)} from ${who}. A request that matches no rule passes without a limit: add a rule for all of them, or set limits: false on a route that needs no limit.`,
  }))
}

function isEnforced(rule: RuleInput): boolean {
  const { mode = 'enforce', candidateFor, enforce, on = 'request', cost } = rule
  const isOfCaller = adaptiveOf(rule) === undefined
  return (
    mode === 'enforce' &&
    candidateFor === undefined &&
    enforce !== 0 &&
    cost !== 0 &&
    on === 'request' &&
    isOfCaller
  )
}

/** Where requests are counted. */
function placesOf(config: ConfigInput): Place[] {
  const { routes = [] } = config
  const accept = config.credentials?.accept ?? methodsOf(config)
  const places = routes
    .filter(({ limits }) => limits !== false)
    .map(route => ({ ...route, accept: route.accept ?? accept }))
  const isAll = ({ match: { methods, host, path } }: RouteInput) =>
    !methods && (!host || host === '*') && (!path || path === '/*' || path === '*')
  return routes.some(isAll) ? places : [...places, { match: {}, accept }]
}

function callersAt({ accept }: Place, config: ConfigInput): Caller[] {
  const issuers = Object.keys(config.credentials?.jwt ?? {})
  const kinds = new Set(
    accept.map(method => (method === ANONYMOUS ? 'anonymous' : issuers.includes(method) ? 'token' : 'key')),
  )
  const plans = config.plans ?? ['free']
  return [...kinds].flatMap((kind): Caller[] =>
    kind === 'anonymous' ? [{ kind }] : plans.map(plan => ({ kind, plan })),
  )
}

/** Whether a rule counts what such a caller sends there, where its methods are right. */
function isFor(rule: RuleInput, place: Place, { kind, plan }: Caller): boolean {
  const { match = {} } = rule
  const by = [rule.by].flat()
  if (by.some(needsCredential) && kind === 'anonymous') return false
  if (by.some(needsToken) && kind !== 'token') return false
  if (match.authenticated !== undefined && match.authenticated !== (kind !== 'anonymous')) return false
  if (match.plans && !(plan !== undefined && match.plans.includes(plan))) return false
  if (match.routes && !(place.name !== undefined && match.routes.includes(place.name))) return false
  // A rule that is switched off for a plan leaves that plan out on purpose.
  return (
    isMatching('hostname', match.host, place.match.host) &&
    isMatching('pathname', match.path, place.match.path)
  )
}

/** Whether the pattern of a rule matches all that the pattern of a route does, as far as that can be seen. */
function isMatching(
  part: 'hostname' | 'pathname',
  pattern: string | undefined,
  place: string | undefined,
): boolean {
  if (pattern === undefined || pattern === '*' || pattern === place) return true
  if (pattern === '/*') return true
  return (
    place !== undefined && new URLPattern({ [part]: pattern }, { ignoreCase: true }).test({ [part]: place })
  )
}

function methodsCovered({ match }: Place, rules: readonly RuleInput[]): 'all' | ReadonlySet<string> {
  if (rules.some(rule => !rule.match?.methods)) return 'all'
  const covered = new Set(rules.flatMap(rule => rule.match?.methods ?? []))
  if (covered.has('GET')) covered.add('HEAD')
  const wanted = match.methods
  return wanted?.every(method => covered.has(method)) ? 'all' : covered
}

function wordsOf({ name }: Place, methods: ReadonlySet<string>, { routes = [] }: ConfigInput): string {
  const others = routes.length > 0 ? 'requests without a route' : 'every request'
  const where = name === undefined ? others : `requests on the route ${name}`
  return methods.size === 0 ? where : `${where} with a method other than ${listedOne([...methods])}`
}

/** `callers with a credential`, `callers with a key on plan free and callers without a credential` */
function whoIn(callers: readonly Caller[], config: ConfigInput): string {
  const plans = config.plans ?? ['free']
  const withCredential = callers.filter(({ kind }) => kind !== 'anonymous')
  const kinds = [...new Set(withCredential.map(({ kind }) => kind))]
  const own = [...new Set(withCredential.flatMap(({ plan }) => plan ?? []))]
  const what = kinds.length > 1 ? 'credential' : kinds[0]
  const onPlans = own.length === plans.length ? '' : ` on plan ${listedOne(own)}`
  return listedOne([
    ...(kinds.length > 0 ? [`callers with a ${what}${onPlans}`] : []),
    ...(callers.some(({ kind }) => kind === 'anonymous') ? ['callers without a credential'] : []),
  ])
}

const listedOne = (items: readonly string[]) => (items.length > 1 ? listed(items, 'and') : items.join())
