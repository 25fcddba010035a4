/**
 * What the gateway makes of a request, by the very steps that a request takes: match, identify, bind. No decision is made, so
 * what is left of a limit is not known here. Of the store only the caller's records are read, where it is given.
 */

import { formatFullAllowance } from '../config/allowance.ts'
import type { Config, GatewayRule, Route } from '../config/compile.ts'
import { ANONYMOUS, type RouteSettings } from '../config/compile-route.ts'
import { switchNameOf } from '../config/compile-rule.ts'
import type { TrafficClass } from '../config/compile-shedding.ts'
import { type HookName, hooksOf } from '../config/hooks.ts'
import { bindRules } from '../edges/http/bind-rules.ts'
import type { Caller } from '../edges/http/caller.ts'
import { match } from '../edges/http/match.ts'
import { matchEach } from '../edges/http/match-each.ts'
import { isReserved } from '../edges/http/path.ts'
import type { Unauthenticated } from '../edges/http/ruling.ts'
import { isExempt } from '../edges/http/shed.ts'
import { classOf, leastImportantOf } from '../edges/http/traffic-class.ts'
import { isPreflight } from '../edges/http/web-page.ts'
import { bind } from '../limiter/bind.ts'
import { gatewayPolicy } from '../script/compiled.ts'
import type { Evaluation } from '../script/evaluation.ts'
import { inEnvironment } from '../store/keys.ts'
import { NO_SWITCHES } from '../switches/switches.ts'
import { type DecisionCost, decisionCost } from './decision-cost.ts'
import { ANY_KEY, type Asked, callerOf, requestOf } from './explain-caller.ts'
import {
  type LookUp,
  overrideOf,
  type PlanSource,
  planOf,
  refusalByStore,
  type Stored,
} from './explain-stored.ts'
import { type Situation, whyNot } from './why-not.ts'

export interface Explanation {
  method: string
  url: string
  route?: RouteExplanation
  /** Credentials that are taken, in the order in which they are looked for. */
  accept: readonly string[]
  caller: { method: string; consumer?: string; address: string; plan?: string; planFrom?: PlanSource }
  /** Such a request is refused, by the gateway before the store is asked, or by what the store knows of the caller. */
  refusal?: { status: 401 | 403 | 404; reason: string }
  /** What to add for an explanation that says more. */
  hints: readonly string[]
  /** Hooks of the config, which are not run here: what they return depends on more than this request. */
  hooks?: readonly HookName[]
  /** Neither asked for a credential nor counted. */
  isPreflight: boolean
  /** Where the config sheds traffic. */
  trafficClass?: ClassExplanation
  /** Each rule of the config, in its order. */
  rules: RuleExplanation[]
  cost: DecisionCost
}

/** With its settings; `limits` is false where no request is counted. */
export type RouteExplanation = { name: string; limits: boolean } & Omit<RouteSettings, 'accept' | 'isLimited'>

export interface ClassExplanation {
  name: string
  /** The rule that sheds it while the origin is too busy; null: it is never shed for that reason. */
  shedBy: string | null
}

export type RuleExplanation = Applying | NotApplying

export interface Applying {
  name: string
  by: readonly string[]
  applies: true
  algorithm: string
  limit: number
  /** In words: `10 per second`. */
  allows: string
  /** µs; of `concurrency` its ttl. */
  period: number
  isHeld: boolean
  calendar?: { period: string; timeZone: string }
  burst: number
  mode: 'enforce' | 'shadow'
  /** The consumer has numbers or a mode of its own, which stand above; `until` is null for an override without an end. */
  override?: { until: Date | null }
  cost: number
  /** `auth-failure`: spent only when the credential turns out to be bad. */
  on: 'request' | 'auth-failure'
  /** Of the state, or of what isolates hold under a rule `concurrency`; in the environment. */
  key: string
}

export interface NotApplying {
  name: string
  by: readonly string[]
  applies: false
  because: string
}

export interface AskedWithPlan extends Asked {
  /** In the place of the plan that the token names or the store has. */
  plan?: string
}

/**
 * @param lookUp reads what the store knows of the caller; absent: the plan is assumed, and there are no overrides
 * @throws AdminError for what can be no such request
 */
export async function explain(config: Config, asked: AskedWithPlan, lookUp?: LookUp): Promise<Explanation> {
  const made = requestOf(config, asked)
  const { request } = made
  const { pathname } = new URL(request.url)
  const matched = match(config, request, matchEach)
  const { route } = matched
  const { accept } = matched.settings
  const caller = await callerOf(config, asked, matched, made)
  const { credential } = caller
  const { subject } = credential ?? {}
  const stored = credential && (await lookUp?.(credential))
  const token = subject?.kind === 'token' ? subject.plan : undefined
  const [plan, planFrom] = subject ? planOf(config, { option: asked.plan, token, stored }) : []
  const preflight = isPreflight(request)
  const refusal = isReserved(pathname)
    ? ({ status: 404, reason: 'paths under /_sluice/ never reach the origin' } as const)
    : preflight
      ? undefined
      : refusalOf(caller, accept)

  const outcome = refusal ?? (credential && stored && refusalByStore(credential.consumer, stored))
  const isAsked = !refusal && !preflight
  const trafficClass =
    matched.classes.length > 0
      ? leastImportantOf(matched.classes.map(classes => classOf(classes, caller, plan)))
      : undefined
  const demanded = isAsked ? bindRules(request, caller, matched, config.allow, trafficClass) : []
  const evaluation: Evaluation = {
    rules: bind(demanded, NO_SWITCHES, switchNameOf, Date.now()),
    policy: gatewayPolicy(config),
    ...(isAsked && subject && { subject }),
  }
  return {
    method: request.method,
    url: request.url,
    ...(route && { route: describeRoute(route) }),
    accept,
    caller: {
      method: credential?.method ?? 'anonymous',
      ...(credential && { consumer: credential.consumer }),
      address: caller.addressIdentity,
      ...(plan !== undefined && { plan, planFrom: planFrom! }),
    },
    ...(outcome && { refusal: outcome }),
    hints: hintsFor(
      asked,
      accept,
      planFrom,
      stored?.plansOfKeys.filter(other => other !== plan),
    ),
    ...(config.hooks && { hooks: hooksOf(config.hooks) }),
    isPreflight: preflight,
    ...(trafficClass && {
      trafficClass: explainClass(trafficClass, config, isAsked && !isExempt(config.allow, caller, matched)),
    }),
    rules: uniqueByName(config.rules).map(rule =>
      explainRule(
        rule,
        { config, request, caller, matched, plan, evaluation, isAsked, trafficClass },
        stored,
      ),
    ),
    cost: decisionCost(evaluation, plan, config.cluster),
  }
}

function describeRoute({ name, match: _, accept: __, isLimited, ...settings }: Route): RouteExplanation {
  return { name, limits: isLimited, ...settings }
}

/** A rule has a row for each plan with numbers of its own. */
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
  situation: Situation,
  stored: Stored | undefined,
): RuleExplanation {
  const { config, plan, evaluation } = situation
  const rows = config.rules.filter(rule => rule.name === name)
  const row = rows.find(({ match, isForOthers }) =>
    plan === undefined ? !match.plans || isForOthers : (match.plans?.includes(plan) ?? true),
  )
  const counted = row && evaluation.rules.find(({ rule }) => isSame(rule as GatewayRule, row, plan))
  if (!counted) return { name, by, applies: false, because: whyNot(rows, row, situation) }
  const { rule, cost, ownKey } = counted
  const override = overrideOf(row, stored)
  const mode = override?.mode ?? counted.mode
  if (mode === 'off') return { name, by, applies: false, because: 'an override of the consumer turns it off' }
  const { limit = rule.limit, burst = rule.quota.burst } = override?.numbers ?? {}
  const key = rule.counting.state === 'held' ? ownKey! : counted.key
  return {
    name,
    by,
    applies: true,
    algorithm: rule.algorithm,
    limit,
    allows: formatFullAllowance({ ...rule, limit }),
    period: rule.period,
    isHeld: rule.counting.state === 'held',
    ...(rule.calendar && { calendar: { period: rule.calendar.period, timeZone: rule.calendar.timeZone } }),
    burst,
    mode,
    ...(override && { override: { until: override.until ? new Date(override.until / 1000) : null } }),
    cost,
    on: rule.on,
    key: inEnvironment(key.replace(encodeURIComponent(ANY_KEY), ANY_KEY), config.environment),
  }
}

/** What is asked about is a copy where a route has a cost, and for who has no plan. */
function isSame(rule: GatewayRule, row: GatewayRule, plan: string | undefined): boolean {
  return rule.match === row.match || (plan === undefined && rule.name === row.name && rule.tag === row.tag)
}

/** @param ofKeys other plans, that keys of the consumer have */
function hintsFor(
  { consumer, key, token }: AskedWithPlan,
  accept: readonly string[],
  planFrom: PlanSource | undefined,
  ofKeys: readonly string[] = [],
): string[] {
  const isAnonymous = consumer === undefined && key === undefined && token === undefined
  if (isAnonymous && accept.some(method => method !== ANONYMOUS)) {
    return [
      'No credential was given. Add --consumer <name> to explain a request of that consumer, or --key or --token for a specific credential.',
    ]
  }
  if (planFrom === 'assumed') {
    return [
      'The plan is assumed, and overrides are not shown. Set UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN to use what is stored for the consumer, or name the plan with --plan.',
    ]
  }
  if (planFrom === 'option' || ofKeys.length === 0) return []
  return [
    `Keys of consumer '${consumer}' have other plans: ${ofKeys.join(', ')}. To explain a request with one of them, use --key or --plan.`,
  ]
}

function refusalOf({ refusal }: Caller, accept: readonly string[]): Explanation['refusal'] {
  if (!refusal) return undefined
  return refusal.kind === 'forbidden'
    ? { status: 403, reason: `the ${refusal.what} of the client is blocked by block in the config` }
    : { status: 401, reason: `${REASONS[refusal.reason]}; accepted here: ${accept.join(', ') || 'nothing'}` }
}

const REASONS: Record<Unauthenticated['reason'], string> = {
  missing: 'no credential',
  malformed: 'the credential is malformed: wrong form, checksum or environment',
  'not-accepted': 'this kind of credential is not accepted here',
  expired: 'the token has expired',
  unverifiable: 'the token cannot be verified',
}
