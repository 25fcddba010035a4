/** `npx sluicegate check`: checks the config, and shows what it says. */

import { Command } from 'commander'
import { descriptionOf } from '../../algorithms/index.ts'
import { unitsAtOnce } from '../../algorithms/units-at-once.ts'
import { formatFullAllowance } from '../../config/allowance.ts'
import { isOfLimitsAlone } from '../../config/check/coverage.ts'
import type { OnStoreFailure } from '../../config/check/schema.ts'
import type { Warning } from '../../config/check/warnings.ts'
import type { Config, GatewayRule, LimitRule, Route } from '../../config/compile.ts'
import {
  ANONYMOUS,
  type CredentialMethod,
  IDENTIFY,
  type RequestPattern,
} from '../../config/compile-route.ts'
import { countsInFlight, REQUESTS } from '../../config/compile-rule.ts'
import { adaptiveRangeOf, type Shedding, type TrafficClass } from '../../config/compile-shedding.ts'
import { formatDuration } from '../../config/duration.ts'
import { hooksOf } from '../../config/hooks.ts'
import { needsCredential } from '../../config/identity-parts.ts'
import { locatedWarnings, warningLine } from '../config-warnings.ts'
import { JSON_HELP } from './administration.ts'
import { apiDocument, checkDocument, invalidDocument } from './check-document.ts'
import { environmentWarning } from './environment-reads.ts'
import { withExamples } from './help.ts'
import type { FileLoader, LoadedConfig, LoadedFile } from './load-config.ts'
import { columns, print, success, warning } from './output.ts'
import { wordsOfRoute } from './route-words.ts'

type AnyRule = GatewayRule | LimitRule
type Section = [title: string, rows: string[][]]

export function checkCommand(load: FileLoader): Command {
  const command = new Command('check')
    .summary('check the config')
    .description(
      'Check the config. If it is valid, its rules and warnings are shown; otherwise each mistake, with its place and a fix.',
    )
    .argument('[file]', "config file (default: the project's sluice.config.ts)")
    .option('--json', `${JSON_HELP}; docs/config.md describes it`)
    .action(check.bind(null, load))
  return withExamples(command, 'check', 'check --json')
}

async function check(load: FileLoader, file: string | undefined, flags: { json?: boolean }): Promise<void> {
  const loaded = await load(file).catch(error => {
    const document = flags.json && invalidDocument(error)
    if (document) console.log(JSON.stringify(document, null, 2))
    throw error
  })
  const warnings = warningsAbout(loaded)
  const environment = process.env.SLUICE_ENVIRONMENT || loaded.environment
  const config = { ...loaded, ...(environment && { environment }) }
  print(flags, checkDocument(config, warnings), () => describe(config, warnings, loaded.file))
}

/** All warnings about a config file, in the order of its lines. */
export const warningsAbout = ({ input, file, environmentReads }: LoadedFile) =>
  locatedWarnings(input, file, environmentReads.map(environmentWarning))

function describe(loaded: LoadedConfig, warnings: readonly Warning[], file: string): string {
  const rules = loaded.rules.filter(({ mode }) => mode !== 'off')
  const config = { ...loaded, rules }
  const { limits, origin } = config
  // For a config with limits by name alone, the sections about callers do not apply.
  const isLimitsAlone = isOfLimitsAlone(loaded.input)
  const sections: Section[] = [
    [
      isLimitsAlone
        ? `The config is ${success('valid')}: ${counted(limits.size, 'limit')} by name.`
        : `The config is ${success('valid')}: ${countedRules(rules)}, ${origin ? `origin ${origin}` : 'no origin: for guards, middleware and limits by name only'}.`,
      rules.map(rule => rowOf(rule, config)),
    ],
    ...[...limits].map(([name, set]): Section => [`Limit '${name}':`, set.map(rule => rowOf(rule, config))]),
  ]
  if (!isLimitsAlone) sections.push(...sectionsOfCallers(config))
  sections.push(...sectionOfApi(loaded))
  sections.push(['While the store does not answer:', fallbackOf(config, isLimitsAlone)])
  sections.push(['Find out whether these rules work on your store: npx sluicegate doctor', []])
  if (warnings.length > 0) {
    sections.push([warning('Warnings:'), warnings.map(each => [warningLine(each, file)])])
  }
  return sections
    .flatMap(([title, rows]) => [title, ...(rows.length > 0 ? [columns(rows, '  ')] : [])])
    .join('\n')
}

function sectionOfApi({ input }: LoadedConfig): Section[] {
  const api = apiDocument(input)
  if (!api) return []
  const rows = [['routes', api.routes.join(', ')]]
  if (api.origins.length > 0) rows.push(['pages of', api.origins.join(', ')])
  return [['HTTP API:', rows]]
}

/** Routes, traffic classes, credentials and hooks: what is done with a request. */
function sectionsOfCallers(config: Config): Section[] {
  const { routes, shedding } = config
  const sections: Section[] = []
  if (routes.length > 0) {
    const elsewhere = { name: '(elsewhere)', match: {}, ...config.routeDefaults }
    sections.push([
      'Routes, the most specific first:',
      [...routes, elsewhere].map(route => rowOfRoute(route, config)),
    ])
  }
  if (shedding) {
    const { classes } = shedding
    const byImportance = [...classes].sort((a, b) => a.rank - b.rank)
    const order = classes.map(({ name }) => name).join(', ')
    const matched = classes.every(({ rank }, i) => rank === i) ? '' : ` (matched in this order: ${order})`
    const rows = byImportance.map(trafficClass => rowOfClass(trafficClass, shedding))
    sections.push([`Traffic classes, the most important first${matched}:`, rows])
  }
  sections.push(['Credentials:', credentialsOf(config)])
  const hooks = hooksOf(config.hooks)
  if (hooks.length > 0) {
    sections.push([`Hooks (each may take ${config.hooks!.deadline}): ${hooks.join(', ')}`, []])
  }
  return sections
}

const counted = (count: number, what: string) => `${count} ${what}${count === 1 ? '' : 's'}`

const countedRules = (rules: readonly GatewayRule[]) =>
  rules.length === 0 ? 'no rules' : counted(new Set(rules.map(({ name }) => name)).size, 'rule')

/** What happens to requests while the store does not answer, by rule and by credential. */
function fallbackOf({ rules, limits, localShare, credentials }: Config, isLimitsAlone: boolean): string[][] {
  const all = [
    ...rules.map(rule => [rule.name, rule] as const),
    ...[...limits].flatMap(([limit, set]) => set.map(rule => [`${limit}/${rule.name}`, rule] as const)),
  ]
  const share = localShare === 1 ? '' : `, up to ${Number((localShare * 100).toPrecision(12))} % of the limit`
  const ways: Record<OnStoreFailure, string> = {
    open: 'no limit once an outage is confirmed: ',
    local: `each isolate counts by itself${share}: `,
    closed: 'requests are refused: ',
  }
  const byRule = Object.entries(ways).flatMap(([way, meaning]) => {
    const names = new Set(
      all.flatMap(([name, rule]) => (rule.onStoreFailure === way && rule.mode === 'enforce' ? [name] : [])),
    )
    return names.size === 0 ? [] : [[way, meaning + [...names].join(', ')]]
  })
  const keys: Record<Config['credentials']['onStoreFailure'], string> = {
    recent: `keys that this copy of the Worker has admitted in the last ${formatDuration(credentials.seenForMs * 1e3)} pass; others get a 503`,
    signed: `keys that this copy of the Worker has admitted in the last ${formatDuration(credentials.seenForMs * 1e3)} pass, and signed keys that are younger than ${formatDuration((credentials.signedForMs ?? 0) * 1e3)}; others get a 503`,
    refuse: 'all keys are refused',
    unchecked: 'everything that looks like a key is accepted',
  }
  return [...byRule, ...(isLimitsAlone ? [] : [['keys', keys[credentials.onStoreFailure]]])]
}

/** Name, numbers, who is counted, and all else. The numbers of a plan stand below those of the rule. */
function rowOf(rule: AnyRule, config: Config): string[] {
  const { name, limit, by, algorithm, quota, cost, match, mode, enforcedShare, candidateFor, on } = rule
  const ofCalls = 'atCall' in rule && rule.atCall !== undefined
  const allowance = formatFullAllowance(rule, adaptiveRangeOf(rule, config.adaptive))
  const amount = ofCalls ? `at most ${allowance}` : allowance
  const numbers = countsInFlight(rule) ? [`ttl ${formatDuration(rule.period)}`] : []
  const atOnce = unitsAtOnce(descriptionOf(rule).numbers, quota.burst)
  // A request may wait in a queue, so the length of the queue is always shown.
  if (atOnce && (rule.counting.isQueue || atOnce.units !== limit)) {
    numbers.push(`${atOnce.parameter} ${atOnce.units}`)
  }
  if (isOfPlan(rule, config)) return [`  ${match.plans!.join('|')}`, amount, '', numbers.join(', ')]

  const parts = [algorithm, ...(ofCalls ? ['numbers of each call'] : []), ...numbers]
  if (cost !== 1) parts.push(`${rule.unit === REQUESTS ? 'cost' : 'estimate'} ${cost}`)
  if ('countIf' in rule && rule.countIf) parts.push(`only status ${[...rule.countIf.status].join('|')}`)
  if (on !== 'request') parts.push(`on ${on}`)
  if (candidateFor) parts.push(`candidate for ${candidateFor}`)
  else if (mode !== 'enforce') parts.push(mode)
  else if (enforcedShare < 1)
    parts.push(`enforced for ${Number((enforcedShare * 100).toPrecision(12))} % of callers`)
  parts.push(...placeOf(match))
  if (match.routes) parts.push(`route ${[...match.routes].join('|')}`)
  if (match.plans) parts.push(plansOf(rule, config))
  if (match.authenticated !== undefined) {
    parts.push(match.authenticated ? 'with a credential' : 'without a credential')
  }
  if (match.mode) parts.push(`in ${match.mode} mode`)
  if ('acrossModes' in rule && rule.acrossModes) parts.push('live and test together')
  const who = by.length > 0 ? `by ${by.join(' and ')}` : ''
  return [name, amount, who, parts.filter(Boolean).join(', ')]
}

/** Whether this is the variant of a rule for one plan. Variants follow the rule itself. */
function isOfPlan(rule: AnyRule, { rules }: Config): boolean {
  return rules.find(({ name }) => name === rule.name) !== rule && rules.some(other => other === rule)
}

/** Describes the plans that a rule and its variants apply to; an empty text if these are all plans. */
function plansOf(rule: AnyRule, { rules, plans }: Config): string {
  const own = rules.filter(({ name }) => name === rule.name).slice(1)
  const named = [...rule.match.plans!, ...own.flatMap(({ match }) => match.plans!)]
  if (!('isForOthers' in rule) || !rule.isForOthers) return `plan ${named.join('|')}`
  const without = plans.filter(plan => !named.includes(plan))
  return without.length > 0 ? `not for plan ${without.join('|')}` : ''
}

function placeOf({ methods, host, path }: RequestPattern): string[] {
  return [
    ...(methods ? [[...methods].join('|')] : []),
    ...(host || path ? [`${host === '*' ? '' : (host ?? '')}${path ?? '*'}`] : []),
  ]
}

/** Name, which requests it has, and how it is shed. */
function rowOfClass(
  { name, rank, match, isCritical }: TrafficClass,
  { workerUtilization }: Shedding,
): string[] {
  const rule = workerUtilization?.rules.find(rule => rule.rank === rank)
  const { plans, routes, authenticated, mode } = match ?? {}
  const what = [
    ...placeOf(match ?? {}),
    ...(routes ? [`route ${[...routes].join('|')}`] : []),
    ...(plans ? [`plan ${plans.join('|')}`] : []),
    ...(authenticated === undefined ? [] : [authenticated ? 'with a credential' : 'without a credential']),
    ...(mode ? [`in ${mode} mode`] : []),
  ]
  const shed = rule
    ? `${rule.name}${rule.mode === 'enforce' ? '' : ` (${rule.mode})`}`
    : 'never shed by utilization'
  const how = isCritical ? 'critical: never shed' : workerUtilization ? shed : ''
  return [name, what.join(', ') || 'all other requests', how]
}

/** Name, place, what is accepted, and all else. */
function rowOfRoute({ name, match, ...settings }: Route, config: Config): string[] {
  const { accept, isLimited } = settings
  const parts = wordsOfRoute(settings, config.routeDefaults)
  if (isLimited && accept.includes(ANONYMOUS) && !config.rules.some(countsAnonymous)) {
    parts.push('no rule limits anonymous callers')
  }
  return [name, placeOf(match).join(' '), accept.join(', '), parts.join(', ')]
}

/** Whether a rule can be for callers without a credential. */
function countsAnonymous({ by, on, mode, match, isForOthers, isSystemLimit }: GatewayRule): boolean {
  const isForPlans = match.plans !== undefined && !isForOthers
  return (
    mode === 'enforce' &&
    on === 'request' &&
    !isSystemLimit &&
    !by.some(needsCredential) &&
    !isForPlans &&
    match.authenticated !== true &&
    match.mode !== 'test'
  )
}

/** First the credentials of the default `accept`, in its order; then those that only routes accept; then all others of the config. */
function credentialsOf({ credentials, environment, routes, rules }: Config): string[][] {
  const { accept, keyPrefix, signature, opaqueKeys, jwt, webSocketKeys } = credentials
  const accepted = new Set<CredentialMethod>([...accept, ...routes.flatMap(route => route.accept)])
  const start = environment === undefined ? keyPrefix : `${keyPrefix}_${environment}`
  const what = (method: CredentialMethod) => {
    const issuer = jwt.get(method)
    if (issuer) return `tokens of ${issuer.issuer}, as ${issuer.header ?? 'Authorization: Bearer'}`
    if (method === 'api-key')
      return `${start}_…${signature === 'require' ? ', only signed ones' : ''}${webSocketKeys ? ', on WebSockets also as subprotocol sluice-key.<key>' : ''}`
    if (method === IDENTIFY) return `callers that hooks.identify names, as ${IDENTIFY}~<name>`
    if (method === ANONYMOUS) {
      return `callers without a credential${rules.some(countsAnonymous) ? '' : ', which no rule limits'}`
    }
    return `imported keys, as ${opaqueKeys?.header ?? 'X-API-Key or Authorization: Bearer'}`
  }
  const all = new Set([...accepted, ...jwt.keys(), ...(opaqueKeys ? ['opaque-key'] : [])])
  return [...all].map(method => [
    method,
    `${what(method)}${accepted.has(method) ? '' : ', not accepted anywhere'}`,
  ])
}
