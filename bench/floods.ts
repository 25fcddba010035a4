/**
 * `npm run bench:floods`: what floods do to the limits, to an innocent caller beside them, and to the store. A table for each shape;
 * `-- --write` writes bench/floods.md. `-- --before <checkout>` measures the Worker of another checkout in turns with this one.
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
  'Client of the flood, innocent client, workerd, REST bridge, origin and redis-server are processes of their own on the one machine, ' +
    'and share its cores: how long a flood takes, and how long the innocent caller waits, is also what the other processes take.',
  'The Worker is bundled as for a deployment, and runs in workerd under the flags of wrangler.toml, one isolate. All settings are the ' +
    'defaults; limits are fixed windows of a minute (bench/floods/config.ts): 100 for a consumer, 200 for an address, 20 unknown keys for ' +
    'an address. Every flood has callers of its own, and begins and ends within one window.',
  'The innocent caller sends 50 requests a second on connections of its own, with a key and an address of its own, to a route on which ' +
    'its limit is never reached. Its times are of requests that were under way at any time from the first request of the flood to the last ' +
    'reply; they are pooled over the rounds. A flood begins when its last 25 replies were good. ' +
    'It gives a reply up after 10 s, and counts it as not served.',
  'At once: each request on a connection that was opened before, all written in one go; where there are fewer ' +
    'connections than requests, some have two. Each time is the median of the rounds; replies ' +
    'are means. "Below the limit" is what was refused although the caller had not reached its limit.',
  'Stream: the requests are sent at a fixed rate, pipelined, and the client waits for no reply. A connection has 16 unanswered requests at ' +
    'most; what is due while no connection has room is not sent. "Over the limit": one request before the stream spends the whole limit. ' +
    'Unknown keys have the right form and checksum.',
  'Degraded: the isolate has decided by itself, for the reason given in the header `Sluice-Degraded`.',
  'HTTP requests are counted by the bridge, with those that only the innocent caller needed. EVALSHA calls are counted by INFO commandstats (background ' +
    'work included), without one for each reply that the innocent caller got from the store; its calls that failed are in them. CPU of Redis is user and system time of its process (INFO cpu), that of workerd is from /proc; both include the ' +
    'innocent caller.',
  'The origin counts requests by caller.',
]

const shapes = [...BURSTS, ...STREAMS]
const options = new Command('npm run bench:floods --')
  .option('--tree <folder>', 'the checkout to measure', HERE)
  .option('--before <folder>', 'a checkout to compare with, in turns')
  .option('--only <text...>', 'run the shapes with such a text in their title')
  .option('--quick', 'small floods, once')
  .option('--write', 'write bench/floods.md')
  .option('--note <text...>', 'sentences for the page, as about what else the machine was doing')
  .parse()
  .opts<{
    tree: string
    before?: string
    only?: string[]
    quick?: true
    write?: true
    note?: string[]
  }>()
/** What the machine was doing before. */
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

/** Code that has not run yet is slow, whichever checkout it is of. */
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
