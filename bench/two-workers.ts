/**
 * `npm run bench:workers`: sends the traffic of docs/internals/simulations.md through two real Workers in workerd, with and without leases. Reports
 * what the store and the origin have counted, and how late changes take effect. `-- --write` writes bench/two-workers.md;
 * `-- --only '1,000 a second'` runs the traffic with these words in its name, and no changes.
 */
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Command, Option } from 'commander'
import { markdownOf } from '../docs/programs/markdown-tables.ts'
import { checkedConfig } from '../src/config/check/check.ts'
import { connectRedis, type RedisConnection } from '../src/node/rest-bridge/redis-connection.ts'
import { startGuardian } from '../src/node/start/guardian.ts'
import { findServer, startPrivateServer } from '../src/node/start/redis.ts'
import { type AdminStore, createAdminStore } from '../src/ops/admin-store.ts'
import { blockConsumer } from '../src/ops/consumers.ts'
import { revokeKey } from '../src/ops/key-changes.ts'
import { findKey } from '../src/ops/key-reference.ts'
import { createKey } from '../src/ops/keys.ts'
import { peekCaller, resetCaller } from '../src/ops/limits.ts'
import { compileOverride, setOverride } from '../src/ops/overrides.ts'
import { type Child, startChild } from './child.ts'
import { requestText } from './floods/requests.ts'
import type { StoreSideSettings } from './floods/store-side.ts'
import { wallClock } from './floods/wall-clock.ts'
import { type FloodedWorker, startWorkerOf } from './floods/worker.ts'
import { quantile, runConcurrently } from './measure.ts'
import { machine, versions } from './report.ts'
import { NoRedis, newIdentities } from './test-bed.ts'
import { pause, run, type Sent } from './two-workers/load.ts'
import type { Seen } from './two-workers/origin.ts'
import { CONFIG, LIMITS } from './two-workers/rules.ts'
import { SHAPES, type Shape } from './two-workers/shapes.ts'

const RESULTS = new URL('two-workers.md', import.meta.url)
const HERE = fileURLToPath(new URL('..', import.meta.url))

/** The config file of each lease. */
const WAYS = { none: 'without-lease', '250ms': 'with-lease' } as const
type Lease = keyof typeof WAYS

/** After this time, all leases have ended and their remaining units are given back. */
const GIVEN_BACK_MS = 1500

const METHOD = [
  'The two Workers are bundled as for a deployment. Each runs in its own workerd process, with one isolate. The REST bridge, redis-server, the origin and the ' +
    'client are further processes on the same machine. The client sends requests on schedule, without waiting for earlier replies. A request waits only if all ' +
    '100 connections to its Worker are in use.',
  'The rule is one fixed window by consumer, and callers have an API key. Refusals are remembered (the default). A trip is an HTTP request to the store, ' +
    'including those that only give units back.',
  'Admitted: requests that the origin has received. Above the limit: units that the store has counted beyond the limit, after all leases have ended; for a ' +
    'limit per second, the requests that the origin has received beyond the sum of the limits of all windows. Spent, not admitted: units that the store has ' +
    'counted, and for which no request has reached the origin.',
  'Excess in a second: the most requests that the origin has received in one second of the clock, minus the limit per second. Used: admitted requests as a ' +
    'share of what the limit permits.',
  'Changes: a caller sends 100 requests a second to each Worker. The time is from the moment at which the change was written to the moment at which the client ' +
    'sent the last request that still got the old reply. There are five rounds.',
]

interface Bed {
  redisVersion: string
  redis: RedisConnection
  admin: AdminStore
  storeSide: Child<{ url: string }>
  origin: Child<{ url: string }>
  workers: Record<Lease, readonly FloodedWorker[]>
  close(): Promise<void>
}

const { write, only } = new Command('npm run bench:workers --')
  .addOption(new Option('--write', 'write bench/two-workers.md').conflicts('only'))
  .option('--only <words>', 'run only the traffic with these words in its name, and no changes')
  .parse()
  .opts<{ write?: true; only?: string }>()

const config = checkedConfig(CONFIG)

async function startBed(): Promise<Bed> {
  const program = await findServer(['redis-server'])
  if (!program) throw new NoRedis()
  const guardian = startGuardian()
  const directory = mkdtempSync(join(tmpdir(), 'sluice-two-'))
  guardian.guard({ directory })
  const parts: { close(): Promise<void> }[] = [{ close: () => guardian.dismiss() }]
  const started = <T extends { close(): Promise<void> }>(part: T): T => {
    parts.push(part)
    return part
  }
  const close = async () => {
    for (const part of parts.splice(0).reverse()) await part.close()
  }
  try {
    const server = started(await startPrivateServer(program, { guardian, directory: join(directory, 'r') }))
    const redis = await connectRedis(server.url, 5000)
    started({ close: async () => redis.close() })
    const token = 'token-of-the-benchmark'
    const settings: StoreSideSettings = { redisUrl: server.url, token }
    const child = async <Ready>(file: string, settings: object) =>
      started(await startChild<Ready>(file, settings, { guardian, directory }))
    const storeSide = await child<{ url: string }>('floods/store-side.ts', settings)
    const origin = await child<{ url: string }>('two-workers/origin.ts', {})
    const bindings = {
      UPSTASH_REDIS_REST_URL: storeSide.ready.url,
      UPSTASH_REDIS_REST_TOKEN: token,
      ORIGIN_URL: origin.ready.url,
    }
    const pair = (lease: Lease) => {
      const configFile = fileURLToPath(new URL(`two-workers/${WAYS[lease]}.config.ts`, import.meta.url))
      const place = (i: number) => ({
        bindings,
        guardian,
        directory: join(directory, `${lease}${i}`),
        configFile,
      })
      return Promise.all([0, 1].map(async i => started(await startWorkerOf(HERE, place(i)))))
    }
    return {
      redisVersion: program.version,
      admin: createAdminStore({ url: storeSide.ready.url, token }),
      workers: { none: await pair('none'), '250ms': await pair('250ms') },
      ...{ redis, storeSide, origin, close },
    }
  } catch (error) {
    await close()
    throw error
  }
}

interface Caller {
  consumer: string
  address: string
  key: string
}

async function newCallers(admin: AdminStore, count: number): Promise<Caller[]> {
  const callers = newIdentities(count).map(each => ({ ...each, key: '' }))
  await runConcurrently(16, count, async i => {
    callers[i]!.key = (await createKey(admin, { consumer: callers[i]!.consumer })).key
  })
  return callers
}

const textOf = ({ address, key }: Caller, path: string) => requestText(`/${path}`, { address, apiKey: key })

async function send(
  workers: readonly FloodedWorker[],
  shape: Shape,
  callers: readonly Caller[],
): Promise<Sent[]> {
  const texts = callers.map(caller => textOf(caller, shape.path))
  return await run({
    workers: workers.map(({ url }, i) => ({ url, arrived: shape.arrived[i]! })),
    durationMs: shape.seconds * 1000,
    // If there are many callers, each of them sends requests to both Workers.
    textOf: (worker, request) => texts[(2 * request + worker) % texts.length]!,
  })
}

interface Figures {
  requests: number
  statuses: Record<string, number>
  trips: number
  /** Units of all callers in the store, after leases were given back. */
  spent: number
  admitted: number
  mostInOneSecond: number
  /** Seconds of the clock in which the origin has received requests. */
  seconds: number
  waits: number[]
}

async function measured(bed: Bed, lease: Lease, shape: Shape): Promise<Figures> {
  const callers = await newCallers(bed.admin, shape.callers)
  if (shape.path === 'second') await roomInSecond()
  const seen = () => bed.origin.send<Record<string, Seen>>({})
  await seen()
  const before = await bed.storeSide.send<number>({})
  const sent = await send(bed.workers[lease], shape, callers)
  await pause(GIVEN_BACK_MS)
  const trips = (await bed.storeSide.send<number>({})) - before
  const atOrigin = Object.values(await seen())
  const statuses: Record<string, number> = {}
  for (const { reply } of sent) statuses[reply] = (statuses[reply] ?? 0) + 1
  let spent = 0
  await runConcurrently(16, callers.length, async i => {
    const { standings } = await peekCaller(bed.admin, config, { ...callers[i]! })
    spent += LIMITS[shape.path] - standings.find(({ rule }) => rule.name === shape.path)!.remaining
  })
  return {
    ...{ requests: sent.length, statuses, trips, spent },
    admitted: atOrigin.reduce((sum, { total }) => sum + total, 0),
    mostInOneSecond: Math.max(0, ...atOrigin.map(each => each.mostInOneSecond)),
    seconds: Math.max(0, ...atOrigin.map(each => each.seconds)),
    waits: sent.map(({ tookMs }) => tookMs),
  }
}

async function roomInSecond(): Promise<void> {
  await pause(1000 - (Date.now() % 1000) + 20)
}

async function trafficTable(bed: Bed): Promise<string> {
  const rows: string[][] = []
  for (const shape of SHAPES.filter(({ what }) => what.includes(only ?? ''))) {
    console.error(`${shape.what} …`)
    for (const lease of Object.keys(WAYS) as Lease[]) {
      const { requests, statuses, trips, spent, admitted, mostInOneSecond, seconds, waits } = await measured(
        bed,
        lease,
        shape,
      )
      const limit = LIMITS[shape.path]
      const permitted = Math.min(requests, shape.permitted?.(limit, shape.seconds) ?? requests)
      const isSecond = shape.path === 'second'
      rows.push([
        ...[lease === 'none' ? shape.what : '', lease, String(requests), String(admitted)],
        Object.entries(statuses)
          .filter(([status]) => status !== '200' && status !== '429')
          .map(([status, count]) => `${count} × ${status}`)
          .join(', ') || '-',
        (trips / requests).toFixed(3),
        // Windows of a second are over by then, so the sum of all windows is compared.
        String(Math.max(0, isSecond ? admitted - seconds * limit : spent - limit)),
        isSecond ? '-' : String(spent - admitted),
        isSecond ? String(Math.max(0, mostInOneSecond - limit)) : '0',
        `${((100 * admitted) / permitted).toFixed(1)}%`,
        ...[quantile(waits, 0.5).toFixed(1), quantile(waits, 0.99).toFixed(1)],
      ])
    }
  }
  const head = [
    ...['traffic', 'lease', 'requests', 'admitted', 'other replies', 'trips per request', 'above the limit'],
    ...['spent, not admitted', 'excess in a second', 'used', 'p50, ms', 'p99, ms'],
  ]
  return `## Traffic\n\n${markdownOf({ head, rows }, { isAligned: true })}`
}

/** A change that an operator makes while a caller sends requests to both Workers. */
interface Change {
  what: string
  path: 'plenty' | 'edge'
  make(bed: Bed, caller: Caller): Promise<unknown>
  /** The reply before the change. The last request that still gets this reply is measured. */
  until: '200' | '429'
}

const CHANGES: readonly Change[] = [
  {
    what: 'a consumer is blocked: last request that was admitted',
    path: 'plenty',
    until: '200',
    make: ({ admin }, { consumer }) => blockConsumer(admin, consumer),
  },
  {
    what: 'a key is revoked: last request that was admitted',
    path: 'plenty',
    until: '200',
    make: async ({ admin }, { key }) => revokeKey(admin, await findKey(admin, key)),
  },
  {
    what: 'a limit is raised (override): last request that was refused',
    path: 'edge',
    until: '429',
    make: ({ admin }, { consumer }) =>
      setOverride(admin, consumer, compileOverride(CONFIG, { rule: 'edge', limit: 1_000_000 })),
  },
  {
    what: 'a limit is reset: last request that was refused',
    path: 'edge',
    until: '429',
    make: ({ admin }, { consumer }) => resetCaller(admin, config, { consumer }),
  },
]

const CHANGE_ROUNDS = 5
const CHANGE_AFTER_MS = 4000

async function latenessOf(bed: Bed, lease: Lease, { path, make, until }: Change): Promise<number> {
  const [caller] = (await newCallers(bed.admin, 1)) as [Caller]
  if (path === 'edge') await useUp(bed, lease, caller)
  const arrived = (ms: number) => ms / 10
  const sending = send(
    bed.workers[lease],
    { what: '', path, callers: 1, seconds: CHANGE_AFTER_MS / 1000 + 2.5, arrived: [arrived, arrived] },
    [caller],
  )
  await pause(CHANGE_AFTER_MS / 2 + Math.random() * 1000)
  await make(bed, caller)
  const changedAt = wallClock()
  const late = (await sending).filter(({ reply, sentAt }) => reply === until && sentAt > changedAt)
  return Math.max(0, ...late.map(({ sentAt }) => sentAt - changedAt))
}

/** Spends the whole limit, so that every further request is refused. */
async function useUp(bed: Bed, lease: Lease, caller: Caller): Promise<void> {
  const arrived = steadyAt(500)
  await send(
    bed.workers[lease],
    { what: '', path: 'edge', callers: 1, seconds: 5, arrived: [arrived, arrived] },
    [caller],
  )
}

function steadyAt(perSecond: number) {
  return (ms: number) => (perSecond * ms) / 1000
}

async function changesTable(bed: Bed): Promise<string> {
  const rows: string[][] = []
  for (const change of CHANGES) {
    console.error(`${change.what} …`)
    const cells: string[] = []
    for (const lease of Object.keys(WAYS) as Lease[]) {
      const found: number[] = []
      for (let round = 0; round < CHANGE_ROUNDS; round++) found.push(await latenessOf(bed, lease, change))
      cells.push(quantile(found, 0.5).toFixed(0), Math.max(...found).toFixed(0))
    }
    rows.push([change.what, ...cells])
  }
  const head = ['change', 'no lease: median, ms', 'longest, ms', '250ms: median, ms', 'longest, ms']
  return `## How late a change takes effect\n\n${markdownOf({ head, rows }, { isAligned: true })}`
}

async function warmUp(bed: Bed): Promise<void> {
  console.error('Warming up …')
  const arrived = steadyAt(200)
  for (const lease of Object.keys(WAYS) as Lease[]) {
    const callers = await newCallers(bed.admin, 2)
    await send(
      bed.workers[lease],
      { what: '', path: 'plenty', callers: 2, seconds: 3, arrived: [arrived, arrived] },
      callers,
    )
  }
}

function pageOf({ redisVersion }: Bed, sections: readonly string[]): string {
  return [
    '# Hot callers in two Workers',
    '',
    'Made by `npm run bench:workers -- --write`. [docs/internals/simulations.md](../docs/internals/simulations.md) has the same traffic simulated, with up to 50 isolates.',
    '',
    sections.join('\n\n'),
    '',
    '## Machine and versions',
    '',
    ...machine().map(line => `- ${line}`),
    `- ${versions(redisVersion)}`,
    `- ${new Date().toISOString().slice(0, 10)}`,
    '',
    '## Method',
    '',
    ...METHOD.map(line => `- ${line}`),
    '',
  ].join('\n')
}

const bed = await startBed().catch(error => {
  if (!(error instanceof NoRedis)) throw error
  console.error(error.message)
  process.exit(1)
})
try {
  await warmUp(bed)
  const sections = [await trafficTable(bed), ...(only === undefined ? [await changesTable(bed)] : [])]
  for (const section of sections) console.log(`${section}\n`)
  if (write) writeFileSync(RESULTS, pageOf(bed, sections))
} finally {
  await bed.close()
}
