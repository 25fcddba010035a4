/**
 * Compiles a config to the form that requests are handled with: with defaults, numbers in microseconds, and everything computed
 * that does not depend on a request. Pure, and the result is never changed. Nothing is checked here: check/ has checked
 * the config before. A built Worker does not contain check/.
 */

import type { Algorithms } from '../algorithms/descriptor.ts'
import { LINES_PER_SECOND } from '../log.ts'
import { compileRanges, type Ranges } from './address-ranges.ts'
import { auditKeepMs } from './audit-keep.ts'
import type {
  ApiRoutes,
  CallLimitRuleInput,
  ConfigInput,
  CorsInput,
  HeadersInput,
  HooksInput,
  LimitRuleInput,
  MetricsInput,
  RuleInput,
} from './check/schema.ts'
import { type AddressSettings, compileAddress } from './compile-address.ts'
import { type BreakerSettings, compileBreaker, MAX_DEADLINES_PER_CALL } from './compile-breaker.ts'
import { type Credentials, compileCredentials } from './compile-credentials.ts'
import { compileRouteSettings, compileRoutes, type Route, type RouteSettings } from './compile-route.ts'
import {
  compileGatewayRule,
  compileLimitRule,
  type GatewayRule,
  type LimitRule,
  type Rule,
} from './compile-rule.ts'
import type { Adaptive, Shedding, SheddingCompiler } from './compile-shedding.ts'
import type { CompiledUnits, compileUnits } from './compile-units.ts'
import { type Duration, milliseconds } from './duration.ts'
import { withUniqueTags } from './tags.ts'
import type { Units } from './units-shape.ts'

export type { Credentials, GatewayRule, LimitRule, Route, Rule }

export interface Config {
  /** The URL of the origin. Absent: the gateway cannot be used, only set-ups that need no origin. */
  origin?: string
  originDeadlineMs: number
  idleDeadlineMs: number
  originConnections: 'kept' | 'fresh'
  /** What becomes of a request at the origin if its client leaves. */
  onClientGone: 'wait' | 'abort' | 'read-on'
  /** Absent: there is only one deployment. */
  environment?: string
  /** The first plan is the default. */
  plans: readonly string[]
  /** The most specific first. */
  routes: readonly Route[]
  /** The settings of requests without a route. */
  routeDefaults: RouteSettings
  /** Includes rules that are off, because they can be switched on, and one variant for each plan with numbers of its own. */
  rules: readonly GatewayRule[]
  /** What rules count besides requests, by name. Absent: each rule counts requests. */
  units?: Units | undefined
  /** Absent: no traffic is shed. */
  shedding?: Shedding
  /** Absent: every limit is fixed. */
  adaptive?: Adaptive
  /** Limits by name. Includes rules that are off. */
  limits: ReadonlyMap<string, readonly LimitRule[]>
  credentials: Credentials
  address: AddressSettings
  /** Callers that are never limited. */
  allow: { addresses: Ranges; consumers: ReadonlySet<string> }
  /** Callers that are always refused. */
  block: { addresses: Ranges; countries: ReadonlySet<string> }
  /** Absent: refusals are not remembered. */
  refusals?: { rememberForMs: number }
  storeDeadlineMs: number
  /** Absent: every decision waits for the store. */
  breaker?: BreakerSettings
  /** How many HTTP requests to the store can be under way, and how long a decision waits for its turn (src/trips/queue-for-trips.ts). */
  tripLimit: { maxRequests: number; expiresAfterMs: number; maxWaitMs: number; maxTotalWaitMs: number }
  /** Whether a failure of the limiter itself lets requests pass, as far as they are authenticated. Absent: it does not. */
  failOpen?: ConfigInput['failOpen']
  /** The share of each limit that an isolate admits by itself while the store fails, 0 to 1. */
  localShare: number
  keyLocking: boolean
  /** The store is a Redis Cluster: one call cannot have keys of several slots. */
  cluster: boolean
  log: { perSecond: number }
  /** How long entries of the audit trail are kept. */
  auditKeepMs: number
  /** Of limits by name. */
  longestPauseMs: number
  /** Absent: no statistics are stored. */
  stats?: {
    everyMs: number
    /** Which names of refused callers are kept. Absent: none. */
    topCallers?: 'consumers' | 'networks'
  }
  /** Absent: nothing is measured beside the statistics. */
  metrics?: MetricsInput
  /** Absent: the gateway serves no API. */
  api?: {
    cors?: Cors
    /** The parts that are served. Absent: the usual ones (api-routes.ts). */
    routes?: 'all' | readonly ApiRoutes[]
    /** The rules as they are written, and what they were compiled with: overrides are compiled in the same way. */
    written: Pick<ConfigInput, 'rules' | 'limits' | 'plans' | 'units' | 'audit'>
    algorithms: Algorithms
    /** Absent: all rules count requests. */
    compiledUnits?: CompiledUnits
  }
  /** The unit of `X-RateLimit-Reset`. Absent: no `X-RateLimit-*` headers are sent. */
  xRateLimit?: HeadersInput['xRateLimit']
  /** Absent: the config has no hooks. */
  hooks?: Omit<HooksInput, 'deadline'> & { deadline: Duration }
  cors?: Cors
}

/** Which web pages may call. */
export interface Cors {
  origins: '*' | readonly string[]
  headers?: readonly string[]
  maxAgeSeconds: number
}

/** Functions that a built Worker carries only if its config needs them. */
export interface Compilers extends SheddingCompiler {
  /** With `units` or `countIf`. */
  compileUnits: typeof compileUnits
}

/**
 * @param config a config that check/check.ts has accepted
 * @param algorithms at least those of its rules
 * @param compilers at least those that the config needs
 */
export function compileConfig(
  config: ConfigInput,
  algorithms: Algorithms,
  { compileAdaptive, compileFleetRules, compileShedding, compileUnits }: Compilers,
): Config {
  const plans = config.plans ?? ['free']
  const limits = Object.entries(config.limits ?? {})
  const credentials = compileCredentials(config)
  const onStoreFailure = config.onStoreFailure ?? (config.failOpen ? 'open' : undefined)
  const withDefault = <T extends RuleInput | LimitRuleInput | CallLimitRuleInput>(rule: T): T => ({
    ...rule,
    onStoreFailure: rule.onStoreFailure ?? onStoreFailure,
    lease: rule.lease ?? config.lease,
  })
  const storeDeadlineMs = milliseconds(config.store?.deadline ?? '250ms')
  const adaptive = hasAdaptive(config) ? compileAdaptive(config) : undefined
  const { rememberFor = '1s' } = config.refusals ?? {}
  const breaker = compileBreaker(config.store?.breaker, storeDeadlineMs)
  const compiled: Config = {
    ...(config.origin !== undefined && { origin: config.origin }),
    originDeadlineMs: milliseconds(config.originDeadline ?? '30s'),
    idleDeadlineMs: milliseconds(config.idleDeadline ?? '5m'),
    originConnections: config.originConnections ?? 'kept',
    onClientGone: onClientGoneOf(config),
    ...(config.environment !== undefined && { environment: config.environment }),
    plans,
    routes: compileRoutes(config.routes ?? [], credentials.accept),
    routeDefaults: compileRouteSettings({}, credentials.accept),
    rules: withUniqueTags([
      ...(config.rules ?? []).flatMap(rule => compileGatewayRule(withDefault(rule), plans, algorithms)),
      ...(config.shedding ? compileFleetRules(config.shedding, plans, algorithms, onStoreFailure) : []),
    ]),
    ...(config.shedding && { shedding: compileShedding(config.shedding) }),
    ...(adaptive && { adaptive }),
    limits: new Map(
      limits.map(([name, set]) => [
        name,
        withUniqueTags(set.map(rule => compileLimitRule(withDefault(rule), algorithms))),
      ]),
    ),
    credentials,
    address: compileAddress(config.address),
    allow: {
      addresses: compileRanges(config.allow?.addresses ?? []),
      consumers: new Set(config.allow?.consumers),
    },
    block: {
      addresses: compileRanges(config.block?.addresses ?? []),
      countries: new Set(config.block?.countries),
    },
    ...(rememberFor !== 0 && { refusals: { rememberForMs: milliseconds(rememberFor) } }),
    storeDeadlineMs,
    ...(breaker && { breaker }),
    tripLimit: {
      maxRequests: config.store?.maxInFlight ?? 32,
      expiresAfterMs: 2 * storeDeadlineMs,
      maxWaitMs: 4 * storeDeadlineMs,
      maxTotalWaitMs: MAX_DEADLINES_PER_CALL * storeDeadlineMs,
    },
    ...(config.failOpen && { failOpen: config.failOpen }),
    localShare: config.store?.localShare ?? 1,
    keyLocking: config.store?.keyLocking ?? true,
    cluster: config.store?.cluster ?? false,
    log: { perSecond: config.log?.perSecond ?? LINES_PER_SECOND },
    auditKeepMs: auditKeepMs(config.audit),
    longestPauseMs: milliseconds(config.longestPause ?? '24h'),
    ...(config.stats?.keep !== false && { stats: compileStats(config.stats) }),
    ...(config.metrics && { metrics: config.metrics }),
    ...(config.api && { api: compileApi(config, algorithms) }),
    xRateLimit: config.headers?.xRateLimit,
    ...(config.hooks && { hooks: { ...config.hooks, deadline: config.hooks.deadline ?? '1s' } }),
    ...(config.cors && { cors: compileCors(config.cors) }),
  }
  const hasUnits = config.units ?? config.rules?.some(({ countIf }) => countIf)
  return hasUnits ? compileUnits(compiled, config) : compiled
}

function compileApi(config: ConfigInput, algorithms: Algorithms) {
  const { cors, routes } = config.api!
  return {
    ...(cors && { cors: compileCors(cors) }),
    ...(routes && { routes }),
    written: config,
    algorithms,
  }
}

function compileCors({ origins, headers, maxAge }: CorsInput): Cors {
  return { origins, ...(headers && { headers }), maxAgeSeconds: milliseconds(maxAge ?? '10m') / 1e3 }
}

function compileStats({ every = '10s', topCallers = 'consumers' }: NonNullable<ConfigInput['stats']> = {}) {
  return { everyMs: milliseconds(every), ...(topCallers !== 'off' && { topCallers }) }
}

/** By default, a client that leaves before the usage of its reply does not pay less. */
export const onClientGoneOf = ({ onClientGone, units = {} }: ConfigInput): Config['onClientGone'] =>
  onClientGone ?? (Object.values(units).some(({ actual }) => typeof actual === 'object') ? 'read-on' : 'wait')

const hasAdaptive = ({ rules, shedding }: ConfigInput) =>
  shedding?.fleetUsage?.adaptive !== undefined || rules?.some(rule => 'adaptive' in rule && rule.adaptive)
