/** Compiles a rule to the numbers that its algorithm computes with. Pure. */

import type { Quota } from '../algorithms/algorithm.ts'
import type { AlgorithmName } from '../algorithms/all.ts'
import { type CalendarPeriod, isCalendarPeriod, NOMINAL_PERIOD } from '../algorithms/calendar-period.ts'
import type { Algorithms, Counting } from '../algorithms/descriptor.ts'
import { notBuiltError } from '../not-built.ts'
import type { CallerMode } from './caller-mode.ts'
import type {
  CallLimitRuleInput,
  LimitRuleInput,
  MatchInput,
  NumbersInput,
  OnStoreFailure,
  PlanNumbersInput,
  RuleInput,
} from './check/rule-schema.ts'
import { compileRequestPattern, type RequestPattern } from './compile-route.ts'
import { milliseconds, parseDuration } from './duration.ts'
import { type By, identityOf, isOfConsumer } from './identity-parts.ts'
import { tagOf } from './tags.ts'
import type { FieldsOfUnit, SettlementTerms } from './units-shape.ts'

export type { SettlementTerms }

/** The calendar of a rule whose windows are days, weeks or months. */
export interface Calendar {
  period: CalendarPeriod
  timeZone: string
  /** Computes the ends of its windows. */
  windowEnds: Algorithms['windowEnds']
}

/** The unit of rules that name none: a request has as many of it as it costs. */
export const REQUESTS = 'requests'

export interface LeaseTerms {
  /** How long an isolate may admit requests without asking the store. */
  forMs: number
}

export interface Rule {
  name: string
  algorithm: AlgorithmName
  /** Units per period as the user wrote them, for headers and messages. */
  limit: number
  /**
   * The period in microseconds. For a calendar period, its approximate length. For `concurrency`, which has no period, its
   * `ttl`.
   */
  period: number
  /** How its algorithm counts. */
  counting: Counting
  /** Absent: the windows are not those of a calendar. */
  calendar?: Calendar
  /** The numbers that the algorithm computes with. */
  quota: Quota
  /** What it counts: requests, or a unit of the config (`units`). */
  unit: string
  /** The unit as the header RateLimit-Policy names it. Absent: requests, or requests in flight. */
  quotaUnit?: string
  /** The unit as texts name it behind an amount: ` tokens`. Absent: requests. */
  unitSuffix?: string
  /**
   * Units that one request spends. A rule with cost 0 only reports what is left. Of another unit than requests: the estimate of the
   * config, or 1 if each request has its own.
   */
  cost: number
  /** Identifies the rule's record in the state of an identity: three base62 letters. Of several rules, withUniqueTags makes it unique. */
  tag: string
  /** Identifies the rule for overrides. Unlike the tag, it does not change with limit and burst. Three base62 letters. */
  family: string
  /** Whether overrides of a consumer apply, because the rule counts by consumer. Of limits by name: whether other numbers can apply. */
  takesOverrides: boolean
  /** Of a limit by name: whether each call reads the overrides of its identity (`overridable`). */
  isOverridable?: true
  /** What is counted. */
  on: 'request' | 'auth-failure'
  /** A rule that is off is not evaluated, unless a live switch turns it on (src/switches/). */
  mode: 'enforce' | 'shadow' | 'off'
  /** The share of callers for which the rule is enforced, 0 to 1. For the others it is a shadow. */
  enforcedShare: number
  /** The rule that this candidate would replace. */
  candidateFor?: string
  /** The rule protects the origin and is not a budget of a caller: it refuses with a 503, and callers do not see its numbers. */
  isSystemLimit?: true
  /** The name of its live switch, if that is not the rule's own: all rules of a shedder share one switch. */
  switchedAs?: string
  /** Its limit is this share of the adaptive limit. `limit` is then the upper bound. */
  adaptiveShare?: number
  /** For a request of a critical class: the limit that it may exceed. `limit` is then above all numbers of requests in flight. */
  exceedableLimit?: number
  /** Of a rule of the fleet: the rank from which on classes have a rule with a lower limit (compile-shedding.ts). */
  nextRank?: number
  /** What a request costs is only estimated when it is decided. */
  isEstimated?: true
  /** Set if the cost of a request is known only afterwards: an estimate is reserved, and settled when the cost is known. */
  settlement?: SettlementTerms | undefined
  /** What happens to a request while the store does not answer. */
  onStoreFailure: OnStoreFailure
  /** One decision may spend units for several requests, which the isolate serves without a trip to the store for this long. */
  lease?: LeaseTerms
  match: Match
  /** Set if one call has given the numbers of this rule (set-ups/limits/numbers.ts). */
  ofCall?: {
    /** The rule of the config. */
    base: Rule
    /** The numbers as an override of the base (src/store/records.ts). */
    override: string
    /** Two numbers that stand for them: the limit, and the tag of the record. */
    written: string
  }
}

/** The name of the live switch of a rule. */
export const switchNameOf = ({ name, switchedAs }: Pick<Rule, 'name' | 'switchedAs'>): string =>
  switchedAs ?? name

/** Whether a rule applies to callers with this plan. @param plan undefined or empty: the caller has none */
export const appliesToPlan = (
  { match: { plans } }: { match: { plans?: readonly string[] | undefined } },
  plan: string | undefined,
) => plans === undefined || (plan !== undefined && plans.includes(plan))

/** Whether this variant of a rule is the one for a plan, or for callers without a plan. */
export const isVariantFor = (rule: Pick<GatewayRule, 'match' | 'isForOthers'>, plan: string | undefined) =>
  appliesToPlan(rule, plan) || (plan === undefined && rule.isForOthers)

/** The plan that counts: a caller whose plan the config does not have gets the default plan, its first. */
export const knownPlan = (plans: readonly string[], plan: string | undefined): string =>
  plan !== undefined && plans.includes(plan) ? plan : plans[0]!

/** A rule for requests to the gateway, a guard or a middleware, with the numbers for one plan or for several. */
export interface GatewayRule extends Rule, Pick<FieldsOfUnit, 'countIf'> {
  by: readonly By[]
  /** Identifies what the rule counts by. Rules with the same text share the state of an identity (identity-parts.ts). */
  identity: string
  /** Test callers and live ones are counted together. */
  acrossModes?: true
  /** The variant for all plans without numbers of their own, which is also for callers without a plan. */
  isForOthers: boolean
}

/** A rule of a limit by name. */
export interface LimitRule extends Rule, Pick<FieldsOfUnit, 'needsAmount'> {
  /** Parts of the identity that are counted separately. Empty: all callers are counted together. */
  by: readonly string[]
  /** Set if each call gives the numbers (`numbers: 'call'`): the rule with the most that a call may ask for, which its own numbers are. */
  atCall?: LimitRuleInput
}

/** Which requests a rule or a traffic class is for. An absent field matches every request. */
export interface Match extends RequestPattern {
  plans?: readonly string[]
  routes?: ReadonlySet<string>
  authenticated?: boolean
  mode?: CallerMode
  /** Only requests of the traffic class with this rank, and of less important classes (compile-shedding.ts). */
  fromRank?: number
}

/** The longest delay of a request (µs): clients and platforms do not wait longer. */
export const MAX_DELAY = 60e6

/**
 * Compiles a rule to one variant for each plan with numbers of its own, and one for all other plans. All variants travel to
 * the store, because the store knows the plan of the caller.
 * @param plans all plans of the config
 * @param algorithms the algorithms that rules can have
 * @returns the variant for all other plans first
 */
export function compileGatewayRule(
  input: RuleInput,
  plans: readonly string[],
  algorithms: Algorithms,
): GatewayRule[] {
  const by = [input.by].flat()
  const match = compileMatch(input.match ?? {})
  const common = {
    by,
    identity: identityOf(by, input.acrossModes),
    ...(input.acrossModes && ({ acrossModes: true } as const)),
    on: input.on ?? 'request',
    takesOverrides: (input.on ?? 'request') === 'request' && isOfConsumer(by),
  }
  const own = Object.entries(input.plans ?? {})
  const others = (match.plans ?? plans).filter(plan => !own.some(([name]) => name === plan))
  const base: GatewayRule = {
    ...compileRule(input, algorithms),
    ...common,
    match: own.length > 0 ? { ...match, plans: others } : match,
    isForOthers: own.length > 0 && match.plans === undefined,
    ...('adaptive' in input && input.adaptive && ({ isSystemLimit: true, adaptiveShare: 1 } as const)),
  }
  const variants = own.flatMap(([plan, numbers]): GatewayRule[] => {
    if (!numbers) return []
    const rule = compileRule(withNumbers(input, numbers), algorithms)
    return [{ ...rule, ...common, match: { ...match, plans: [plan] }, isForOthers: false }]
  })
  return [base, ...variants]
}

/** The rule with the numbers of a plan or of an override. */
export function withNumbers<T extends NumbersInput>(input: T, numbers: PlanNumbersInput): T {
  const given = Object.entries(numbers).filter(([, value]) => value !== undefined)
  return { ...input, ...Object.fromEntries(given) }
}

/** The rule without its list of plans, for a caller whose plan has been compared before or that has none. */
export function withoutPlans(rule: GatewayRule): GatewayRule {
  const { plans: _, ...match } = rule.match
  return { ...rule, match }
}

export function compileLimitRule(input: LimitRuleInput, algorithms: Algorithms): LimitRule
export function compileLimitRule(
  input: LimitRuleInput | CallLimitRuleInput,
  algorithms: Algorithms,
): LimitRule
export function compileLimitRule(
  input: LimitRuleInput | CallLimitRuleInput,
  algorithms: Algorithms,
): LimitRule {
  const { name, by = [], algorithm, unit = REQUESTS } = input
  if (!('max' in input)) {
    const { overridable = false } = input
    const ofOverrides = overridable && ({ takesOverrides: true, isOverridable: true } as const)
    return { ...compileRule(input, algorithms), by, ...ofOverrides }
  }
  const atCall = withMax(input)
  // The family stays when `max` changes. The period of a call is part of the tag.
  const family = tagOf([name, algorithm, 'numbers of the call', unit])
  return { ...compileRule(atCall, algorithms), by, family, takesOverrides: true, atCall }
}

/** A rule whose numbers each call gives, with those that a call may have at most. Other rules stay as they are. */
export function withMax(input: LimitRuleInput | CallLimitRuleInput): LimitRuleInput {
  if (!('max' in input)) return input
  const { numbers: _, max, ...rule } = input
  return { ...rule, ...max } as LimitRuleInput
}

/** What the numbers of one call change in a rule with `atCall`. @param numbers checked */
export function compileNumbers(
  { algorithm, calendar, counting }: LimitRule,
  numbers: LimitRuleInput,
): Pick<Rule, 'limit' | 'period' | 'quota' | 'tag'> {
  const windowEnds = calendar?.windowEnds ?? (() => [])
  const { limit, period, quota, tag } = compileRule(numbers, {
    countings: { [algorithm]: counting },
    windowEnds,
  })
  return { limit, period, quota, tag }
}

/** Compiles a rule as if it counted requests, at a cost that is known (see compile-units.ts). */
function compileRule(
  input: (RuleInput | LimitRuleInput) & { cost?: number | undefined },
  algorithms: Algorithms,
): Rule {
  const { name, algorithm, limit, unit = REQUESTS } = input
  const { candidateFor, mode = candidateFor ? 'shadow' : 'enforce' } = input
  const calendar = calendarOf(input, algorithms)
  const period = periodOf(input)
  const counting = algorithms.countings[algorithm]
  if (!counting) throw notBuiltError(`the algorithm '${algorithm}'`)
  const { state, toQuota } = counting
  const quota = toQuota(input, period)
  const lease = canBeLeased(input, counting) && input.lease
  // A state belongs to a rule's name, algorithm, period and start of windows. A state that is a time depends on the limit and the
  // burst as well: under other numbers it has another meaning, so a rule that changes them starts with a new state. Counts of windows
  // and logs stay valid if the limit changes. So two configs that are live at once, as in a gradual deployment, do not misread each
  // other's states. A rule that changes its unit starts with a new state, too.
  const family = [
    ...[name, algorithm, ...(calendar ? [calendar.period, calendar.timeZone] : [period])],
    ...(quota.startsWithRequest ? ['first-request'] : []),
    ...(unit === REQUESTS ? [] : [`unit ${unit}`]),
  ]
  return {
    name,
    algorithm,
    limit,
    period,
    counting,
    ...(calendar && { calendar }),
    quota,
    unit,
    cost: input.cost ?? 1,
    tag: tagOf([...family, ...(state === 'time' ? [limit, quota.burst] : [])]),
    family: tagOf(family),
    takesOverrides: false,
    on: 'request',
    mode,
    enforcedShare: input.enforce ?? 1,
    ...(candidateFor !== undefined && { candidateFor }),
    onStoreFailure: input.onStoreFailure ?? 'local',
    ...(lease && { lease: { forMs: milliseconds(lease.for) } }),
    match: {},
  }
}

/** Whether a rule counts requests in flight. Units in flight are released when the request ends, not refunded. */
export const countsInFlight = ({ counting }: { readonly counting: Pick<Counting, 'state'> }) =>
  counting.state === 'held'

/** Whether units can be given back to the time at which they were spent, and a debt can be worked off. */
export const canSettle = ({ state, isQueue }: Pick<Counting, 'state' | 'isQueue'>): boolean =>
  (state === 'time' && !isQueue) || state === 'counts'

/**
 * Whether a rule that counts requests can have a lease. A log needs an entry for each request, units in flight end with each request, and
 * failed credentials are counted one by one. Rules whose costs vary have none, because a lease is for requests that all cost the same.
 */
export function canBeLeased(input: RuleInput | LimitRuleInput, { state }: Pick<Counting, 'state'>): boolean {
  const isGuess = 'on' in input && input.on === 'auth-failure'
  return (state === 'time' || state === 'counts') && !isGuess
}

/** The check has accepted calendar periods only for algorithms that support them. */
function calendarOf(input: NumbersInput, { windowEnds }: Algorithms): Calendar | undefined {
  const period = 'period' in input ? input.period : undefined
  if (period === undefined || !isCalendarPeriod(period)) return undefined
  const { timeZone = 'UTC' } = 'timeZone' in input ? input : {}
  return { period, timeZone, windowEnds }
}

/** The period in microseconds: for a calendar period its approximate length, for `concurrency` its `ttl`. */
export function periodOf(input: NumbersInput): number {
  if (!('period' in input)) return parseDuration(input.ttl ?? DEFAULT_TTL)!
  const { period } = input
  return isCalendarPeriod(period) ? NOMINAL_PERIOD[period] : parseDuration(period)!
}

const DEFAULT_TTL = '15s'

export function compileMatch({ plans, routes, authenticated, mode, ...place }: MatchInput): Match {
  return {
    ...compileRequestPattern(place),
    ...(plans && { plans }),
    ...(routes && { routes: new Set(routes) }),
    ...(authenticated !== undefined && { authenticated }),
    ...(mode && { mode }),
  }
}
