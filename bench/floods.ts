/**
 * `npm run bench:floods`: measures the effect of floods on the limits, on an innocent caller at the same time, and on the store. Prints a
 * table for each shape; `-- --write` writes bench/floods.md. `-- --before <checkout>` measures the Worker of another checkout in turns
 * with this one. `-- --only <text>` runs some of the floods; with `--write`, it replaces their tables and keeps the others.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { loadavg } from 'node:os'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Command } from 'commander'
import { markdownOf } from '../docs/programs/markdown-tables.ts'
import { type Contender, type FloodBed, startFloodBed } from './floods/bed.ts'
import { ISOLATES } from './floods/node-gateways.ts'
import { type Run, runFlood, type Size } from './floods/run.ts'
import { BURSTS, type Flood, NODE_STREAMS, STREAMS } from './floods/shapes.ts'
import { tableOf } from './floods/tables.ts'
import { inRounds } from './measure.ts'
import { machine, versions } from './report.ts'
import { NoRedis } from './test-bed.ts'

const RESULTS = new URL('floods.md', import.meta.url)
const HERE = fileURLToPath(new URL('..', import.meta.url))

interface Plan {
  rounds: Record<Flood['kind'], number>
  bursts: readonly number[]
  stream: { perSecond: number; seconds: number; connections: number }
  node: { perSecond: number; seconds: number }
}

const WHOLE: Plan = {
  rounds: { burst: 3, stream: 2, node: 3 },
  bursts: [1000, 5000],
  stream: { perSecond: 10_000, seconds: 10, connections: 200 },
  node: { perSecond: 10_000, seconds: 8 },
}
const QUICK: Plan = {
  rounds: { burst: 1, stream: 1, node: 1 },
  bursts: [1000],
  stream: { perSecond: 2000, seconds: 2, connections: 50 },
  node: { perSecond: 10_000, seconds: 3 },
}

const KINDS: Record<Flood['kind'], string> = {
  burst: 'At once',
  stream: 'Stream',
  node: 'In Node',
}

/** In Node, more requests, so that V8 has optimized the code of both isolates. */
const WARM_UP: Record<Flood['kind'], Size> = {
  burst: { requests: 500, connections: 500 },
  stream: { requests: 500, connections: 50, perSecond: 1000 },
  node: { requests: 40_000, connections: 0, perSecond: 5000 },
}

const METHOD = [
  'The client of the flood, the innocent client, workerd, the REST bridge, the origin and redis-server are separate processes on one machine, and share its ' +
    'cores. The times of the flood and of the innocent caller therefore include waiting for the other processes.',
  'The Worker is bundled as for a deployment, and runs in workerd with the flags of wrangler.toml, as one isolate. It checks the signatures of API ' +
    'keys; all other settings are the defaults. The limits are fixed windows of a minute (bench/floods/config.ts): 100 for a consumer, 200 for an address, and 20 unknown keys for ' +
    'an address; in floods that name another limit, that one for each caller. Every flood has its own callers, and begins and ends within one window.',
  'The innocent caller has its own connections, key and address. It sends 50 requests a second to a route on which it never reaches its limit. Its times are ' +
    'those of all requests that were under way at some time between the first request and the last reply of the flood, in all rounds together. A flood begins ' +
    'when the last 25 replies to the innocent caller were good. A request without a reply after 10 s counts as not served.',
  'At once: the connections are opened first, and then all requests are written in one go, each on its own connection. If there are fewer connections than ' +
    'requests, requests are pipelined. Numbers of replies, and of requests that reached the origin or were refused below the limit, are means of the rounds. ' +
    'Times, calls to the store and CPU are medians. "Refused below the limit": requests that were refused although the caller had not reached its limit.',
  'Stream: requests are pipelined at a fixed rate, and the client does not wait for replies. A connection has at most 16 unanswered requests. A request that is ' +
    'due while no connection has room is not sent. "Over the limit": before the stream, one request uses up the whole limit. Unknown API keys have the right ' +
    'form and checksum.',
  'In workerd alone: Miniflare, in which the Worker runs in the other floods, has a Worker of its own in front, which takes more CPU than a request that ' +
    'Sluice refuses. Here workerd runs the same bundle without it, as one or two processes, each with one isolate. They share the connections of the flood and ' +
    'of the innocent caller. "Requests a second that one core of workerd carries" is one second, divided by its CPU time per request.',
  'HTTP requests to the store that are not for a decision of the innocent caller: an isolate reads the live switches and writes statistics. Made-up signed keys ' +
    'make none: those that an isolate has counted travel with decisions.',
  'Calls in one second: when a refusal is remembered for 1 s, an isolate asks the store about a caller again after 1 s and the time until the next request. So ' +
    'no second has two calls, but a window of 5 s can have six: one at its beginning, four within it, and one at its end. "EVALSHA calls a second per caller, all ' +
    'refused before, no innocent caller" divides the calls of such a window by its length, and can therefore be above 1. The streams in Node count the calls ' +
    'of each second.',
  'In Node: the same bundle of the Worker runs in Node, and the callers call its `fetch` in the same process, without sockets. The REST bridge, redis-server and ' +
    'the origin are the same processes as in the other floods. A refused request takes about 0.1 ms of CPU, so one thread cannot serve 10,000 of them a second. ' +
    `Therefore ${ISOLATES} isolates get an equal share of the flood and of the innocent callers, and each asks the store for itself. An isolate has at most 500 ` +
    'unanswered requests of the flood; a request that is due while it has so many is not sent. "Requests sent in a second" are of all isolates.',
  'In Node: ten innocent callers together send 50 requests a second. The time of such a request begins when it is due, so that it includes the time in which ' +
    'the isolate was busy with the flood.',
  'In Node: the seconds are counted from the first request. In second 1, each isolate asks the store until the first refusal arrives; for unknown keys and anonymous ' +
    'callers, it also asks for all requests within the limit. EVALSHA calls of a second are those that isolates have sent in it about callers of the flood. ' +
    '"As counted by Redis" is from INFO commandstats, over the whole flood, without the innocent callers.',
  'Degraded: the isolate decided without the store, for the reason in the header `Sluice-Degraded`.',
  'The bridge counts HTTP requests, including those that only the innocent caller needed. EVALSHA calls are from INFO commandstats, and include background work. ' +
    'For each reply that the innocent caller got from the store, one call is subtracted; its failed calls are not subtracted. The CPU time of Redis is from ' +
    'INFO cpu, that of workerd from /proc. Both are user and system time, and include the innocent caller.',
  'The origin counts requests by caller.',
]

const shapes: readonly Flood[] = [...BURSTS, ...STREAMS, ...NODE_STREAMS]
const options = new Command('npm run bench:floods --')
  .option('--tree <folder>', 'the checkout to measure', HERE)
  .option('--before <folder>', 'another checkout, which is measured in turns with this one')
  .option('--only <text...>', 'run only the floods with one of these texts in the title')
  .option('--quick', 'small floods, once')
  .option('--write', 'write bench/floods.md; with --only, replace the tables of these floods')
  .option('--note <text...>', 'sentences to add to the page, for example about other load on the machine')
  .parse()
  .opts<{
    tree: string
    before?: string
    only?: string[]
    quick?: true
    write?: true
    note?: string[]
  }>()
/** The load of the machine before the benchmark. */
const [load] = loadavg()
const plan = options.quick ? QUICK : WHOLE
const isChosen = (shape: Flood) => options.only?.some(text => titleOf(shape).includes(text)) ?? true

const bareIsolates = Math.max(...STREAMS.map(shape => (isChosen(shape) && shape.bareIsolates) || 0))
const bed = await startFloodBed(treesOf(options), bareIsolates).catch(error => {
  if (!(error instanceof NoRedis)) throw error
  console.error(error.message)
  process.exit(1)
})
try {
  await warmUp(bed)
  const sections = new Map<string, string>()
  for (const shape of shapes.filter(isChosen)) {
    console.error(`${titleOf(shape)} …`)
    const table = markdownOf(await measured(bed, shape), { isAligned: true })
    const section = [`## ${titleOf(shape)}`, conditionsOf(bed), table].join('\n\n')
    console.log(`${section}\n`)
    sections.set(titleOf(shape), section)
  }
  if (options.write) writeFileSync(RESULTS, pageOf(bed, sections))
} finally {
  await bed.close()
}

function treesOf({ tree, before }: { tree: string; before?: string }): Record<string, string> {
  return before === undefined
    ? { measured: resolve(tree) }
    : { before: resolve(before), after: resolve(tree) }
}

function titleOf({ kind, what }: Flood): string {
  return `${KINDS[kind]}: ${what}`
}

async function measured(bed: FloodBed, shape: Flood) {
  const sizes = sizesOf(shape)
  const tasks = sizes.flatMap(([size]) =>
    bed.contenders.map(
      contender => [nameOf(size, contender), () => runFlood(bed, contender, shape, size)] as const,
    ),
  )
  const runs: Record<string, Run[]> = await inRounds(plan.rounds[shape.kind], Object.fromEntries(tasks))
  return tableOf(
    shape.kind,
    sizes.map(([size, title]) => ({
      size: title,
      byLabel: Object.fromEntries(
        bed.contenders.map(contender => [contender.label, runs[nameOf(size, contender)]!]),
      ),
    })),
  )
}

function nameOf({ requests }: Size, { label }: Contender): string {
  return `${requests} ${label}`
}

function sizesOf(shape: Flood): [Size, title: string][] {
  if (shape.kind === 'burst') {
    return plan.bursts.map(requests => {
      const connections = Math.min(requests, shape.mostConnections ?? requests)
      const on = connections < requests ? ` on ${connections.toLocaleString('en')} connections` : ''
      return [{ requests, connections }, `${requests.toLocaleString('en')} at once${on}`]
    })
  }
  if (shape.kind === 'node') {
    const { perSecond, seconds } = plan.node
    return [[{ requests: perSecond * seconds, connections: 0, perSecond }, `${seconds} s`]]
  }
  const { perSecond, seconds, connections } = plan.stream
  return [[{ requests: perSecond * seconds, connections, perSecond }, `${seconds} s`]]
}

/** Runs every chosen shape once on every checkout, because code that runs for the first time is slow. */
async function warmUp(bed: FloodBed): Promise<void> {
  console.error('Warming up …')
  for (const shape of shapes.filter(isChosen)) {
    for (const contender of bed.contenders) {
      await runFlood(bed, contender, shape, WARM_UP[shape.kind])
    }
  }
}

/** When and what was measured. Tables of one page can be from different days. */
function conditionsOf({ contenders }: FloodBed): string {
  const trees = contenders.map(({ label, tree }) => `${label}: ${tree}`)
  const today = new Date().toISOString().slice(0, 10)
  return [today, ...trees, `load average before: ${load!.toFixed(1)}`].join(', ')
}

/** The tables of the page as it is now, by title. */
function writtenSections(): Map<string, string> {
  const [, ...sections] = readFileSync(RESULTS, 'utf8').split(/^(?=## )/m)
  return new Map(sections.map(section => [/^## (.*)/.exec(section)![1]!, section.trimEnd()]))
}

function pageOf({ redisVersion }: FloodBed, measured: ReadonlyMap<string, string>): string {
  const written = writtenSections()
  const sections = shapes.flatMap(shape => {
    const title = titleOf(shape)
    return measured.get(title) ?? written.get(title) ?? []
  })
  const packages = ['@upstash/redis', 'redis', 'hono', 'wrangler', 'workerd']
  return [
    '# Floods',
    '',
    'Made by `npm run bench:floods -- --write`.',
    '',
    sections.join('\n\n'),
    '',
    '## Machine and versions',
    '',
    ...[...machine(), versions(redisVersion, packages)].map(line => `- ${line}`),
    '',
    '## Method',
    '',
    ...[...METHOD, ...(options.note ?? [])].map(line => `- ${line}`),
    '',
  ].join('\n')
}
