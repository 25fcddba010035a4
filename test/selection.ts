/**
 * What `npm test` runs within a minute, and what it leaves to `npm run test:all`. Nothing else decides this: vitest.config.ts takes the
 * files from here, the suites their servers and their numbers of random cases. test/support/report-selection.ts prints what a run has
 * left out.
 */

/** `quick` is `npm test`, `all` is `npm run test:all`. Files that are named on the command line are never left out. */
export type Selection = 'quick' | 'all'

export const SELECTION: Selection = process.env.TEST_SELECTION === 'all' ? 'all' : 'quick'

/** The files that `npm test` leaves out, by the reason. Each pattern is relative to the repository. */
export const LEFT_OUT: Readonly<Record<string, readonly string[]>> = {
  'inject faults into Workers, servers and origins': [
    'test/anomaly/**/*.test.ts',
    'test/metrics/alerts.test.ts',
    'test/e2e/at-once.test.ts',
    'test/e2e/concurrency.test.ts',
    'test/e2e/endings.test.ts',
    'test/e2e/flood.test.ts',
    'test/e2e/llm.test.ts',
    'test/e2e/llm-clients.test.ts',
    'test/e2e/llm-load.test.ts',
    'test/e2e/llm-sdks.test.ts',
    'test/e2e/slow-origin.test.ts',
    'test/hostile/serve.test.ts',
    'test/hostile/workerd.test.ts',
    'test/ops/audit-faults.test.ts',
    'test/api/idempotency.test.ts',
    'test/limiter/at-once.test.ts',
    'test/limiter/calls-at-once.test.ts',
    'test/limiter/lost-writes.test.ts',
    'test/limiter/outage/outages.test.ts',
    'test/set-ups/every-touch.test.ts',
    'test/set-ups/redis-option-cluster.test.ts',
    'test/store/conformance-cluster.test.ts',
    'test/store/conformance-faults.test.ts',
    'test/script/everything-on-cluster.test.ts',
    'test/store/conformance-replies.test.ts',
    'test/set-ups/rpc-death.test.ts',
    'test/usage/charges.test.ts',
    'test/usage/workerd.test.ts',
    'test/node/rest-bridge-cluster.test.ts',
    'test/node/rest-bridge-outage.test.ts',
    'test/node/redis-aof.test.ts',
    'test/node/redis-failover.test.ts',
    'test/node/redis-store-sentinel.test.ts',
    'test/node/doctor/gateway.test.ts',
    'test/node/doctor/store.test.ts',
  ],
  'start several Workers, or programs again and again': [
    'test/api/command-line.test.ts',
    'test/api/lint.test.ts',
    'test/client/workerd.test.ts',
    'test/store/workerd.test.ts',
    'test/e2e/api-clients.test.ts',
    'test/e2e/api.test.ts',
    'test/e2e/bullmq.test.ts',
    'test/e2e/client.test.ts',
    'test/e2e/first-run.test.ts',
    'test/e2e/leases.test.ts',
    'test/e2e/origin-route.test.ts',
    'test/e2e/python.test.ts',
    'test/e2e/python-load.test.ts',
    'test/e2e/queue-worker.test.ts',
    'test/e2e/serve.test.ts',
    'test/e2e/switches.test.ts',
    'test/e2e/turns.test.ts',
    'test/e2e/web-socket-keys.test.ts',
    'test/credentials/jwt-workerd.test.ts',
    'test/set-ups/set-ups.test.ts',
    'test/set-ups/report-at-start.test.ts',
    'test/set-ups/rpc.test.ts',
    'test/set-ups/workerd.test.ts',
    'test/node/bin.test.ts',
    'test/node/build-worker.test.ts',
    'test/node/check-command.test.ts',
    'test/node/cli.test.ts',
    'test/node/doctor/command.test.ts',
    'test/node/doctor/tls.test.ts',
    'test/node/edge.test.ts',
    'test/node/help.test.ts',
    'test/node/import-config.test.ts',
    'test/node/limits-acquire.test.ts',
    'test/node/redis-acl.test.ts',
    'test/node/redis-store-tls.test.ts',
    'test/node/redis-tls.test.ts',
    'test/node/start.test.ts',
    'test/ops/decision-cost.test.ts',
    'test/worker/administration.test.ts',
    'test/worker/misconfigured.test.ts',
    'test/selection.test.ts',
  ],
  'run what the pages show: commands, snippets and simulations': [
    'test/docs/hot-callers.test.ts',
    'test/docs/load-shedding.test.ts',
    'test/docs/reservations.test.ts',
    'test/docs/run-commands.test.ts',
    'test/docs/run-shell.test.ts',
    'test/docs/run-snippets.test.ts',
    'test/docs/sizes.test.ts',
    'test/docs/snippet-types.test.ts',
  ],
  'load TypeScript, wrangler, or the library that draws plots': [
    'test/docs/config.test.ts',
    'test/docs/messages.test.ts',
    'test/docs/plots.test.ts',
    'test/node/wrangler.test.ts',
  ],
  'let each command of each script fail, or fill a store': [
    'test/ops/failing-operations.test.ts',
    'test/ops/many-keys.test.ts',
    'test/script/failing-changes.test.ts',
    'test/script/failing-commands.test.ts',
  ],
  'replay long traffic, or compile the largest configs': [
    'test/api/fuzz.test.ts',
    'test/bench/module-order.test.ts',
    'test/replay/**/*.test.ts',
    'test/script/rule-set-size.test.ts',
    'test/store/recorded-state.test.ts',
    'test/simulation/adaptive.test.ts',
    'test/simulation/utilization.test.ts',
    'test/usage/memory.test.ts',
  ],
  'pack and install the package': ['test/package/**/*.test.ts'],
}

/** What only runs if the command line names it: `npm run test:package`. It installs frameworks from npm, for minutes. */
export const NIGHTLY: readonly string[] = ['test/package/nightly/**/*.test.ts']

/** The patterns of the files that a run leaves out. @param isPart whether the command line names paths */
export function excludedFiles(selection: Selection, isPart: boolean): readonly string[] {
  if (isPart) return []
  return selection === 'all' ? NIGHTLY : Object.values(LEFT_OUT).flat()
}

/** The servers of suites, in the order in which `npm test` prefers them, then the embedded Redis, which takes ten times as long. */
const PREFERRED = ['redis-server', 'valkey-server', 'embedded'] as const

export type RedisKind = (typeof PREFERRED)[number]

/** Chooses the servers that suites run on. @param available every server of this machine */
export function enginesOf(selection: Selection, available: readonly RedisKind[]): readonly RedisKind[] {
  return selection === 'all' ? available : PREFERRED.filter(kind => available.includes(kind)).slice(0, 1)
}

/** `npm test` runs this share of the random cases. */
const QUICK_SHARE = 1 / 12
/** The embedded Redis only has to show that it executes the same scripts. */
const EMBEDDED_SHARE = 1 / 4

/**
 * The number of random cases that a suite runs.
 * @param cases the number in `npm run test:all` on the model and on a real server
 */
export function randomCases(cases: number, kind?: RedisKind, selection = SELECTION): number {
  const share = selection === 'quick' ? QUICK_SHARE : kind === 'embedded' ? EMBEDDED_SHARE : 1
  return Math.ceil(cases * share)
}

/** A size, number or list of a suite. @param all with `npm run test:all`, @param quick with `npm test` */
export function sized<T>(all: T, quick: T, selection = SELECTION): T {
  return selection === 'all' ? all : quick
}

/** The seeds of a simulation: the one of the published figures, and nine others with `npm run test:all`. */
export function simulationSeeds(published: number, selection = SELECTION): readonly number[] {
  return selection === 'all' ? [published, ...Array.from({ length: 9 }, (_, i) => 101 + i)] : [published]
}
