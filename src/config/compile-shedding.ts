/** Compiles `shedding`: the traffic classes, the rules of the fleet, and the settings of the shedder by utilization. Pure. */
import type { Algorithms } from '../algorithms/descriptor.ts'
import type { AdaptiveMethodName } from './check/adaptive-schema.ts'
import type { ConfigInput } from './check/schema.ts'
import type { Pace, SheddingInput } from './check/shedding-schema.ts'
import { compileGatewayRule, compileMatch, type GatewayRule, type Match, type Rule } from './compile-rule.ts'
import { milliseconds } from './duration.ts'

/** A class of traffic. */
export interface TrafficClass {
  name: string
  /** Its place by importance. 0 is the most important class. */
  rank: number
  /** Its requests count, and no shedder refuses them. */
  isCritical?: true
  /** In place of `isCritical`, while only the store knows the plan of the caller, and other plans have a class that is not critical. */
  mayBeCritical?: true
  /** Absent: the class of every request that matches no other class. */
  match?: Match
}

export interface Shedding {
  /** In the order in which they are matched. */
  classes: readonly TrafficClass[]
  workerUtilization?: WorkerUtilization
}

/** The rule under which requests of one class are shed. It counts nothing. */
export interface ShedRule extends Pick<Rule, 'name' | 'mode' | 'enforcedShare'> {
  rank: number
}

/** Signals of this process, which no other process sees. */
export const PROCESS_SIGNALS = ['event-loop', 'cpu'] as const
export type ProcessSignal = (typeof PROCESS_SIGNALS)[number]

/** Whether isolates share a signal. */
export const isShared = ({ header, pushes, isInFlight }: WorkerUtilization): boolean =>
  header !== undefined || pushes !== undefined || isInFlight

/** The shedder by worker utilization. */
export interface WorkerUtilization {
  /** The rule of each class that can be shed: not the most important one, and none that is critical. The least important first. */
  rules: readonly ShedRule[]
  /** The response header of the origin that carries the signal, in lower case. Absent: the signal is not used. */
  header?: string
  /** How long a pushed value counts (ms). Absent: the signal is not used. */
  pushes?: {
    staleAfterMs: number
    /** The utilization that this share of the machines reaches counts. 0: of the busiest machine. Absent: the mean. */
    busyShare?: number
  }
  /** Signals of this process. Absent: none are used. */
  ofProcess?: readonly ProcessSignal[]
  /** Whether requests in flight ÷ capacity is a signal. */
  isInFlight: boolean
  /** Utilization, 0 to 1: above `high` more is shed, below `low` less. */
  high: number
  low: number
  pace: Pace
  /** How long a full overload lasts until the first request is shed (ms). */
  afterMs: number
  /** How long it lasts from then on until all classes but the most important one are shed (ms). */
  withinMs: number
}

/** Functions that a built Worker carries only if its config sheds traffic or has an adaptive limit. */
export interface SheddingCompiler {
  compileFleetRules: typeof compileFleetRules
  compileShedding: typeof compileShedding
  compileAdaptive: typeof compileAdaptive
}

/** The names of the shedders, which are also the names of their live switches. */
export const FLEET_USAGE = 'fleet-usage'
export const WORKER_UTILIZATION = 'worker-utilization'

/** A concurrency limit that follows the latency and the failures of the origin. Numbers are requests in flight. */
export interface Adaptive {
  method: AdaptiveMethodName
  min: number
  max: number
  initial: number
  tolerance: number
}

/**
 * From 20, the limit needs about four seconds of full load to reach 100. The minimum is 4, because a limit of one or two leaves no
 * room to see how latency follows it.
 */
export const DEFAULT_ADAPTIVE = { method: 'gradient', min: 4, initial: 20, tolerance: 2 } as const

/** The adaptive limit of the config: at most one rule, or the fleet, has one, because there is one origin. */
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
  const { tolerance = DEFAULT_ADAPTIVE.tolerance } = input
  return { method, min, max, initial, tolerance }
}

export const DEFAULT_SHEDDING = {
  /** Share of the capacity that is reserved for the most important class. */
  reserved: 0.2,
  header: 'x-utilization',
  high: 0.8,
  low: 0.7,
  pace: 'proportional',
  after: '28s',
  within: '2m',
  staleAfter: '30s',
} as const

/** How many requests of a class and of all less important classes can be in flight together. */
export interface FleetLevel {
  /** The most important class of the level. */
  name: string
  rank: number
  /** The rank of the next level; infinite for the last one. */
  nextRank: number
  /** Share of the capacity, 0 to 1. */
  share: number
  /** Requests in flight. */
  limit: number
}

/** Rounds a share down to whole units. The small addend keeps binary rounding errors of the share from costing a unit. */
export const wholeShareOf = (capacity: number, share: number) => Math.floor(capacity * share + 1e-6)

/** The limit of a rule that has this share of an adaptive limit: at least 1, so that its requests do not stop for good. */
export const shareOfAdaptive = (limit: number, share: number) => Math.max(1, wholeShareOf(limit, share))

/** The range of a rule's limit. Undefined: the limit is fixed. */
export function adaptiveRangeOf(
  { adaptiveShare }: Pick<GatewayRule, 'adaptiveShare'>,
  adaptive: Adaptive | undefined,
): Adaptive | undefined {
  if (!adaptive || adaptiveShare === undefined) return undefined
  const { method, min, max, initial, tolerance } = adaptive
  const own = (limit: number) => shareOfAdaptive(limit, adaptiveShare)
  return { method, min: own(min), max: own(max), initial: own(initial), tolerance }
}

/** The names of the classes, the most important first. A class that `importance` leaves out is a mistake, and comes last. */
export const namesByImportance = ({ classes, importance = [] }: SheddingInput): string[] => [
  ...new Set([...importance, ...classes.map(({ name }) => name)]),
]

/** Whether the class with this rank is critical. */
export const isCritical = (shedding: SheddingInput, rank: number): boolean =>
  shedding.classes.some(
    ({ name, critical }) => critical === true && name === namesByImportance(shedding)[rank],
  )

/** The levels of the fleet, the most important first. If nothing is reserved for the class before, a class has no level of its own. */
export function fleetLevels(shedding: SheddingInput): FleetLevel[] {
  if (!shedding.fleetUsage) return []
  const names = namesByImportance(shedding)
  const { capacity, reserved = { [names[0]!]: DEFAULT_SHEDDING.reserved } } = shedding.fleetUsage
  let reservedSoFar = 0
  const levels = names.flatMap((name, rank) => {
    const above = names[rank - 1] ?? ''
    const reservedAbove = rank === 0 ? undefined : Object.hasOwn(reserved, above) ? reserved[above]! : 0
    reservedSoFar += reservedAbove ?? 0
    const share = 1 - reservedSoFar
    return reservedAbove === 0 ? [] : [{ name, rank, share, limit: wholeShareOf(capacity, share) }]
  })
  return levels.map((level, i) => ({ ...level, nextRank: levels[i + 1]?.rank ?? Number.POSITIVE_INFINITY }))
}

/** The part of its limit that a level keeps free for each class of the level that is more important than the class of a request. */
const ROOM_SHARE = 0.02
/** The most that it keeps free. A small limit with many classes would otherwise keep most of it free, because the room is at least 1. */
const MAX_ROOM_SHARE = 0.2

/**
 * The limit of a rule of the fleet for one class. A class of a level leaves room for each more important class of the level, so a level
 * that fills up refuses the least important requests first. In telephone networks, this is called trunk reservation.
 * Less important levels leave as much room as the last class of this one. Otherwise they would take the room, while that class is refused.
 * @param limit the current one of the rule
 */
export function limitForClass(
  { match: { fromRank = 0 }, nextRank = 1 }: Pick<GatewayRule, 'match' | 'nextRank'>,
  limit: number,
  { rank }: Pick<TrafficClass, 'rank'>,
): number {
  const classesAbove = Math.min(rank, nextRank - 1) - fromRank
  const room = classesAbove * Math.ceil(limit * ROOM_SHARE)
  return Math.max(1, limit - Math.min(room, Math.ceil(limit * MAX_ROOM_SHARE)))
}

/**
 * The rules of the fleet: one for each level, which counts its class and all less important ones. So the least important requests count
 * under every rule, and the more important classes have room that the others cannot use.
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
  return fleetLevels(shedding).flatMap(({ name, rank, nextRank, share, limit }) =>
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
        ...{ isSystemLimit: true, switchedAs: FLEET_USAGE, match: { fromRank: rank }, nextRank },
        ...(fleetUsage.adaptive && { adaptiveShare: share }),
      }),
    ),
  )
}

export function compileShedding(shedding: SheddingInput): Shedding {
  const { workerUtilization } = shedding
  const names = namesByImportance(shedding)
  return {
    classes: shedding.classes.map(({ name, match, critical }) => ({
      ...{ name, rank: names.indexOf(name) },
      ...(critical && ({ isCritical: true } as const)),
      ...(match && { match: compileMatch(match) }),
    })),
    ...(workerUtilization && { workerUtilization: compileWorkerUtilization(shedding, workerUtilization) }),
  }
}

function compileWorkerUtilization(
  shedding: SheddingInput,
  input: NonNullable<SheddingInput['workerUtilization']>,
): WorkerUtilization {
  const { signals, aggregate = 'mean', mode = 'enforce', enforce = 1 } = input
  const ofProcess = PROCESS_SIGNALS.filter(signal => signals.includes(signal))
  const busyShare = aggregate === 'max' ? 0 : aggregate === 'mean' ? undefined : aggregate.busyShare
  const { high = DEFAULT_SHEDDING.high, low = DEFAULT_SHEDDING.low, pace = DEFAULT_SHEDDING.pace } = input
  return {
    rules: namesByImportance(shedding)
      .map((name, rank) => ({
        name: `${WORKER_UTILIZATION}-${name}`,
        rank,
        mode,
        enforcedShare: enforce,
      }))
      .filter(({ rank }) => rank > 0 && !isCritical(shedding, rank))
      .reverse(),
    ...(signals.includes('header') && { header: (input.header ?? DEFAULT_SHEDDING.header).toLowerCase() }),
    ...(signals.includes('push') && {
      pushes: {
        staleAfterMs: milliseconds(input.staleAfter ?? DEFAULT_SHEDDING.staleAfter),
        ...(busyShare !== undefined && { busyShare }),
      },
    }),
    ...(ofProcess.length > 0 && { ofProcess }),
    isInFlight: signals.includes('in-flight'),
    ...{ high, low, pace },
    afterMs: milliseconds(input.after ?? DEFAULT_SHEDDING.after),
    withinMs: milliseconds(input.within ?? DEFAULT_SHEDDING.within),
  }
}
