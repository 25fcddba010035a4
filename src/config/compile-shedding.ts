/** Load shedding, from what the user wrote to what a request meets: classes, rules of the fleet, and the numbers of the shedder. Pure. */
import type { Algorithms } from '../algorithms/descriptor.ts'
import type { AdaptiveMethodName } from './check/adaptive-schema.ts'
import type { ConfigInput } from './check/schema.ts'
import type { SheddingInput } from './check/shedding-schema.ts'
import { compileGatewayRule, compileMatch, type GatewayRule, type Match, type Rule } from './compile-rule.ts'
import { milliseconds } from './duration.ts'

/** A class of traffic; `rank` is its place in the config, 0 is the most important. */
export interface TrafficClass {
  name: string
  rank: number
  /** Undefined: every request that matches no other class. */
  match?: Match
}

export interface Shedding {
  /** The most important first. */
  classes: readonly TrafficClass[]
  workerUtilization?: WorkerUtilization
}

/** By which requests of one class are shed. It counts nothing. */
export interface ShedRule extends Pick<Rule, 'name' | 'mode' | 'enforcedShare'> {
  rank: number
}

/** The shedder by worker utilization. */
export interface WorkerUtilization {
  /** For each class but the first the rule under which its requests are shed, the least important first. */
  rules: readonly ShedRule[]
  /** Response header of the origin that has the signal, in lower case. */
  header?: string
  /** How long what a machine has pushed counts (ms). */
  pushes?: { staleAfterMs: number }
  /** Requests in flight ÷ capacity is a signal. */
  isInFlight: boolean
  high: number
  low: number
  /** How long the signal is high until the first request is shed, and until all is shed (ms). */
  afterMs: number
  withinMs: number
}

/** What a Worker carries only if its config sheds traffic, or has a limit that adapts. */
export interface SheddingCompiler {
  compileFleetRules: typeof compileFleetRules
  compileShedding: typeof compileShedding
  compileAdaptive: typeof compileAdaptive
}

/** The names of the shedders: they are switched by these. */
export const FLEET_USAGE = 'fleet-usage'
export const WORKER_UTILIZATION = 'worker-utilization'

/** A limit that follows how fast the origin answers, and whether it fails. */
export interface Adaptive {
  method: AdaptiveMethodName
  min: number
  max: number
  initial: number
}

export const DEFAULT_ADAPTIVE = { method: 'gradient', min: 4, initial: 20 } as const

/** Of the rule, or of the fleet, that has it. At most one has: there is one origin. */
export function compileAdaptive({
  rules,
  shedding,
}: Pick<ConfigInput, 'rules' | 'shedding'>): Adaptive | undefined {
  const rule = rules?.find(rule => 'adaptive' in rule && rule.adaptive !== undefined)
  const { fleetUsage } = shedding ?? {}
  const ofRule = rule && 'adaptive' in rule ? rule.adaptive : undefined
  const input = fleetUsage?.adaptive ?? ofRule
  const max = fleetUsage?.adaptive ? fleetUsage.capacity : rule?.limit
  if (!input || max === undefined) return undefined
  const { method = DEFAULT_ADAPTIVE.method, min = Math.min(DEFAULT_ADAPTIVE.min, max) } = input
  const { initial = Math.min(Math.max(min, DEFAULT_ADAPTIVE.initial), max) } = input
  return { method, min, max, initial }
}

export const DEFAULT_SHEDDING = {
  /** Of the capacity, for the first class. */
  reserved: 0.2,
  header: 'x-utilization',
  high: 0.9,
  low: 0.7,
  after: '28s',
  within: '2m',
  staleAfter: '30s',
} as const

/** What a class and all less important ones can have in flight together. */
export interface FleetLevel {
  /** The most important class of the level. */
  name: string
  rank: number
  /** Of the capacity. */
  share: number
  limit: number
}

/** A share that is not exact in binary must not cost a whole unit. */
export const wholeShareOf = (capacity: number, share: number) => Math.floor(capacity * share + 1e-6)

/** The most important class first. A class for which nothing is reserved shares the level of the next one. */
export function fleetLevels({ classes, fleetUsage }: SheddingInput): FleetLevel[] {
  if (!fleetUsage) return []
  const { capacity, reserved = { [classes[0]!.name]: DEFAULT_SHEDDING.reserved } } = fleetUsage
  let taken = 0
  return classes.flatMap(({ name }, rank): FleetLevel[] => {
    const of = classes[rank - 1]?.name ?? ''
    const before = rank === 0 ? undefined : Object.hasOwn(reserved, of) ? reserved[of]! : 0
    taken += before ?? 0
    const share = 1 - taken
    return before === 0 ? [] : [{ name, rank, share, limit: wholeShareOf(capacity, share) }]
  })
}

/**
 * The rules of the fleet: one for each level, that counts its class and all less important ones. So a request takes part in one rule
 * or more, and the more important classes have room that the others cannot use.
 */
export function compileFleetRules(
  shedding: SheddingInput,
  plans: readonly string[],
  algorithms: Algorithms,
  onStoreFailure: GatewayRule['onStoreFailure'] | undefined,
): GatewayRule[] {
  const { fleetUsage } = shedding
  if (!fleetUsage) return []
  const { ttl, mode, enforce } = fleetUsage
  return fleetLevels(shedding).flatMap(({ name, rank, share, limit }) =>
    compileGatewayRule(
      {
        name: rank === 0 ? FLEET_USAGE : `${FLEET_USAGE}-${name}`,
        ...{ by: 'global', algorithm: 'concurrency', limit, ttl, mode, enforce },
        onStoreFailure: fleetUsage.onStoreFailure ?? onStoreFailure,
      },
      plans,
      algorithms,
    ).map(
      (rule): GatewayRule => ({
        ...rule,
        ...{ ofSystem: true, switchedAs: FLEET_USAGE, match: { fromRank: rank } },
        // How many units there are to hold in advance is not known where the limit moves.
        ...(fleetUsage.adaptive ? { adaptiveShare: share } : { inAdvance: true as const }),
      }),
    ),
  )
}

export function compileShedding(shedding: SheddingInput): Shedding {
  const { workerUtilization } = shedding
  return {
    classes: shedding.classes.map(({ name, match }, rank) => ({
      ...{ name, rank },
      ...(match && { match: compileMatch(match) }),
    })),
    ...(workerUtilization && { workerUtilization: compileWorkerUtilization(shedding, workerUtilization) }),
  }
}

function compileWorkerUtilization(
  { classes }: SheddingInput,
  input: NonNullable<SheddingInput['workerUtilization']>,
): WorkerUtilization {
  const { signals, mode = 'enforce', enforce = 1 } = input
  const { high = DEFAULT_SHEDDING.high, low = DEFAULT_SHEDDING.low } = input
  return {
    rules: classes
      .map(({ name }, rank) => ({
        name: `${WORKER_UTILIZATION}-${name}`,
        rank,
        mode,
        enforcedShare: enforce,
      }))
      .slice(1)
      .reverse(),
    ...(signals.includes('header') && { header: (input.header ?? DEFAULT_SHEDDING.header).toLowerCase() }),
    ...(signals.includes('push') && {
      pushes: { staleAfterMs: milliseconds(input.staleAfter ?? DEFAULT_SHEDDING.staleAfter) },
    }),
    isInFlight: signals.includes('in-flight'),
    ...{ high, low },
    afterMs: milliseconds(input.after ?? DEFAULT_SHEDDING.after),
    withinMs: milliseconds(input.within ?? DEFAULT_SHEDDING.within),
  }
}
