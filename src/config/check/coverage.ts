/** Finds requests that no enforced rule is certain to cover. `check` warns about them, because they pass without a limit. */
import { canonicalPath } from '../../patterns/canonical.ts'
import { hostMatcher, pathMatcher } from '../../patterns/patterns.ts'
import { CALLER_MODES, type CallerMode } from '../caller-mode.ts'
import { credentialMethodsOf } from '../compile-credentials.ts'
import { ANONYMOUS } from '../compile-route.ts'
import { appliesToPlan } from '../compile-rule.ts'
import type { Mistake } from '../config-error.ts'
import { needsCredential, needsToken } from '../identity-parts.ts'
import type { RouteInput } from './route-schema.ts'
import { adaptiveOf, type RuleInput } from './rule-schema.ts'
import type { ConfigInput } from './schema.ts'
import { listed } from './values.ts'

/** A route, or, without a name, the requests that have no route. */
type Place = Pick<RouteInput, 'match'> & { name?: string; accept: readonly string[] }

/** A kind of caller. */
interface Caller {
  kind: 'key' | 'token' | 'anonymous'
  /** Absent: the caller has no credential. */
  plan?: string
  mode: CallerMode
}

export function findUncovered(config: ConfigInput): Mistake[] {
  const { rules: written = [] } = config
  if (written.length === 0) {
    const isIntended = isOfLimitsAlone(config) || placesOf(config).length === 0
    return isIntended ? [] : [{ path: 'rules', message: describeMissingRules(config) }]
  }
  const rules = written.filter(isEnforced)
  if (rules.length === 0) return [{ path: 'rules', message: describeMissingLimit(written) }]
  const gaps = placesOf(config).flatMap(place =>
    callersAt(place, config).flatMap(caller => {
      const methods = methodsCovered(
        place,
        rules.filter(rule => isFor(rule, place, caller)),
      )
      return methods === 'all' ? [] : [{ place: describePlace(place, methods, config), caller }]
    }),
  )
  // One message for all places that are open to the same callers.
  const byPlace = Map.groupBy(gaps, ({ place }) => place)
  const byCallers = Map.groupBy([...byPlace.keys()], place =>
    describeCallers(
      byPlace.get(place)!.map(({ caller }) => caller),
      config,
    ),
  )
  return [...byCallers].map(([callers, places]) => ({
    path: 'rules',
    message: `${joinAnd(places)} from ${callers} may pass without a limit. Add a rule that matches all of them, or set limits: false on a route if that is intended.`,
  }))
}

/** Settings that only have an effect on requests. */
const OF_REQUESTS = [
  ...['origin', 'plans', 'routes', 'shedding', 'credentials', 'hooks', 'address', 'allow', 'block'],
  ...['refusals', 'headers', 'cors'],
] as const satisfies (keyof ConfigInput)[]

/** Whether a config has limits by name and no settings for requests, so that probably no set-up uses it for requests. */
export function isOfLimitsAlone(config: ConfigInput): boolean {
  const { rules = [], limits = {} } = config
  const hasLimits = Object.keys(limits).length > 0
  return hasLimits && rules.length === 0 && OF_REQUESTS.every(key => config[key] === undefined)
}

/** Describes what passes without a limit in a config without rules. */
function describeMissingRules(config: ConfigInput): string {
  const isOpen = placesOf(config).some(({ accept }) => accept.includes(ANONYMOUS))
  const who = isOpen
    ? 'requests pass without a limit, even without a credential'
    : 'requests with a valid credential pass without a limit'
  return `has no rule: ${who}. Add a rule, unless this is intended.`
}

/** Describes which limit is missing if no rule limits what a caller can use. */
function describeMissingLimit(rules: readonly RuleInput[]): string {
  const adaptive = rules.find(rule => adaptiveOf(rule) && canRefuse(rule))
  return adaptive
    ? `has no limit for a single caller: the adaptive rule '${adaptive.name}' protects the origin, but one caller can use the whole limit. Add a rule with by: 'consumer' or by: 'address'.`
    : "has no rule that is enforced: every request passes without a limit. Set mode: 'enforce' for a rule, unless this is intended."
}

/** Whether a rule limits the requests of its callers. An adaptive rule limits all callers together. */
const isEnforced = (rule: RuleInput) => canRefuse(rule) && adaptiveOf(rule) === undefined

function canRefuse({ mode = 'enforce', candidateFor, enforce, on = 'request', cost, countIf }: RuleInput) {
  const isEnforced = mode === 'enforce' && candidateFor === undefined && enforce !== 0
  return isEnforced && cost !== 0 && on === 'request' && countIf === undefined
}

/** Every place in which requests are counted. */
function placesOf(config: ConfigInput): Place[] {
  const { routes = [] } = config
  const accept = config.credentials?.accept ?? credentialMethodsOf(config)
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
  const modesOf = (kind: Caller['kind']): readonly CallerMode[] =>
    dependsOnMode(config) && (kind === 'key' || hasTestTokens(config)) ? CALLER_MODES : ['live']
  return [...kinds].flatMap((kind): Caller[] =>
    kind === 'anonymous'
      ? [{ kind, mode: 'live' }]
      : plans.flatMap(plan => modesOf(kind).map(mode => ({ kind, plan, mode }))),
  )
}

const dependsOnMode = ({ rules = [] }: ConfigInput) => rules.some(({ match }) => match?.mode !== undefined)

const hasTestTokens = ({ credentials: { jwt = {} } = {} }: ConfigInput) =>
  Object.values(jwt).some(({ input }) => input.claims?.mode !== undefined)

/** Whether a rule counts the requests of such a caller at this place, if their method matches. */
function isFor(rule: RuleInput, place: Place, { kind, plan, mode }: Caller): boolean {
  const { match = {} } = rule
  const by = [rule.by].flat()
  if (by.some(needsCredential) && kind === 'anonymous') return false
  if (by.some(needsToken) && kind !== 'token') return false
  if (match.authenticated !== undefined && match.authenticated !== (kind !== 'anonymous')) return false
  if (match.mode !== undefined && match.mode !== mode) return false
  if (!appliesToPlan({ match }, plan)) return false
  if (match.routes && !(place.name !== undefined && match.routes.includes(place.name))) return false
  // `rule.plans` is ignored: a rule that is `false` for a plan leaves that plan out on purpose.
  return covers('host', match.host, place.match.host) && covers('path', match.path, place.match.path)
}

/** Whether the pattern of a rule certainly matches everything that the pattern of a route matches. */
function covers(part: 'host' | 'path', pattern: string | undefined, place: string | undefined): boolean {
  if (pattern === undefined || pattern === '*' || pattern === place) return true
  if (pattern === '/*') return true
  if (place === undefined) return false
  return part === 'path'
    ? pathMatcher(pattern)(canonicalPath(place))
    : hostMatcher(pattern)(place.toLowerCase())
}

function methodsCovered({ match }: Place, rules: readonly RuleInput[]): 'all' | ReadonlySet<string> {
  if (rules.some(rule => !rule.match?.methods)) return 'all'
  const covered = new Set(rules.flatMap(rule => rule.match?.methods ?? []))
  if (covered.has('GET')) covered.add('HEAD')
  const wanted = match.methods
  return wanted?.every(method => covered.has(method)) ? 'all' : covered
}

function describePlace({ name }: Place, methods: ReadonlySet<string>, { routes = [] }: ConfigInput): string {
  const others = routes.length > 0 ? 'requests without a route' : 'every request'
  const requests = name === undefined ? others : `requests on the route ${name}`
  return methods.size === 0 ? requests : `${requests} with a method other than ${joinAnd([...methods])}`
}

/** `callers with a credential`, `callers with a key on plan free and callers without a credential` */
function describeCallers(callers: readonly Caller[], config: ConfigInput): string {
  const plans = config.plans ?? ['free']
  const withCredential = callers.filter(({ kind }) => kind !== 'anonymous')
  const kinds = [...new Set(withCredential.map(({ kind }) => kind))]
  const own = [...new Set(withCredential.flatMap(({ plan }) => plan ?? []))]
  const what = kinds.length > 1 ? 'credential' : kinds[0]
  const onPlans = own.length === plans.length ? '' : ` on plan ${joinAnd(own)}`
  const modes = [...new Set(withCredential.map(({ mode }) => mode))]
  const inMode = dependsOnMode(config) && modes.length === 1 ? `${modes[0]} ` : ''
  return joinAnd([
    ...(kinds.length > 0 ? [`callers with a ${inMode}${what}${onPlans}`] : []),
    ...(callers.some(({ kind }) => kind === 'anonymous') ? ['callers without a credential'] : []),
  ])
}

const joinAnd = (items: readonly string[]) => (items.length > 1 ? listed(items, 'and') : items.join())
