/**
 * `npm run bench:floods`: measures the effect of floods on the limits, on an innocent caller at the same time, and on the store. Prints a
 * table for each shape; `-- --write` writes bench/floods.md. `-- --before <checkout>` measures the Worker of another checkout in turns
 * with this one.
 */
import { writeFileSync } from 'node:fs'
import { loadavg } from 'node:os'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Command } from 'commander'
import { markdownOf } from '../docs/markdown-tables.ts'
import { type Contender, type FloodBed, startFloodBed } from './floods/bed.ts'
import { type Run, runFlood, type Size } from './floods/run.ts'
import { BURSTS, type Burst, STREAMS, type Stream } from './floods/shapes.ts'
import { tableOf } from './floods/tables.ts'
import { inRounds } from './measure.ts'
import { machine, versions } from './report.ts'
import { NoRedis } from './test-bed.ts'

const RESULTS = new URL('floods.md', import.meta.url)
const HERE = fileURLToPath(new URL('..', import.meta.url))

interface Plan {
  rounds: { burst: number; stream: number }
  bursts: readonly number[]
  stream: { perSecond: number; seconds: number; connections: number }
}

const WHOLE: Plan = {
  rounds: { burst: 3, stream: 2 },
  bursts: [1000, 5000],
  stream: { perSecond: 10_000, seconds: 10, connections: 200 },
}
const QUICK: Plan = {
  rounds: { burst: 1, stream: 1 },
  bursts: [300],
  stream: { perSecond: 2000, seconds: 2, connections: 50 },
}

const METHOD = [
  'The client of the flood, the innocent client, workerd, the REST bridge, the origin and redis-server are separate processes on one machine, and share its ' +
    'cores. The times of the flood and of the innocent caller therefore include waiting for the other processes.',
  'The Worker is bundled as for a deployment, and runs in workerd with the flags of wrangler.toml, as one isolate. All settings are the ' +
    'defaults. The limits are fixed windows of a minute (bench/floods/config.ts): 100 for a consumer, 200 for an address, and 20 unknown keys for ' +
    'an address. Every flood has its own callers, and begins and ends within one window.',
  'The innocent caller has its own connections, key and address. It sends 50 requests a second to a route on which it never reaches its limit. Its times are ' +
    'those of all requests that were under way at some time between the first request and the last reply of the flood, in all rounds together. A flood begins ' +
    'when the last 25 replies to the innocent caller were good. A request without a reply after 10 s counts as not served.',
  'At once: the connections are opened first, and then all requests are written in one go, each on its own connection. If there are fewer connections than ' +
    'requests, requests are pipelined. Numbers of replies, and of requests that reached the origin or were refused below the limit, are means of the rounds. ' +
    'Times, calls to the store and CPU are medians. "Refused below the limit": requests that were refused although the caller had not reached its limit.',
  'Stream: requests are pipelined at a fixed rate, and the client does not wait for replies. A connection has at most 16 unanswered requests. A request that is ' +
    'due while no connection has room is not sent. "Over the limit": before the stream, one request uses up the whole limit. Unknown API keys have the right ' +
    'form and checksum.',
  'Degraded: the isolate decided without the store, for the reason in the header `Sluice-Degraded`.',
  'The bridge counts HTTP requests, including those that only the innocent caller needed. EVALSHA calls are from INFO commandstats, and include background work. ' +
    'For each reply that the innocent caller got from the store, one call is subtracted; its failed calls are not subtracted. The CPU time of Redis is from ' +
    'INFO cpu, that of workerd from /proc. Both are user and system time, and include the innocent caller.',
  'The origin counts requests by caller.',
]

const shapes = [...BURSTS, ...STREAMS]
const options = new Command('npm run bench:floods --')
  .option('--tree <folder>', 'the checkout to measure', HERE)
  .option('--before <folder>', 'another checkout, which is measured in turns with this one')
  .option('--only <text...>', 'run only the floods with one of these texts in the title')
  .option('--quick', 'small floods, once')
  .option('--write', 'write bench/floods.md')
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
const isChosen = (shape: Burst | Stream) => options.only?.some(text => titleOf(shape).includes(text)) ?? true

const bed = await startFloodBed(treesOf(options)).catch(error => {
  if (!(error instanceof NoRedis)) throw error
  console.error(error.message)
  process.exit(1)
})
try {
  await warmUp(bed)
  const sections: string[] = []
  for (const shape of shapes.filter(isChosen)) {
    console.error(`${titleOf(shape)} …`)
    const section = `## ${titleOf(shape)}\n\n${markdownOf(await measured(bed, shape), { isAligned: true })}`
    console.log(`${section}\n`)
    sections.push(section)
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

function titleOf({ kind, what }: Burst | Stream): string {
  return kind === 'burst' ? `At once: ${what}` : `Stream: ${what}`
}

async function measured(bed: FloodBed, shape: Burst | Stream) {
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

function sizesOf(shape: Burst | Stream): [Size, title: string][] {
  if (shape.kind === 'burst') {
    return plan.bursts.map(requests => {
      const connections = Math.min(requests, shape.mostConnections ?? requests)
      const on = connections < requests ? ` on ${connections.toLocaleString('en')} connections` : ''
      return [{ requests, connections }, `${requests.toLocaleString('en')} at once${on}`]
    })
  }
  const { perSecond, seconds, connections } = plan.stream
  return [[{ requests: perSecond * seconds, connections, perSecond }, `${seconds} s`]]
}

/** Runs every shape once on every checkout, because code that runs for the first time is slow. */
async function warmUp(bed: FloodBed): Promise<void> {
  console.error('Warming up …')
  for (const shape of shapes) {
    for (const contender of bed.contenders) {
      const size = { requests: 500, connections: shape.kind === 'burst' ? 500 : 50, perSecond: 1000 }
      await runFlood(bed, contender, shape, size)
    }
  }
}

function pageOf({ contenders, redisVersion }: FloodBed, sections: readonly string[]): string {
  const trees = contenders.map(({ label, tree }) => `${label}: ${tree}`)
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
    ...[...machine(), versions(redisVersion, packages), ...trees].map(line => `- ${line}`),
    `- ${new Date().toISOString().slice(0, 10)}, load average before: ${load!.toFixed(1)}`,
    '',
    '## Method',
    '',
    ...[...METHOD, ...(options.note ?? [])].map(line => `- ${line}`),
    '',
  ].join('\n')
}
