/** Finds mistakes in `units` and `countIf` that the schema cannot find: between their settings, and with the rest of the config. */
import { ALL_ALGORITHMS } from '../../algorithms/all.ts'
import { ALGORITHM_NAMES } from '../../algorithms/index.ts'
import { pathMatcher } from '../../patterns/patterns.ts'
import { canSettle, type GatewayRule, type LimitRule, REQUESTS } from '../compile-rule.ts'
import type { Mistake } from '../config-error.ts'
import { needsCredential } from '../identity-parts.ts'
import { didYouMean } from './did-you-mean.ts'
import type { LimitRuleInput, RuleInput } from './rule-schema.ts'
import type { ConfigInput } from './schema.ts'
import type { UnitInput } from './units-schema.ts'
import { listed } from './values.ts'

/** Names that the headers of other rules have, and these rules. */
const TAKEN: Readonly<Record<string, string>> = {
  [REQUESTS]: 'rules without a unit',
  'concurrent-requests': 'concurrency rules',
}

/** Finds units whose settings contradict each other, and hooks that are never called. */
export function mistakesOfUnits({
  units = {},
  rules = [],
  hooks = {},
  onClientGone,
}: ConfigInput): Mistake[] {
  const mistakes = Object.entries(units).flatMap(([name, unit]): Mistake[] => {
    const path = `units.${name}`
    const taken = TAKEN[name] && [{ path, message: `is the unit of ${TAKEN[name]}. Choose another name.` }]
    const ofUnit = [...mistakesOfActual(unit, hooks.actual !== undefined), ...mistakesOfUnreadable(unit)]
    return taken || ofUnit.map(([key, message]) => ({ path: `${path}.${key}`, message }))
  })
  if (hooks.actual && !Object.values(units).some(({ actual }) => actual === 'hook')) {
    const message = "is never called: no unit has actual: 'hook'. Add it to a unit, or leave this out."
    mistakes.push({ path: 'hooks.actual', message })
  }
  if (hooks.amounts && !rules.some(hasUnit)) {
    const message = 'is never called: no rule has a unit. Add one, or use hooks.cost for rules of requests.'
    mistakes.push({ path: 'hooks.amounts', message })
  }
  if (onClientGone === 'read-on' && !Object.values(units).some(({ actual }) => typeof actual === 'object')) {
    const message =
      "'read-on' has no effect: no unit is read from replies. Use 'wait', or add actual to a unit."
    mistakes.push({ path: 'onClientGone', message })
  }
  return mistakes
}

/** @returns the key and the message of each mistake */
function mistakesOfActual({ actual }: UnitInput, hasHook: boolean): [key: string, message: string][] {
  if (actual === 'hook' && !hasHook) return [['actual', "'hook' needs the hook: add hooks.actual."]]
  if (typeof actual !== 'object') return []
  const { weights, includeUsage, errors, keep, usage, header } = actual
  const sources = (['usage', 'header', 'json'] as const).filter(key => actual[key] !== undefined)
  if (sources.length !== 1) {
    const found = sources.length === 0 ? 'has no source' : `has ${listed(sources, 'and')}`
    return [['actual', `${found}. Write one of usage, header and json.`]]
  }
  const unused: [key: string, needed: string, isUnused: unknown][] = [
    ['weights', 'usage', weights && !usage],
    ['includeUsage', "usage: 'openai'", includeUsage && usage !== 'openai'],
    ['errors', 'usage', errors && !usage],
    ['keep', 'header', keep && !header],
  ]
  return unused.flatMap(([key, needed, isUnused]): [string, string][] =>
    isUnused ? [[`actual.${key}`, `has no effect without ${needed}. Leave it out.`]] : [],
  )
}

function mistakesOfUnreadable({ estimate, estimateUnreadable }: UnitInput): [key: string, message: string][] {
  if (estimateUnreadable === undefined || isFromBody(estimate)) return []
  return [['estimateUnreadable', "has no effect without estimate: 'llm'. Leave it out."]]
}

const isFromBody = (estimate: UnitInput['estimate']) => estimate === 'llm' || typeof estimate === 'object'

const hasUnit = ({ unit = REQUESTS }: RuleInput | LimitRuleInput) => unit !== REQUESTS

/** Finds mistakes in `unit` and `countIf` of a rule. @param compiled its first variant */
export function mistakesOfCounted(
  rule: RuleInput | LimitRuleInput,
  compiled: GatewayRule | LimitRule,
  path: string,
  { units = {}, store }: ConfigInput,
): Mistake[] {
  const { unit = REQUESTS, algorithm } = rule
  const { cost, countIf, on } = { cost: undefined, countIf: undefined, on: undefined, ...rule }
  if (!hasUnit(rule) && !countIf) return []
  const [key, what] = hasUnit(rule) ? ['unit', `'${unit}' `] : ['countIf', '']
  const mistakes: Mistake[] = []
  const report = (key: string, message: string) => mistakes.push({ path: `${path}.${key}`, message })
  if (hasUnit(rule) && !Object.hasOwn(units, unit)) {
    const known = Object.keys(units)
    const fix = didYouMean(unit, [REQUESTS, ...known]) || ' Add it there.'
    report('unit', `'${unit}' is not in units (${known.join(', ') || 'which is empty'}).${fix}`)
  }
  if (!canSettle(ALL_ALGORITHMS.countings[algorithm]!)) {
    report(key, `${what}cannot be combined with ${algorithm}. Use ${listed(SETTLING, 'or')}.`)
  }
  if (on === 'auth-failure') {
    report(key, `${what}cannot be combined with on: 'auth-failure', which counts requests. Leave it out.`)
  }
  if (hasUnit(rule) && countIf) {
    report('countIf', `cannot be combined with unit: '${unit}', because it counts requests. Leave it out.`)
  }
  if (hasUnit(rule) && cost !== undefined) {
    report(
      'cost',
      `${cost} has no effect with unit: '${unit}': each request has an amount of it. Leave it out.`,
    )
  }
  if (countIf && cost === 0) report('cost', '0 with countIf counts no request. Leave it out.')
  if (rule.lease) {
    report('lease', `cannot be combined with ${key}: not all requests cost the same. Leave it out.`)
  }
  if (store?.cluster && compiled.settlement) {
    report(
      key,
      `${what}cannot be combined with store.cluster: its reservations need a Redis without slots. Leave one of them out.`,
    )
  }
  return mistakes
}

/** Finds rules of the gateway for which a request has no amount. */
export function mistakesOfEstimates(rule: RuleInput, path: string, { units, hooks }: ConfigInput): Mistake[] {
  const unit = hasUnit(rule) && units?.[rule.unit!]
  if (!unit || unit.estimate !== undefined || hooks?.amounts) return []
  const message = `'${rule.unit}' has no amount to count for a request. Add units.${rule.unit}.estimate, or hooks.amounts.`
  return [{ path: `${path}.unit`, message }]
}

/** Algorithms that a rule with a unit or with `countIf` can have. */
const SETTLING = ALGORITHM_NAMES.filter(name => canSettle(ALL_ALGORITHMS.countings[name]!))

/**
 * Warns about estimates that use up a whole limit, about those with which a caller can use up the limit of others, and about units that no
 * rule counts.
 */
export function warningsOfUnits(config: ConfigInput, compiled: readonly GatewayRule[]): Mistake[] {
  const { units = {}, rules = [], limits = {} } = config
  const counted = new Set([...rules, ...Object.values(limits).flat()].map(({ unit }) => unit))
  const unused = Object.keys(units).filter(name => !counted.has(name))
  return [
    ...unused.map(name => ({
      path: `units.${name}`,
      message: `is not counted: no rule has unit: '${name}'. Add it to a rule, or leave the unit out.`,
    })),
    ...warningsOfUnreadable(config),
    ...compiled.flatMap(({ unit, cost, settlement, quota, limit }, i): Mistake[] => {
      if (unit === REQUESTS || settlement?.aboveLimit !== 'clamp' || cost <= quota.burst) return []
      const message = `${limit} is below the estimate of a request (${cost} ${unit}): each request reserves the whole limit, so an identity can have only one at a time. Raise it, or lower units.${unit}.estimate.`
      return [{ path: `rules[${i}].limit`, message }]
    }),
    ...rules.flatMap((rule, i) =>
      letsCallerReserveAll(rule, { units, rules }) ? [reservesAll(rule, i)] : [],
    ),
  ]
}

/** Asks for the price of bodies that are not JSON, unless rules count only paths of models, which take nothing else. */
function warningsOfUnreadable({ units = {}, rules = [], routes = [], hooks }: ConfigInput): Mistake[] {
  return Object.entries(units).flatMap(([name, { estimate, estimateUnreadable }]): Mistake[] => {
    if (!isFromBody(estimate) || estimateUnreadable !== undefined || hooks?.amounts) return []
    const open = rules.filter(rule => rule.unit === name && rule.mode !== 'off' && takesFiles(rule, routes))
    if (open.length === 0) return []
    const names = open.map(rule => `'${rule.name}'`)
    const where = names.length > 1 ? `${listed(names, 'and')} apply` : `${names[0]} applies`
    const message = `is missing: files, forms and other bodies that are not JSON get a 415 where ${where}. Write what such a request costs, or count only the paths of models, as in ${MODEL_MATCH}.`
    return [{ path: `units.${name}.estimateUnreadable`, message }]
  })
}

const MODEL_MATCH = "match: { path: '/v1/(chat/completions|completions|responses|embeddings)' }"

/** Paths of APIs of models end like this, and the patterns that are only for them. */
const MODEL_PATH = /(?:completions|responses|messages|embeddings|generateContent)[)}]*$/i
/** Paths at which these APIs take files. */
const FILE_PATHS = ['/v1/files', '/v1/audio/transcriptions', '/v1/images/edits', '/files']
const WITH_BODY = ['POST', 'PUT', 'PATCH']

/** Whether a rule may count requests whose bodies are not JSON. */
function takesFiles({ match = {} }: RuleInput, routes: NonNullable<ConfigInput['routes']>): boolean {
  const isOpen = ({ methods, path }: { methods?: string[] | undefined; path?: string | undefined }) =>
    (!methods || methods.some(method => WITH_BODY.includes(method))) &&
    (path === undefined || !MODEL_PATH.test(path) || FILE_PATHS.some(file => pathMatcher(path)(file)))
  const ofRoutes = match.routes && routes.filter(({ name }) => match.routes!.includes(name))
  return isOpen(match) && (!ofRoutes || ofRoutes.some(route => isOpen(route.match)))
}

/** Whether callers share a limit, and no limit of their own refuses an estimate that they choose by the body of their request. */
function letsCallerReserveAll(
  { unit, by, mode = 'enforce' }: RuleInput,
  { units = {}, rules = [] }: Pick<ConfigInput, 'units' | 'rules'>,
): boolean {
  const { estimate, aboveLimit } = units[unit ?? REQUESTS] ?? {}
  if (!isFromBody(estimate) || mode !== 'enforce' || isOfCaller(by)) return false
  const hasOwnLimit = rules.some(each => each.unit === unit && isOfCaller(each.by))
  return aboveLimit !== 'refuse' || !hasOwnLimit
}

const isOfCaller = (by: RuleInput['by']) =>
  [by].flat().some(part => part === 'address' || needsCredential(part))

const reservesAll = ({ unit }: RuleInput, i: number): Mistake => ({
  path: `rules[${i}].unit`,
  message: `callers share this limit, and each chooses its estimate: one request can reserve all of it, and keeps it if the response reports no usage. Add a rule with unit: '${unit}' by: 'consumer', and set units.${unit}.aboveLimit: 'refuse'.`,
})
