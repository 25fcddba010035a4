/** What `npx sluicegate check --json` prints. docs/config.md describes its fields. New versions only add fields. */

import { descriptionOf } from '../../algorithms/index.ts'
import { unitsAtOnce } from '../../algorithms/units-at-once.ts'
import { servedRoutes } from '../../config/api-routes.ts'
import { API_ROUTES } from '../../config/check/api-schema.ts'
import type { MatchInput } from '../../config/check/rule-schema.ts'
import type { ConfigInput, RouteInput } from '../../config/check/schema.ts'
import type { Warning } from '../../config/check/warnings.ts'
import type { GatewayRule, LimitRule } from '../../config/compile.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import { type Adaptive, adaptiveRangeOf } from '../../config/compile-shedding.ts'
import { ConfigError, type Mistake } from '../../config/config-error.ts'
import { ConfigFileError } from '../config-file-error.ts'
import { NoProjectError } from '../project.ts'
import type { LoadedFile } from './load-config.ts'

export interface CheckDocument {
  valid: boolean
  /** Empty if the config is valid. */
  mistakes: readonly Mistake[]
  /** They do not make a config invalid. */
  warnings: readonly Warning[]
}

export interface ValidDocument extends CheckDocument {
  file: string
  /** null: none, as for a guard. */
  origin: string | null
  environment: string | null
  /** The first is the default. */
  plans: readonly string[]
  /** All rules, including those that are off, in the order of the file. */
  rules: readonly GatewayRuleDocument[]
  /** By name. */
  limits: Readonly<Record<string, readonly RuleDocument[]>>
  /** The most specific first. */
  routes: readonly RouteDocument[]
  /** The HTTP API. null: it is not served. */
  api: ApiDocument | null
}

export interface ApiDocument {
  /** The parts that are served. */
  routes: readonly string[]
  /** The web pages whose scripts may call it. `*`: all. */
  origins: readonly string[]
}

export interface RuleDocument {
  name: string
  by: readonly string[]
  algorithm: string
  /** `requests`, or a unit of the config. */
  unit: string
  limit: number
  /** The limit follows the origin, from `min` to `max`. Absent: it is fixed. */
  adaptive?: Adaptive
  /** For a period that is a duration. A calendar period has the next two fields instead, and `concurrency` has `ttl_seconds`. */
  period_seconds?: number
  calendar_period?: string
  time_zone?: string
  /** Present if windows start with their first request (fixed-window). */
  start?: 'first-request'
  ttl_seconds?: number
  /** gcra and token-bucket. */
  burst?: number
  /** leaky-bucket. */
  queue?: number
  mode: string
  enforced_share: number
  candidate_for?: string
  on_store_failure: string
}

export interface GatewayRuleDocument extends RuleDocument {
  on: string
  /** Of a rule with a unit: its estimate, or 1 if each request has its own. */
  cost: number
  /** The statuses of responses that count. Absent: all of them. */
  count_if?: readonly number[]
  /** As it is written. */
  match: MatchInput
  /** Set if live and test callers are counted together. */
  across_modes?: true
  /** Numbers of plans that have their own; false: the rule does not apply. */
  plans: Readonly<Record<string, PlanDocument | false>>
}

export type PlanDocument = Pick<RuleDocument, 'limit' | 'burst' | 'queue'>

export interface RouteDocument {
  name: string
  match: RouteInput['match']
  accept: readonly string[]
  cost: number
  limits: boolean
}

export function checkDocument(config: LoadedFile, warnings: readonly Warning[]): ValidDocument {
  const { file, origin, environment, plans, limits, routes, input } = config
  return {
    valid: true,
    mistakes: [],
    warnings,
    file,
    origin: origin ?? null,
    environment: environment ?? null,
    plans,
    rules: (input.rules ?? []).map(rule => gatewayRuleDocument(rule.name, config)),
    limits: Object.fromEntries([...limits].map(([name, set]) => [name, set.map(ruleDocument)])),
    routes: routes.map(({ name, accept, cost, isLimited }) => ({
      name,
      match: input.routes!.find(route => route.name === name)!.match,
      accept,
      cost,
      limits: isLimited,
    })),
    api: apiDocument(input),
  }
}

export const apiDocument = ({ api }: Pick<ConfigInput, 'api'>): ApiDocument | null =>
  api ? { routes: servedRoutes(API_ROUTES, api.routes), origins: [api.cors?.origins ?? []].flat() } : null

/** @returns undefined for errors that are not about the config */
export function invalidDocument(error: unknown): CheckDocument | undefined {
  if (error instanceof ConfigError) return { valid: false, mistakes: error.mistakes, warnings: [] }
  if (error instanceof NoProjectError)
    return { valid: false, mistakes: [{ path: error.folder, message: error.message }], warnings: [] }
  if (!(error instanceof ConfigFileError)) return undefined
  return { valid: false, mistakes: [{ path: error.place, message: error.reason }], warnings: [] }
}

function gatewayRuleDocument(name: string, { rules, input, adaptive }: LoadedFile): GatewayRuleDocument {
  const [rule, ...rows] = rules.filter(row => row.name === name) as [GatewayRule, ...GatewayRule[]]
  const { match = {}, plans = {} } = input.rules!.find(rule => rule.name === name)!
  const numbers = rows.map(row => [row.match.plans![0]!, numbersOf(row)] as const)
  const range = adaptiveRangeOf(rule, adaptive)
  const without = Object.keys(plans).filter(plan => plans[plan] === false)
  return {
    ...ruleDocument(rule),
    ...(range && { adaptive: range }),
    on: rule.on,
    cost: rule.cost,
    ...(rule.countIf && { count_if: [...rule.countIf.status] }),
    match,
    ...(rule.acrossModes && { across_modes: true }),
    plans: Object.fromEntries([...numbers, ...without.map(plan => [plan, false] as const)]),
  }
}

function ruleDocument(rule: GatewayRule | LimitRule): RuleDocument {
  const { name, by, algorithm, unit, period, calendar, quota, mode, enforcedShare, candidateFor } = rule
  return {
    name,
    by,
    algorithm,
    unit,
    ...numbersOf(rule),
    ...(countsInFlight(rule)
      ? { ttl_seconds: period / 1e6 }
      : calendar
        ? { calendar_period: calendar.period, time_zone: calendar.timeZone }
        : { period_seconds: period / 1e6 }),
    ...(quota.startsWithRequest && { start: 'first-request' }),
    mode,
    enforced_share: enforcedShare,
    ...(candidateFor !== undefined && { candidate_for: candidateFor }),
    on_store_failure: rule.onStoreFailure,
  }
}

function numbersOf(rule: GatewayRule | LimitRule): PlanDocument {
  const atOnce = unitsAtOnce(descriptionOf(rule).numbers, rule.quota.burst)
  return { limit: rule.limit, ...(atOnce && { [atOnce.parameter]: atOnce.units }) }
}
