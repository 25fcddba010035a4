/**
 * `npm run bench`: compares the classic decision of Sluice (an API key and six limits) with six calls of @upstash/ratelimit and with a
 * single PING, on one Redis through one bridge. Also compares each algorithm, and mixtures of them, with their counterparts. Writes
 * bench/results.md. `npm run bench -- --only mixtures` runs one part and writes no file.
 */
import { writeFileSync } from 'node:fs'
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
import { perAlgorithm } from './measurements/per-algorithm.ts'
import { serverTime } from './measurements/server-time.ts'
import { shedding } from './measurements/shedding.ts'
import { workerCpu } from './measurements/worker-cpu.ts'
import { workerLatency } from './measurements/worker-latency.ts'
import { type Findings, notesOf, reportOf, tablesOf } from './report.ts'
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
  'load shedding': shedding,
  'hot callers': hotCallers,
  mixtures,
  callers: authentication,
  tokens: jwt,
  'bundle size': bundleSize,
}

const METHOD = [
  'The classic decision, which the first table is about: check an API key, and 10 a second (gcra), 120 a minute and ' +
    '240 an hour (fixed-window) for its consumer and again for the client address. Six calls: the same numbers as six ' +
    'sliding windows of ' +
    '@upstash/ratelimit, which check no key and are not all-or-nothing. The algorithms are not the same: a fixed ' +
    'window promises less than a sliding one.',
  'Both go through the real @upstash/redis client and the same REST bridge to the same redis-server. "In turn": ' +
    'one call after the other. "At once": Promise.all, which that client sends as one pipelined HTTP request.',
  'Measured while every limit admits (the numbers × 1000), or while every limit refuses (all of them 1, and spent ' +
    'in the same second). Both remember refusals, which would keep calls away from Redis: that is off here, and ' +
    'measured as "Hot callers".',
  'Commands and server time are from INFO commandstats; server time is of EVALSHA with all it calls. "Redis idle in ' +
    'between": one decision at a time through the bridge. "Redis busy": the commands of 64 decisions, written down as ' +
    'they were made, sent straight to Redis again and again without waiting in between.',
  'Client, bridge with demo origin, Redis and each Worker are processes of their own on the one machine, on ' +
    'loopback only. 20 ms away: a TCP proxy holds each piece for 10 ms each way; connections are open before.',
  'Contenders take turns in rounds, in the opposite order every other round. A p50 is the median of the medians ' +
    'of the rounds, a p99 is over the samples of all rounds together, warm. Ratios are of the values shown, before rounding.',
  'Through workerd, PING is a Worker that sends one PING with the same client and then hands the request to the same ' +
    'origin with the same code; both are a whole request, origin included.',
  'CPU of workerd: user and system time of its whole process from /proc, over 2500 requests a round that a process of its ' +
    'own keeps in flight on 16 connections; every contender a bundle minified as deployed, under the flags of wrangler.toml. The bare proxy ' +
    'hands each request on with the same code, and asks no store.',
  'The six-calls side of memory is after each window was used twice, so that its current and previous keys exist.',
]

const { only } = new Command('npm run bench --')
  .addOption(
    new Option('--only <part...>', 'run these parts, and write no file').choices(Object.keys(MEASUREMENTS)),
  )
  .parse()
  .opts<{ only?: string[] }>()

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
  console.log([tablesOf(findings), ...notesOf(findings).map(note => `- ${note}`)].join('\n\n'))
} finally {
  await bed.close()
}
