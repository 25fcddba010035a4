/**
 * `npm run bench`: compares a decision of Sluice about six limits with six calls of @upstash/ratelimit for the same algorithm, with a single
 * PING, and with limiters that have a direct connection, on one Redis. Also compares each algorithm, and mixtures of them, with their
 * counterparts. Writes bench/results.md.
 *
 * - `-- --only mixtures` runs one part and prints it. With `--write`, it renews the section of the part in the file.
 * - `-- --against <commit>` runs some parts for the source of another commit in turns with this one, and prints what became slower.
 * - `-- --instructions` counts the instructions of Redis in place of times, which needs valgrind. With `--against`, it shows changes that are
 *   smaller than the noise of times.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { Command, Option } from 'commander'
import { compareWith } from './against.ts'
import { commit, countsOf, type Part, reportOf, sectionOf, withSections } from './report.ts'
import { NoRedis, startTestBed } from './test-bed.ts'

const RESULTS = new URL('results.md', import.meta.url)

/** Loaded when they run: with the source of an older commit, for `--against`, not all of them can be. */
const MEASUREMENTS = {
  'HTTP requests': async () => (await import('./measurements/http-requests.ts')).httpRequests,
  'billed commands': async () => (await import('./measurements/billed-commands.ts')).billedCommands,
  'Redis server time': async () => (await import('./measurements/server-time.ts')).serverTime,
  latency: async () => (await import('./measurements/latency.ts')).latency,
  'direct connections': async () => (await import('./measurements/direct-connections.ts')).directConnections,
  'latency through workerd': async () => (await import('./measurements/worker-latency.ts')).workerLatency,
  'worker CPU': async () => (await import('./measurements/worker-cpu.ts')).workerCpu,
  guard: async () => (await import('./measurements/guard.ts')).guardInNode,
  bridge: async () => (await import('./measurements/bridge.ts')).bridge,
  cluster: async () => (await import('./measurements/cluster.ts')).cluster,
  memory: async () => (await import('./measurements/memory.ts')).memory,
  'per algorithm': async () => (await import('./measurements/per-algorithm.ts')).perAlgorithm,
  'in flight': async () => (await import('./measurements/in-flight.ts')).inFlight,
  reservations: async () => (await import('./measurements/reservations.ts')).reservations,
  renewals: async () => (await import('./measurements/renewals.ts')).renewals,
  'load shedding': async () => (await import('./measurements/shedding.ts')).shedding,
  'hot callers': async () => (await import('./measurements/hot-callers.ts')).hotCallers,
  trips: async () => (await import('./measurements/trips.ts')).trips,
  mixtures: async () => (await import('./measurements/mixtures.ts')).mixtures,
  large: async () => (await import('./measurements/large.ts')).large,
  calls: async () => (await import('./measurements/calls.ts')).calls,
  callers: async () => (await import('./measurements/authentication.ts')).authentication,
  tokens: async () => (await import('./measurements/jwt.ts')).jwt,
  paths: async () => (await import('./measurements/paths.ts')).paths,
  'reading usage': async () => (await import('./measurements/usage.ts')).usage,
  'bundle size': async () => (await import('./measurements/bundle-size.ts')).bundleSize,
}

const METHOD = [
  'Six limits: 10 a second, 120 a minute and 240 an hour, for the consumer and again for the client address. Like is compared with like: six ' +
    'sliding-window rules with six slidingWindow calls of @upstash/ratelimit, and six fixed-window rules with six fixedWindow calls. A ' +
    'decision of Sluice also checks an API key, and is all or nothing; the calls do neither.',
  'Sluice uses its own client of the REST protocol (src/store/rest.ts) and @upstash/ratelimit uses @upstash/redis, with the same REST bridge and ' +
    'the same redis-server. "In turn": one call after the other. "At once": Promise.all. The client then sends all calls as one pipelined HTTP request.',
  '"Allowed": the limits are 1,000 times as large and all admit the request. "Refused": every limit is 1, and an earlier request in the same ' +
    'second has used it up. Both sides can remember refusals, which saves calls to Redis. Unless a row says otherwise, that is off when ' +
    'refusals are measured. The figures with it are under "Hot callers".',
  'Commands and server time are from INFO commandstats. Server time is the time of EVALSHA, including the commands that the script calls. ' +
    '"Redis idle in between": one decision at a time through the bridge. "Redis busy": the commands of 64 decisions (4 to 128 in some tables) ' +
    'are recorded, and then sent to Redis repeatedly, directly and without waiting for replies.',
  'The client, redis-server, each Worker, and the bridge together with the demo origin are separate processes on one machine. 20 ms away: a ' +
    'TCP proxy delays each chunk by 10 ms in each direction. Connections are opened before the measurement.',
  'In each round, every contender is measured once; in every other round, the order is reversed. A ratio of measured values is the median of ' +
    'the ratios of the rounds, with the lowest and the highest, and can differ from the ratio of the two medians beside it. A ratio of counts ' +
    'has no range. A p50 is the median of the medians of the rounds; a p99 is over the samples of all rounds. The code and the connections are warm.',
  'Through workerd, PING is a Worker that sends one PING with the same client, and then proxies the request to the same origin with the same ' +
    'code. The times are of whole requests, including the origin. The six limits are those of the shipped config (gcra and fixed-window).',
  'CPU of workerd: user and system time of the whole process, from /proc. In each round, a separate process sends 2500 requests on 16 ' +
    'connections. Every Worker is bundled and minified as for a deployment, and has the flags of wrangler.toml. The bare proxy proxies each ' +
    'request with the same code, and sends nothing to a store.',
]

type Name = keyof typeof MEASUREMENTS

const { only, write, json, against, rounds, instructions } = new Command('npm run bench --')
  .addOption(
    new Option('--only <part...>', 'run these parts, and write no file').choices(Object.keys(MEASUREMENTS)),
  )
  .option('--write', 'with --only: renew the sections of these parts in bench/results.md')
  .option('--json', 'print the values of all rounds as JSON, for --against')
  .option('--against <commit>', 'compare with the source of another commit')
  .option('--rounds <n>', 'with --against: how often each of the two is measured', Number, 5)
  .option('--instructions', 'count the instructions of Redis in place of times, and write no file')
  .parse()
  .opts<{
    only?: Name[]
    write?: true
    json?: true
    against?: string
    rounds: number
    instructions?: true
  }>()

/** The parts whose values are times of our code, in order of their duration. */
const FOR_COMPARISON: readonly Name[] = [
  'per algorithm',
  'mixtures',
  'callers',
  'renewals',
  'guard',
  'worker CPU',
]

/** The parts whose values are times of Redis while it is busy. */
const FOR_INSTRUCTIONS: readonly Name[] = [
  'Redis server time',
  'per algorithm',
  'in flight',
  'reservations',
  'load shedding',
  'mixtures',
  'large',
  'calls',
  'callers',
]

const parts = only ?? (instructions ? FOR_INSTRUCTIONS : FOR_COMPARISON)

if (against !== undefined) {
  console.log(await compareWith(against, { parts, rounds: instructions ? 1 : rounds, instructions }))
} else {
  await run()
}

async function run(): Promise<void> {
  const bed = await startTestBed().catch(error => {
    if (!(error instanceof NoRedis)) throw error
    console.error(error.message)
    process.exit(1)
  })
  try {
    const measured: Part[] = []
    for (const name of Object.keys(MEASUREMENTS) as Name[]) {
      if (instructions ? !parts.includes(name) : only && !only.includes(name)) continue
      const startedAt = performance.now()
      const measurement = await MEASUREMENTS[name]()
      const findings = await measurement(bed)
      console.error(`${name}: ${((performance.now() - startedAt) / 1000).toFixed(0)} s`)
      measured.push({ name, findings, when: `${new Date().toISOString().slice(0, 10)}, commit ${commit()}` })
      // Every part begins with an empty Redis.
      await bed.redis.send(['FLUSHALL', 'SYNC'])
    }
    if (json) {
      console.log(JSON.stringify(measured.flatMap(({ findings }) => findings.rounds ?? [])))
      return
    }
    if (instructions) {
      console.log(countsOf(measured))
      return
    }
    if (!only) writeFileSync(RESULTS, reportOf(measured, { method: METHOD, redisVersion: bed.redisVersion }))
    else if (write) writeFileSync(RESULTS, withSections(measured, readFileSync(RESULTS, 'utf8')))
    console.log(measured.map(sectionOf).join('\n\n'))
  } finally {
    await bed.close()
  }
}
