/** The parts of the benchmark, in the order of their sections in bench/results.md. */
import type { Findings } from './report.ts'
import type { TestBed } from './test-bed.ts'

/** Loaded when they run: with the source of an older commit, for `--against`, not all of them can be. */
export const MEASUREMENTS = {
  'HTTP requests': async () => (await import('./measurements/http-requests.ts')).httpRequests,
  'billed commands': async () => (await import('./measurements/billed-commands.ts')).billedCommands,
  'Redis server time': async () => (await import('./measurements/server-time.ts')).serverTime,
  profile: async () => (await import('./measurements/profile.ts')).profile,
  latency: async () => (await import('./measurements/latency.ts')).latency,
  'direct connections': async () => (await import('./measurements/direct-connections.ts')).directConnections,
  'latency through workerd': async () => (await import('./measurements/worker-latency.ts')).workerLatency,
  'worker CPU': async () => (await import('./measurements/worker-cpu.ts')).workerCpu,
  guard: async () => (await import('./measurements/guard.ts')).guardInNode,
  bridge: async () => (await import('./measurements/bridge.ts')).bridge,
  cluster: async () => (await import('./measurements/cluster.ts')).cluster,
  memory: async () => (await import('./measurements/memory.ts')).memory,
  'kept data': async () => (await import('./measurements/kept-data.ts')).keptData,
  'per algorithm': async () => (await import('./measurements/per-algorithm.ts')).perAlgorithm,
  'in flight': async () => (await import('./measurements/in-flight.ts')).inFlight,
  reservations: async () => (await import('./measurements/reservations.ts')).reservations,
  renewals: async () => (await import('./measurements/renewals.ts')).renewals,
  'load shedding': async () => (await import('./measurements/shedding.ts')).shedding,
  'hot callers': async () => (await import('./measurements/hot-callers.ts')).hotCallers,
  'hot caller times': async () => (await import('./measurements/hot-caller-times.ts')).hotCallerTimes,
  trips: async () => (await import('./measurements/trips.ts')).trips,
  mixtures: async () => (await import('./measurements/mixtures.ts')).mixtures,
  large: async () => (await import('./measurements/large.ts')).large,
  calls: async () => (await import('./measurements/calls.ts')).calls,
  callers: async () => (await import('./measurements/authentication.ts')).authentication,
  tokens: async () => (await import('./measurements/jwt.ts')).jwt,
  paths: async () => (await import('./measurements/paths.ts')).paths,
  'reading usage': async () => (await import('./measurements/usage.ts')).usage,
  'bundle size': async () => (await import('./measurements/bundle-size.ts')).bundleSize,
} satisfies Record<string, () => Promise<(bed: TestBed) => Promise<Findings>>>

export type Name = keyof typeof MEASUREMENTS

export const ALL = Object.keys(MEASUREMENTS) as Name[]

/** The parts that only count. Their figures are the same in each run, so one run is enough. */
export const COUNTED: readonly Name[] = [
  'HTTP requests',
  'billed commands',
  'cluster',
  'memory',
  'kept data',
  'hot callers',
  'trips',
  'bundle size',
]

/** The parts whose values are times of our code, in order of their duration. */
export const FOR_COMPARISON: readonly Name[] = [
  'per algorithm',
  'mixtures',
  'callers',
  'renewals',
  'guard',
  'worker CPU',
]

/** The parts whose values are times of Redis while it is busy. */
export const FOR_INSTRUCTIONS: readonly Name[] = [
  'Redis server time',
  'profile',
  'per algorithm',
  'in flight',
  'reservations',
  'load shedding',
  'mixtures',
  'large',
  'calls',
  'callers',
]
