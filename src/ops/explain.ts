/**
 * What the gateway makes of a request, by the very steps that a request takes: match, identify, bind. The store is not asked,
 * so whether a key is good, and what is left of a limit, is not known here.
 */

import { formatFullAllowance } from '../config/allowance.ts'
import type { Config, GatewayRule, Route } from '../config/compile.ts'
import type { RouteSettings } from '../config/compile-route.ts'
import { switchNameOf } from '../config/compile-rule.ts'
import type { TrafficClass } from '../config/compile-shedding.ts'
import { bindRules } from '../edges/gateway/bind-rules.ts'
import type { Caller } from '../edges/gateway/caller.ts'
import { match } from '../edges/gateway/match.ts'
import { isReserved } from '../edges/gateway/path.ts'
import type { Unauthenticated } from '../edges/gateway/ruling.ts'
import { isExempt } from '../edges/gateway/shed.ts'
import { classOf, leastOf } from '../edges/gateway/traffic-class.ts'
import { isPreflight } from '../edges/gateway/web-page.ts'
import { bind } from '../limiter/bind.ts'
import { gatewayPolicy } from '../script/compiled.ts'
import type { Evaluation } from '../script/evaluation.ts'
import { inEnvironment } from '../store/keys.ts'
import { NO_SWITCHES } from '../switches/switches.ts'
import { type DecisionCost, decisionCost } from './decision-cost.ts'
import { ANY_KEY, type Asked, callerOf, requestOf } from './explain-caller.ts'
import { planName } from './names.ts'
import { type Situation, whyNot } from './why-not.ts'

export interface Explanation {
  method: string
  url: string
  route?: RouteExplanation
  /** Credentials that are taken, in the order in which they are looked for. */
  accept: readonly string[]
  caller: { method: string; consumer?: string; address: string; plan?: string }
  /** The gateway refuses such a request without asking the store. */
  refusal?: { status: 401 | 403 | 404; reason: string }
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
  /** Of the calendar. */
  calendar?: string
  burst: number
  mode: 'enforce' | 'shadow'
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
  /** The plan that the store would tell (default: that of the token, else the first). */
  plan?: string
}

/** @throws AdminError for what can be no such request */
export async function explain(config: Config, asked: AskedWithPlan): Promise<Explanation> {
  const made = requestOf(config, asked)
  const { request } = made
  const { pathname } = new URL(request.url)
  const matched = match(config, request)
  const { route } = matched
  const { accept } = matched.settings
  const caller = await callerOf(config, asked, matched, made)
  const { subject } = caller.credential ?? {}
  const own = subject?.kind === 'token' ? subject.plan : undefined
  const plan = subject && planName(asked.plan ?? own ?? config.plans[0]!, config.plans)
  const preflight = isPreflight(request)
  const refusal = isReserved(pathname)
    ? ({ status: 404, reason: 'paths under /_sluice/ never reach the origin' } as const)
    : preflight
      ? undefined
      : refusalOf(caller, accept)

  const isAsked = !refusal && !preflight
  const trafficClass =
    matched.classes.length > 0
      ? leastOf(matched.classes.map(classes => classOf(classes, caller, plan)))
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
      method: caller.credential?.method ?? 'anonymous',
      ...(caller.credential && { consumer: caller.credential.consumer }),
      address: caller.addressIdentity,
      ...(plan !== undefined && { plan }),
    },
    ...(refusal && { refusal }),
    isPreflight: preflight,
    ...(trafficClass && {
      trafficClass: explainClass(trafficClass, config, isAsked && !isExempt(config.allow, caller, matched)),
    }),
    rules: uniqueByName(config.rules).map(rule =>
      explainRule(rule, { config, request, caller, matched, plan, evaluation, isAsked, trafficClass }),
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

function explainRule({ name, by }: GatewayRule, situation: Situation): RuleExplanation {
  const { config, plan, evaluation } = situation
  const rows = config.rules.filter(rule => rule.name === name)
  const row = rows.find(({ match, isForOthers }) =>
    plan === undefined ? !match.plans || isForOthers : (match.plans?.includes(plan) ?? true),
  )
  const counted = row && evaluation.rules.find(({ rule }) => isSame(rule as GatewayRule, row, plan))
  if (!counted) return { name, by, applies: false, because: whyNot(rows, row, situation) }
  const { rule, cost, mode, ownKey } = counted
  const key = rule.counting.state === 'held' ? ownKey! : counted.key
  return {
    name,
    by,
    applies: true,
    algorithm: rule.algorithm,
    limit: rule.limit,
    allows: formatFullAllowance(rule),
    period: rule.period,
    ...(rule.calendar && { calendar: `${rule.calendar.period} (${rule.calendar.timeZone})` }),
    burst: rule.quota.burst,
    mode,
    cost,
    on: rule.on,
    key: inEnvironment(key.replace(encodeURIComponent(ANY_KEY), ANY_KEY), config.environment),
  }
}

/** What is asked about is a copy where a route has a cost, and for who has no plan. */
function isSame(rule: GatewayRule, row: GatewayRule, plan: string | undefined): boolean {
  return rule.match === row.match || (plan === undefined && rule.name === row.name && rule.tag === row.tag)
}

function refusalOf({ refusal }: Caller, accept: readonly string[]): Explanation['refusal'] {
  if (!refusal) return undefined
  return refusal.kind === 'forbidden'
    ? { status: 403, reason: `its ${refusal.what} is blocked (block, in the config)` }
    : { status: 401, reason: `${REASONS[refusal.reason]}; accepted here: ${accept.join(', ') || 'nothing'}` }
}

const REASONS: Record<Unauthenticated['reason'], string> = {
  missing: 'no credential',
  malformed: 'the credential is malformed: wrong form, checksum or environment',
  'not-accepted': 'this kind of credential is not accepted here',
  expired: 'the token has expired',
  unverifiable: 'the token cannot be verified',
}
