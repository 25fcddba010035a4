/**
 * Explains how the gateway would handle a request. It runs the steps of the gateway: match, identify, demand, bind. It makes no
 * decision, so it does not show what is left of a limit. From the store, if one is given, it reads only the caller's records.
 */

import { formatFullAllowance } from '../config/allowance.ts'
import type { CallerMode } from '../config/caller-mode.ts'
import { didYouMean } from '../config/check/did-you-mean.ts'
import type { Config, GatewayRule, Route } from '../config/compile.ts'
import { ANONYMOUS, type RouteSettings } from '../config/compile-route.ts'
import { countsInFlight, isVariantFor, switchNameOf } from '../config/compile-rule.ts'
import { type Adaptive, adaptiveRangeOf, type TrafficClass } from '../config/compile-shedding.ts'
import { type HookName, hooksOf } from '../config/hooks.ts'
import { countsByField } from '../config/identity-parts.ts'
import { bindRules } from '../limiter/bind.ts'
import { gatewayRuleSet } from '../script/compiled.ts'
import type { Evaluation } from '../script/evaluation.ts'
import { type Caller, modeOf } from '../set-ups/http/caller.ts'
import { demandRules } from '../set-ups/http/demand-rules.ts'
import { createMatch } from '../set-ups/http/match.ts'
import { createMatchByRequest } from '../set-ups/http/match-by-request.ts'
import { isReserved } from '../set-ups/http/path.ts'
import type { Unauthenticated } from '../set-ups/http/ruling.ts'
import { isExempt } from '../set-ups/http/shed.ts'
import { classOfReading, leastImportantOf } from '../set-ups/http/traffic-class.ts'
import { isPreflight } from '../set-ups/http/web-page.ts'
import { inEnvironment } from '../store/keys.ts'
import { NO_SWITCHES } from '../switches/switches.ts'
import { type DecisionCost, decisionCost } from './decision-cost.ts'
import { ANY_KEY, identifyCaller, type RequestInput, requestOf } from './explain-caller.ts'
import { explainSettlement, type SettlementExplanation } from './explain-settlement.ts'
import {
  findOverride,
  type LookUp,
  type PlanSource,
  refusalByStore,
  resolvePlan,
  type Stored,
} from './explain-stored.ts'
import { parsePlan } from './names.ts'
import { type RequestUnderRules, whyNot } from './why-not.ts'

export interface Explanation {
  method: string
  url: string
  route?: RouteExplanation
  /** Accepted credentials, in the order in which they are tried. */
  accept: readonly string[]
  caller: {
    method: string
    consumer?: string
    /** Set if there is a consumer. */
    mode?: CallerMode
    address: string
    plan?: string
    planFrom?: PlanSource
  }
  /** The request is refused: by the gateway before it asks the store, or because of the caller's records. */
  refusal?: { status: 401 | 403 | 404; reason: string }
  /** Arguments that would make the explanation more exact. */
  hints: readonly string[]
  /** Hooks of the config. `explain` does not run them, because their results depend on more than this request. */
  hooks?: readonly HookName[]
  /** Preflights need no credential and are not counted. */
  isPreflight: boolean
  /** Absent: the config does not shed traffic. */
  trafficClass?: ClassExplanation
  /** Every rule of the config, in its order. */
  rules: RuleExplanation[]
  cost: DecisionCost
}

/** The route with its settings. `limits` is false if its requests are not counted. */
export type RouteExplanation = { name: string; limits: boolean } & Omit<RouteSettings, 'accept' | 'isLimited'>

export interface ClassExplanation {
  name: string
  /** The rule that sheds the class while the origin is too busy. null: it is never shed for that reason. */
  shedBy: string | null
}

export type RuleExplanation = ApplyingRule | OtherRule

export interface ApplyingRule {
  name: string
  by: readonly string[]
  applies: true
  algorithm: string
  /** Of an adaptive limit: the highest value. */
  limit: number
  /** The limit follows the origin, within this range. Absent: it is fixed. */
  adaptive?: Adaptive
  /** For users: `10 per second`. */
  allows: string
  /** µs. For `concurrency`: its ttl. */
  period: number
  /** The rule counts requests in flight (`concurrency`). */
  countsInFlight: boolean
  calendar?: { period: string; timeZone: string }
  /** Present if windows start with their first request (`fixed-window`). */
  start?: 'first-request'
  burst: number
  mode: 'enforce' | 'shadow'
  /** The numbers or the mode above are those of an override. `until` is null for an override without an end. */
  override?: { until: Date | null }
  /** What the cost is counted in: `requests`, or a unit of the config. */
  unit: string
  /** Of a rule that is settled later: 1 unless the config has the estimate. */
  cost: number
  /** Present if the cost of a request is known only afterwards. */
  settlement?: SettlementExplanation
  /** `auth-failure`: units are spent only if the credential is not valid. */
  on: 'request' | 'auth-failure'
  /** The Redis key of the state, or of the units in flight of a `concurrency` rule, including the environment. */
  key: string
}

export interface OtherRule {
  name: string
  by: readonly string[]
  applies: false
  because: string
}

export interface ExplainInput extends RequestInput {
  /** Replaces the plan of the token or of the store. */
  plan?: string
}

/**
 * @param lookUp reads the caller's records. Absent: the plan is assumed, and overrides are not known.
 * @throws AdminError `usage` if the input is not a valid request; `store`
 */
export async function explain(config: Config, input: ExplainInput, lookUp?: LookUp): Promise<Explanation> {
  if (input.plan !== undefined) parsePlan(input.plan, config.plans)
  const requestAndPeer = requestOf(config, input)
  const { request } = requestAndPeer
  const { pathname } = new URL(request.url)
  const matched = createMatch(config, createMatchByRequest)(request)
  const { route } = matched
  const { accept } = matched.settings
  const caller = await identifyCaller(config, input, matched, requestAndPeer)
  const { credential } = caller
  const { subject } = credential ?? {}
  const stored = credential && (await lookUp?.(credential))
  const planOfToken = subject?.kind === 'token' ? subject.plan : undefined
  const [plan, planFrom] = subject
    ? resolvePlan(config, { option: input.plan, token: planOfToken, stored })
    : []
  const preflight = isPreflight(request)
  const refusal = isReserved(pathname)
    ? ({ status: 404, reason: 'paths under /_sluice/ never reach the origin' } as const)
    : preflight
      ? undefined
      : refusalOf(caller, accept)

  const refusedByStore =
    refusal || !credential || !stored ? undefined : refusalByStore(credential.consumer, stored)
  const anyRefusal = refusal ?? refusedByStore
  const reachesStore = !refusal && !preflight
  const trafficClass =
    matched.classes.length > 0
      ? leastImportantOf(matched.classes.map(classes => classOfReading(classes, caller, plan, config.plans)))
      : undefined
  const rules = reachesStore ? demandRules(request, caller, matched, config.allow, { trafficClass }) : []
  const evaluation: Evaluation = {
    rules: bindRules(rules, NO_SWITCHES, switchNameOf, Date.now()),
    ruleSet: gatewayRuleSet(config),
    ...(reachesStore && subject && { subject }),
  }
  return {
    method: request.method,
    url: request.url,
    ...(route && { route: describeRoute(route) }),
    accept,
    caller: {
      method: credential?.method ?? 'anonymous',
      ...(credential && { consumer: credential.consumer, mode: modeOf(credential) }),
      address: caller.addressIdentity,
      ...(plan !== undefined && { plan, planFrom: planFrom! }),
    },
    ...(anyRefusal && { refusal: { status: anyRefusal.status, reason: anyRefusal.reason } }),
    hints: [
      ...hintsForCredential(
        input,
        accept,
        planFrom,
        stored?.plansOfKeys.filter(other => other !== plan),
        lookUp !== undefined,
      ),
      ...(credential?.method === 'opaque-key' && input.key !== undefined && !input.mode
        ? [HINT_FOR_MODE]
        : []),
      ...(reachesStore && countsByField(matched.rules) ? [HINT_FOR_FIELDS] : []),
      ...(stored?.unknownConsumer ? [hintForUnknown(input.consumer!, stored.unknownConsumer.others)] : []),
      ...(caller.address === undefined ? hintsForAddress(input, config) : []),
    ],
    ...(config.hooks && { hooks: hooksOf(config.hooks) }),
    isPreflight: preflight,
    ...(trafficClass && {
      trafficClass: explainClass(
        trafficClass,
        config,
        reachesStore && !isExempt(config.allow, caller, matched),
      ),
    }),
    rules: uniqueByName(config.rules).map(rule =>
      explainRule(
        rule,
        { config, request, caller, matched, plan, evaluation, reachesStore, trafficClass },
        stored,
      ),
    ),
    cost: decisionCost(evaluation, plan, config.cluster, refusedByStore?.cause),
  }
}

function describeRoute({ name, match: _, accept: __, isLimited, ...settings }: Route): RouteExplanation {
  return { name, limits: isLimited, ...settings }
}

/** One variant of each rule: a rule has a variant for each plan with numbers of its own. */
function uniqueByName(rules: readonly GatewayRule[]): GatewayRule[] {
  return rules.filter(({ name }, i) => rules.findIndex(rule => rule.name === name) === i)
}

function explainClass(
  { name, rank }: TrafficClass,
  { shedding }: Config,
  canBeShed: boolean,
): ClassExplanation {
  const rule = shedding?.workerUtilization?.rules.find(rule => rule.rank === rank)
  return { name, shedBy: canBeShed && rule && rule.mode !== 'off' ? rule.name : null }
}

function explainRule(
  { name, by }: GatewayRule,
  context: RequestUnderRules,
  stored: Stored | undefined,
): RuleExplanation {
  const { config, plan, evaluation } = context
  const variants = config.rules.filter(rule => rule.name === name)
  const variant = variants.find(each => isVariantFor(each, plan))
  const bound =
    variant && evaluation.rules.find(({ rule }) => isBoundFrom(rule as GatewayRule, variant, plan))
  if (!bound) return { name, by, applies: false, because: whyNot(variants, variant, context) }
  const { rule, cost, sideKey } = bound
  const override = findOverride(variant, stored)
  const mode = override?.mode ?? bound.mode
  if (mode === 'off') return { name, by, applies: false, because: 'an override of the consumer turns it off' }
  const {
    limit = rule.exceedableLimit ?? rule.limit,
    burst = countsInFlight(rule) ? limit : rule.quota.burst,
  } = override?.numbers ?? {}
  const adaptive = adaptiveRangeOf(rule, config.adaptive)
  const key = countsInFlight(rule) ? sideKey! : bound.key
  const settlement = explainSettlement(rule, cost, config)
  return {
    name,
    by,
    applies: true,
    algorithm: rule.algorithm,
    limit,
    ...(adaptive && { adaptive }),
    allows: formatFullAllowance({ ...rule, limit }, adaptive),
    period: rule.period,
    countsInFlight: countsInFlight(rule),
    ...(rule.calendar && { calendar: { period: rule.calendar.period, timeZone: rule.calendar.timeZone } }),
    ...(rule.quota.startsWithRequest && { start: 'first-request' }),
    burst,
    mode,
    ...(override && { override: { until: override.until ? new Date(override.until / 1000) : null } }),
    unit: rule.unit,
    cost,
    ...(settlement && { settlement }),
    on: rule.on,
    key: inEnvironment(key.replace(encodeURIComponent(ANY_KEY), ANY_KEY), config.environment),
  }
}

/** Whether a bound rule comes from this variant. Binding copies a rule for a route with a cost, and for callers without a plan. */
function isBoundFrom(rule: GatewayRule, variant: GatewayRule, plan: string | undefined): boolean {
  return (
    rule.match === variant.match ||
    (plan === undefined && rule.name === variant.name && rule.tag === variant.tag)
  )
}

/** @param ofKeys other plans of the consumer's keys */
function hintsForCredential(
  { consumer, key, token }: ExplainInput,
  accept: readonly string[],
  planFrom: PlanSource | undefined,
  ofKeys: readonly string[] = [],
  hasStore: boolean,
): string[] {
  const isAnonymous = consumer === undefined && key === undefined && token === undefined
  if (isAnonymous && accept.some(method => method !== ANONYMOUS)) {
    return [
      'No credential was given. Add --consumer <name> to explain a request of that consumer, or --key or --token for a specific credential.',
    ]
  }
  if (planFrom === 'assumed') {
    // The store is set, and its error has been shown.
    if (hasStore) return []
    return [
      'The plan is assumed, and overrides are not shown. Set UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN to use what is stored for the consumer, or name the plan with --plan.',
    ]
  }
  if (planFrom === 'option' || ofKeys.length === 0) return []
  return [
    `Keys of consumer '${consumer}' have other plans: ${ofKeys.join(', ')}. To explain a request with one of them, use --key or --plan.`,
  ]
}

const HINT_FOR_FIELDS =
  'Rules by a field of the body are left out. To see them, use npx sluicegate limits peek --by field:<name>=<value>.'

const HINT_FOR_MODE =
  'Only the store knows the mode of an imported key. If it is a test key, add --mode test.'

const hintForUnknown = (consumer: string, others: readonly string[]) =>
  `The store has no key and no setting of consumer '${consumer}'.${didYouMean(consumer, others)}`

/** Hints for a request from an unknown address. Empty if the config does not use addresses. */
function hintsForAddress({ address }: ExplainInput, { rules, allow, block }: Config): string[] {
  const isUsed =
    rules.some(({ by }) => by.includes('address')) || allow.addresses.length > 0 || block.addresses.length > 0
  if (!isUsed) return []
  const what =
    address === undefined
      ? 'No address was given'
      : `By the config's address setting, ${address} is not the address of a client`
  return [
    `${what}, so the request counts as one from an unknown address. To explain a request from a client's address, add it, as in --address 192.0.2.7.`,
  ]
}

function refusalOf({ refusal }: Caller, accept: readonly string[]): Explanation['refusal'] {
  if (!refusal) return undefined
  return refusal.kind === 'forbidden'
    ? { status: 403, reason: `the client's ${refusal.what} is in the block list of the config` }
    : { status: 401, reason: `${REASONS[refusal.reason]}; accepted here: ${accept.join(', ') || 'nothing'}` }
}

const REASONS: Record<Unauthenticated['reason'], string> = {
  missing: 'no credential',
  malformed: 'the credential is malformed: wrong form, checksum or environment',
  'not-accepted': 'this kind of credential is not accepted here',
  'wrong-issuer': 'the issuer (iss) of the token is not one that is accepted here',
  'wrong-algorithm': 'the algorithm (alg) of the token is not one of its issuer in the config',
  'unknown-signing-key': 'the issuer of the token has no key with its id (kid)',
  'bad-signature': 'the signature of the token is wrong',
  unsigned: 'the key has no signature, which the config requires (credentials.apiKeys.signature)',
  unverifiable: 'the token cannot be verified',
  'wrong-audience': 'the token is for another audience (aud)',
  'not-yet-valid': 'the token is not valid yet (nbf)',
  expired: 'the token has expired (exp)',
  'bad-claim':
    'a time in the token (exp, nbf or iat) is missing or not valid, or its mode is neither live nor test',
  'no-consumer': 'no claim of the token names a consumer',
}
