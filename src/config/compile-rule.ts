/** One rule, from what the user wrote to the numbers that its algorithm works with. Pure. */

import type { Quota } from '../algorithms/algorithm.ts'
import type { AlgorithmName } from '../algorithms/all.ts'
import { type CalendarPeriod, isCalendarPeriod, NOMINAL_PERIOD } from '../algorithms/calendar-period.ts'
import type { Algorithms, Counting } from '../algorithms/descriptor.ts'
import { BASE62 } from '../base62.ts'
import { fnv1a } from '../hash.ts'
import { builtForAnotherConfig } from '../not-built.ts'
import type {
  LimitRuleInput,
  MatchInput,
  NumbersInput,
  OnStoreFailure,
  PlanNumbersInput,
  RuleInput,
} from './check/rule-schema.ts'
import { compilePlace, type Place } from './compile-route.ts'
import { milliseconds, parseDuration } from './duration.ts'
import { type By, identityOf, isOfConsumer } from './identity-parts.ts'

/** Windows of a calendar. */
export interface Calendar {
  period: CalendarPeriod
  timeZone: string
  /** Finds the ends of its windows. */
  windowEnds: Algorithms['windowEnds']
}

export interface Lease {
  forMs: number
}

export interface Rule {
  name: string
  algorithm: AlgorithmName
  /** As written: units per period, for headers and messages. */
  limit: number
  /**
   * As written, in microseconds; of a calendar period what it lasts, give or take. Of `concurrency`, which has no period, its
   * `ttl`.
   */
  period: number
  /** How its algorithm counts. */
  counting: Counting
  /** Set where windows are those of a calendar. */
  calendar?: Calendar
  /** The numbers the algorithm works with. */
  quota: Quota
  /** Units that one request takes; a rule that costs 0 only reports how things stand. */
  cost: number
  /** Names the rule's record in the state of an identity: three base62 letters. */
  tag: string
  /** Names what an override is for: the rule whatever its limit and burst. Three base62 letters. */
  family: string
  /** Whether a consumer's overrides apply: it is counted for a consumer. */
  takesOverrides: boolean
  /** What is counted. */
  on: 'request' | 'auth-failure'
  /** One that is off is not asked about, unless it is switched on (src/switches/). */
  mode: 'enforce' | 'shadow' | 'off'
  /** The share of callers for whom it is enforced, 0 to 1; for the others it is a shadow. */
  enforcedShare: number
  /** The rule it would replace. */
  candidateFor?: string
  /** It protects the origin, and is no budget of a caller: it refuses with a 503, and callers do not see its numbers. */
  ofSystem?: true
  /** The name that it is switched by, where that is not its own: all rules of a shedder are switched together. */
  switchedAs?: string
  /** Its limit is this share of the adaptive limit; `limit` is the most that it can be. */
  adaptiveShare?: number
  /** What becomes of a request while the store does not answer. */
  onStoreFailure: OnStoreFailure
  /** One decision may spend for several requests, which the isolate then serves for so long without a trip. */
  lease?: Lease
  /** With very many isolates, each holds some units in advance (limiter/stock.ts): a rule that counts all that is in flight. */
  inAdvance?: true
  match: Match
}

/** The name under which a rule of the gateway is switched. */
export const switchNameOf = ({ name, switchedAs }: Pick<Rule, 'name' | 'switchedAs'>): string =>
  switchedAs ?? name

/** A rule for requests that pass through the gateway, with the numbers of some plans or of all. */
export interface GatewayRule extends Rule {
  by: readonly By[]
  /** Names what it counts by: rules with the same text share their state (identity-parts.ts). */
  identity: string
  /** Its plans are all but those with numbers of their own: it is also for callers without a plan. */
  isForOthers: boolean
}

/** A rule of a limit that is asked by name. */
export interface LimitRule extends Rule {
  /** Parts of the identity that are counted apart; empty: all callers together. */
  by: readonly string[]
}

export interface Match extends Place {
  plans?: readonly string[]
  routes?: ReadonlySet<string>
  authenticated?: boolean
  /** Only requests of a traffic class with this rank, and of less important ones (compile-shedding.ts). */
  fromRank?: number
}

/** The gateway delays no request longer than clients and platforms wait (µs). */
export const MAX_DELAY = 60e6

/**
 * The rule as it is for most, and once more for each plan with numbers of its own: all of them travel to the store, which
 * knows the plan.
 * @param plans of the config
 * @param algorithms that rules can have
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
    identity: identityOf(by),
    on: input.on ?? 'request',
    takesOverrides: (input.on ?? 'request') === 'request' && isOfConsumer(by),
  }
  const own = Object.entries(input.plans ?? {})
  const others = (match.plans ?? plans).filter(plan => !own.some(([name]) => name === plan))
  const base: GatewayRule = {
    ...compileRule(input, input.cost ?? 1, algorithms),
    ...common,
    match: own.length > 0 ? { ...match, plans: others } : match,
    isForOthers: own.length > 0 && match.plans === undefined,
    ...('adaptive' in input && input.adaptive && ({ ofSystem: true, adaptiveShare: 1 } as const)),
  }
  const variants = own.flatMap(([plan, numbers]): GatewayRule[] => {
    if (!numbers) return []
    const rule = compileRule(withNumbers(input, numbers), input.cost ?? 1, algorithms)
    return [{ ...rule, ...common, match: { ...match, plans: [plan] }, isForOthers: false }]
  })
  return [base, ...variants]
}

/** A rule as it is for a plan, or for a consumer with an override. */
export function withNumbers<T extends NumbersInput>(input: T, numbers: PlanNumbersInput): T {
  const given = Object.entries(numbers).filter(([, value]) => value !== undefined)
  return { ...input, ...Object.fromEntries(given) }
}

/** The same rule, without its list of plans: for callers whose plan was chosen before, and for those that have none. */
export function forAnyPlan(rule: GatewayRule): GatewayRule {
  const { plans: _, ...match } = rule.match
  return { ...rule, match }
}

export function compileLimitRule(input: LimitRuleInput, algorithms: Algorithms): LimitRule {
  return { ...compileRule(input, 1, algorithms), by: input.by ?? [] }
}

function compileRule(input: RuleInput | LimitRuleInput, cost: number, algorithms: Algorithms): Rule {
  const { name, algorithm, limit, candidateFor, mode = candidateFor ? 'shadow' : 'enforce' } = input
  const calendar = calendarOf(input, algorithms)
  const period = periodOf(input)
  const counting = algorithms.countings[algorithm]
  if (!counting) throw builtForAnotherConfig(`the algorithm '${algorithm}'`)
  const { state, numbers } = counting
  const quota = numbers(input, period)
  const lease = canBeLeased(input, counting) && input.lease
  const family = [name, algorithm, ...(calendar ? [calendar.period, calendar.timeZone] : [period])]
  return {
    name,
    algorithm,
    limit,
    period,
    counting,
    ...(calendar && { calendar }),
    quota,
    cost,
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

/** A log has an entry for each request, what is in flight ends with each, and guesses are counted when they are made. */
export function canBeLeased(input: RuleInput | LimitRuleInput, { state }: Pick<Counting, 'state'>): boolean {
  const isGuess = 'on' in input && input.on === 'auth-failure'
  return (state === 'time' || state === 'counts') && !isGuess
}

/** Only algorithms that take a calendar's period get as far as this with one. */
function calendarOf(input: NumbersInput, { windowEnds }: Algorithms): Calendar | undefined {
  const period = 'period' in input ? input.period : undefined
  if (period === undefined || !isCalendarPeriod(period)) return undefined
  const { timeZone = 'UTC' } = 'timeZone' in input ? input : {}
  return { period, timeZone, windowEnds }
}

/** In microseconds; of a calendar period what it lasts, give or take, and of `concurrency` its `ttl`. */
export function periodOf(input: NumbersInput): number {
  if (!('period' in input)) return parseDuration(input.ttl ?? DEFAULT_TTL)!
  const { period } = input
  return isCalendarPeriod(period) ? NOMINAL_PERIOD[period] : parseDuration(period)!
}

const DEFAULT_TTL = '15s'

export function compileMatch({ plans, routes, authenticated, ...place }: MatchInput): Match {
  return {
    ...compilePlace(place),
    ...(plans && { plans }),
    ...(routes && { routes: new Set(routes) }),
    ...(authenticated !== undefined && { authenticated }),
  }
}

/**
 * State belongs to a rule's name, algorithm and period, and where it is a time and no count also to the limit and
 * burst: with other numbers it would mean something else, so the rule starts afresh. Two configs that are live at once
 * (a gradual deployment) so do not read each other's, but for two of 238,328 that hash alike. The limit of windows and
 * logs may change under their counts.
 * (FNV-1a, cut to three letters: a name for a record, not a secret; two rules of one config with the same tag are
 * refused.)
 */
function tagOf(parts: readonly (string | number)[]): string {
  const hash = fnv1a(parts.join(' '))
  return Array.from({ length: 3 }, (_, i) => BASE62[Math.floor(hash / 62 ** i) % 62]).join('')
}
