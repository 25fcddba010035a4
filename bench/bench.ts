/**
 * `npm run bench`: compares the classic decision of Sluice (an API key and six limits) with six calls of @upstash/ratelimit and with a
 * single PING, on one Redis through one bridge. Also compares each algorithm, and mixtures of them, with their counterparts. Writes
 * bench/results.md. `npm run bench -- --only mixtures` runs one part and writes no file. With `--write`, it replaces the tables and notes
 * of the part in the file, which is possible for 'hot callers'.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { Command, Option } from 'commander'
import { authentication } from './measurements/authentication.ts'
import { billedCommands } from './measurements/billed-commands.ts'
import { bundleSize } from './measurements/bundle-size.ts'
import { hotCallers } from './measurements/hot-callers.ts'
import { httpRequests } from './measurements/http-requests.ts'
import { inFlight } from './measurements/in-flight.ts'
import { jwt } from './measurements/jwt.ts'
import { latency } from './measurements/latency.ts'
import { memory } from './measurements/memory.ts'
import { mixtures } from './measurements/mixtures.ts'
import { paths } from './measurements/paths.ts'
import { perAlgorithm } from './measurements/per-algorithm.ts'
import { renewals } from './measurements/renewals.ts'
import { serverTime } from './measurements/server-time.ts'
import { shedding } from './measurements/shedding.ts'
import { trips } from './measurements/trips.ts'
import { workerCpu } from './measurements/worker-cpu.ts'
import { workerLatency } from './measurements/worker-latency.ts'
import { type Findings, notesOf, reportOf, tablesOf, withTablesOf } from './report.ts'
import { NoRedis, startTestBed } from './test-bed.ts'

const RESULTS = new URL('results.md', import.meta.url)

const MEASUREMENTS = {
  'HTTP requests': httpRequests,
  'billed commands': billedCommands,
  'Redis server time': serverTime,
  latency,
  'latency through workerd': workerLatency,
  'worker CPU': workerCpu,
  memory,
  'per algorithm': perAlgorithm,
  'in flight': inFlight,
  renewals,
  'load shedding': shedding,
  'hot callers': hotCallers,
  trips,
  mixtures,
  callers: authentication,
  tokens: jwt,
  paths,
  'bundle size': bundleSize,
}

const METHOD = [
  'The rows of the first table are about the classic decision, unless they name another one. It checks an API key and counts the request ' +
    'under six limits: 10 a second (gcra), 120 a minute and 240 an hour (fixed-window) for the consumer, and the same three for the client ' +
    'address. "Six calls" are six sliding windows of @upstash/ratelimit with the same numbers. They check no key and are not all-or-nothing, ' +
    'but a sliding window is stricter than a fixed one.',
  'Sluice and @upstash/ratelimit use the same client (@upstash/redis), the same REST bridge and the same redis-server. "In turn": one call ' +
    'after the other. "At once": Promise.all. The client then sends all calls as one pipelined HTTP request.',
  'In the classic decision, "allowed" means that the limits are 1,000 times as large and all admit the request. "Refused" means that every ' +
    'limit is 1, and that an earlier request in the same second has used it up. Both sides can remember refusals, which saves calls to Redis. Unless a row says ' +
    'otherwise, that is off when refusals are measured. The figures with it are under "Hot callers".',
  'Commands and server time are from INFO commandstats. Server time is the time of EVALSHA, including the commands that the script calls. ' +
    '"Redis idle in between": one decision at a time through the bridge. "Redis busy": the commands of 64 decisions (4 to 128 in some tables) ' +
    'are recorded, and then sent to Redis repeatedly, directly and without waiting for replies.',
  'The client, redis-server, each Worker, and the bridge together with the demo origin are separate processes on one machine. 20 ms away: a ' +
    'TCP proxy delays each chunk by 10 ms in each direction. Connections are opened before the measurement.',
  'In each round, every contender is measured once; in every other round, the order is reversed. A p50 is the median of the medians of the ' +
    'rounds. A p99 is over the samples of all rounds together. The code and the connections are warm. Ratios are those of two ' +
    'medians, before rounding; docs/performance.md has the median and the range of the ratios of the rounds.',
  'Through workerd, PING is a Worker that sends one PING with the same client, and then proxies the request to the same origin with the same ' +
    'code. The times are of whole requests, including the origin.',
  'CPU of workerd: user and system time of the whole process, from /proc. In each round, a separate process sends 2500 requests on 16 ' +
    'connections. Every Worker is bundled and minified as for a deployment, and has the flags of wrangler.toml. The bare proxy proxies each ' +
    'request with the same code, and sends nothing to a store.',
  'The bytes of the three sliding windows are counted after each has been used in two consecutive windows, so that the keys of both exist.',
]

const { only, write } = new Command('npm run bench --')
  .addOption(
    new Option('--only <part...>', 'run these parts, and write no file').choices(Object.keys(MEASUREMENTS)),
  )
  .option('--write', 'with --only: replace the tables and notes of these parts in bench/results.md')
  .parse()
  .opts<{ only?: string[]; write?: true }>()

const bed = await startTestBed().catch(error => {
  if (!(error instanceof NoRedis)) throw error
  console.error(error.message)
  process.exit(1)
})
try {
  const findings: Findings[] = []
  for (const [name, measure] of Object.entries(MEASUREMENTS)) {
    if (only && !only.includes(name)) continue
    console.error(`${name} …`)
    findings.push(await measure(bed))
  }
  if (!only) writeFileSync(RESULTS, reportOf(findings, { method: METHOD, redisVersion: bed.redisVersion }))
  else if (write) writeFileSync(RESULTS, withTablesOf(findings, readFileSync(RESULTS, 'utf8')))
  console.log([tablesOf(findings), ...notesOf(findings).map(note => `- ${note}`)].join('\n\n'))
} finally {
  await bed.close()
}
