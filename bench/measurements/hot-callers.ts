/**
 * Sends traffic of hot callers to a real Redis and compares ways to decide it: Sluice without remembered refusals, with its defaults, and
 * with leases; @upstash/ratelimit with its cache of refusals (`ephemeralCache`); and Cloudflare's rate limiting binding as miniflare
 * simulates it. Requests come on schedule, without waiting for earlier ones. docs/internals/simulations.md has the same traffic in a simulation,
 * with more isolates and longer leases.
 */
import { type IncomingMessage, request } from 'node:http'
import { json } from 'node:stream/consumers'
import { Ratelimit } from '@upstash/ratelimit'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput, Duration } from '../../src/config/check/schema.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import type { BindingCall, BindingLoad } from '../binding-worker.ts'
import { type BenchWorker, startBenchWorker } from '../child.ts'
import { childNamed, cpuSeconds } from '../cpu-time.ts'
import { quantile } from '../measure.ts'
import { commandsOf } from '../redis-statistics.ts'
import type { Findings } from '../report.ts'
import type { TestBed } from '../test-bed.ts'
import { type Transport, throughBridge } from '../transport.ts'

/** USD for a command (Upstash, pay as you go: $0.20 per 100,000). */
const DOLLARS = 0.2 / 1e5

/** How long requests are sent (ms). */
const LOAD_MS = 2000
/** After this time, all leases have ended and are given back. */
const REST_MS = 600

/** The share of requests that may be decided without the store. More of them would make the contender look cheap. */
const MAX_DEGRADED = 0.02

interface Shape {
  what: string
  limit: number
  period: Duration & ('1s' | '60s')
  /** Whether more requests arrive than the limit permits. */
  exceeds?: true
  isolates?: number
  callers?: number
  /** The number of requests to all isolates after `ms` milliseconds. */
  arrived(ms: number): number
}

const steady = (perSecond: number) => (ms: number) => (perSecond * ms) / 1000

const SHAPES: readonly Shape[] = [
  { what: '10 a second, one isolate', limit: 1e6, period: '60s', arrived: steady(10) },
  { what: '100 a second, one isolate', limit: 1e6, period: '60s', arrived: steady(100) },
  { what: '1,000 a second, one isolate', limit: 1e6, period: '60s', arrived: steady(1000) },
  {
    what: '20 a second in each of 50 isolates',
    limit: 1e6,
    period: '60s',
    isolates: 50,
    arrived: steady(1000),
  },
  {
    what: '200 at once, every half second',
    ...{ limit: 1e6, period: '60s', arrived: (ms: number) => 200 * Math.ceil(ms / 500) },
  },
  {
    what: '600 a second, limit 500 a second, one isolate',
    ...{ limit: 500, period: '1s', exceeds: true, arrived: steady(600) },
  },
  {
    what: '1,000 a second, limit 10 a second, one isolate',
    ...{ limit: 10, period: '1s', exceeds: true, arrived: steady(1000) },
  },
  { what: '500 a second from 1,000 callers', limit: 1e6, period: '60s', callers: 1000, arrived: steady(500) },
]

interface Answer {
  isAdmitted: boolean
  /** Whether the isolate has decided without the store, and without a remembered answer of it. */
  isDegraded: boolean
}

/** Decides one request in an isolate. */
type Decide = (caller: string) => Promise<Answer>
type Make = (transport: Transport, shape: Shape) => Decide

const CONTENDERS: Record<string, Make> = {
  'store only': sluice({ refusals: { rememberFor: 0 } }),
  default: sluice({}),
  'lease 250ms': sluice({ lease: { for: '250ms' } }),
  '@upstash, cache': ({ redis }, { limit, period }) => {
    const limiter = Ratelimit.fixedWindow(limit, `${Number.parseInt(period, 10)} s`)
    const upstash = new Ratelimit({ redis, limiter, prefix: 'hot', ephemeralCache: new Map() })
    return async caller => {
      const { success, reason } = await upstash.limit(caller)
      return { isAdmitted: success, isDegraded: reason === 'timeout' }
    }
  },
}

function sluice(settings: Pick<ConfigInput, 'lease' | 'refusals'>): Make {
  return ({ store }, { limit, period }) => {
    const rule = { name: 'hot', by: ['caller'], algorithm: 'fixed-window', limit, period } as const
    const limiter = createLimiterOnStore(checkedConfig({ ...settings, limits: { hot: [rule] } }), store)
    return async caller => {
      const { allowed, degraded } = await limiter.limit('hot', { caller })
      return { isAdmitted: allowed, isDegraded: degraded !== undefined }
    }
  }
}

export async function hotCallers(bed: TestBed): Promise<Findings> {
  const binding = await startBinding(bed)
  const rows: string[][] = []
  try {
    for (const shape of SHAPES) {
      for (const [name, make] of Object.entries(CONTENDERS)) {
        rows.push([name === FIRST ? shape.what : '', name, ...cellsOf(await run(bed, shape, make), shape)])
      }
      rows.push(['', 'binding, simulated', ...cellsOfBinding(await binding.run(shape), shape)])
    }
  } finally {
    await binding.close()
  }
  return {
    tables: [
      {
        title: 'Hot callers: one fixed window, by kind of traffic',
        head: [
          'requests',
          'decided by',
          'trips',
          'µs in Redis',
          'CPU, µs',
          'p50, ms',
          'p99, ms',
          'above the limit',
          '$ per million',
        ],
        rows,
      },
    ],
    notes: NOTES,
  }
}

const [FIRST] = Object.keys(CONTENDERS)

const NOTES = [
  'Hot callers: all figures are per request, over 2 s of requests. Trips are HTTP requests to the store, including those that only give units back. ' +
    'All requests are from one caller, unless the row names a number of callers. "Store only": Sluice without leases and without remembered refusals. ' +
    'CPU is that of the client, including the loop that starts the requests, which takes more CPU per request if requests are rare. When 1,000 requests a second ' +
    'all go to the store, client and bridge use two cores fully. Decisions then wait for their turn, and several share a trip. The client @upstash/redis, as ' +
    '@upstash/ratelimit uses it, sends simultaneous calls in one HTTP request (auto-pipelining), but each call is billed. Requests that come at ' +
    'once all go to the store, even with leases, because the isolate has no units before the first answer. $: $0.20 per 100,000 commands (Upstash, pay as you go).',
  'Hot callers: the isolates are limiters of their own in one process, each with its own client and its own memory.',
  'Hot callers: "above the limit" are admitted requests that no window had room for. Traffic above the limit starts when a window begins. At the end of each ' +
    'window, the requests that were admitted until then are compared with the limit times the number of windows. A dash: the traffic stays below the limit.',
  'Hot callers: "binding, simulated" is the rate limiting binding of Workers as miniflare simulates it, in a Durable Object on this machine. These figures say ' +
    'nothing about production, where the binding makes no trip to a store and has no price of its own, but counts separately in each location of Cloudflare, and ' +
    'is documented as permissive and eventually consistent. A Worker calls the binding on the same schedule. CPU is that of workerd. p50 and p99 are whole ' +
    'milliseconds, because the clock of workerd has no finer resolution. All calls come from one Worker, also in the row with 50 isolates, because one Durable ' +
    'Object counts for all of them. The binding has periods of 10 and 60 s only. Instead of 500 a second and 10 a second, its limits were 5,000 and 100 in ' +
    '10 s, over 12 s of requests at the same rate.',
]

interface Load {
  requests: number
  /** CPU of the contender (µs). */
  cpu: number
  /** The time of each decision (ms). */
  waits: readonly number[]
  /** When admitted requests were answered, by Date.now(). */
  admittedAt: readonly number[]
}

function cellsOf(result: Load & { trips: number; commands: number; redis: number }, shape: Shape): string[] {
  const { requests, trips, commands, redis, cpu, waits } = result
  return [
    ...[(trips / requests).toFixed(3), (redis / requests).toFixed(2), (cpu / requests).toFixed(0)],
    ...[quantile(waits, 0.5).toFixed(2), quantile(waits, 0.99).toFixed(2)],
    shape.exceeds ? String(aboveLimit(result.admittedAt, shape.limit, 1000)) : '-',
    ((1e6 * DOLLARS * commands) / requests).toFixed(2),
  ]
}

function cellsOfBinding({ requests, cpu, waits, admittedAt }: Load, shape: Shape): string[] {
  const { limit, period } = bindingLimitOf(shape)
  return [
    ...['0', '-', (cpu / requests).toFixed(0)],
    ...[quantile(waits, 0.5).toFixed(0), quantile(waits, 0.99).toFixed(0)],
    shape.exceeds ? String(aboveLimit(admittedAt, limit, period * 1000)) : '-',
    '-',
  ]
}

/** The most admitted requests that no window had room for. A request is counted in the window in which it is answered, or before. */
function aboveLimit(admittedAt: readonly number[], limit: number, windowMs: number): number {
  const windows = new Map<number, number>()
  for (const at of admittedAt) {
    const window = Math.floor(at / windowMs)
    windows.set(window, (windows.get(window) ?? 0) + 1)
  }
  let [admitted, most] = [0, 0]
  const first = Math.min(...windows.keys())
  for (const [window, count] of [...windows].sort(([a], [b]) => a - b)) {
    admitted += count
    most = Math.max(most, admitted - limit * (window - first + 1))
  }
  return most
}

async function run(bed: TestBed, shape: Shape, make: Make) {
  await bed.redis.send(['FLUSHDB', 'SYNC'])
  const { isolates = 1, callers = 1, arrived } = shape
  const isolate = Array.from({ length: isolates }, () => make(throughBridge(bed.near), shape))
  // Loads the scripts and opens the connections.
  await Promise.all(isolate.map(decide => decide('warm')))
  await startOfWindow(1000)

  const waits: number[] = []
  const admittedAt: number[] = []
  let degraded = 0
  const decideOne = async (i: number) => {
    const startedAt = performance.now()
    const { isAdmitted, isDegraded } = await isolate[i % isolates]!(`caller${i % callers}`)
    waits.push(performance.now() - startedAt)
    if (isAdmitted) admittedAt.push(Date.now())
    if (isDegraded) degraded += 1
  }
  let cpu = 0
  const counted = await countTrips(() =>
    commandsOf(bed.redis, async () => {
      const before = process.cpuUsage()
      const startedAt = performance.now()
      const all: Promise<void>[] = []
      for (let ms = 0; ms < LOAD_MS; ms = performance.now() - startedAt) {
        const due = Math.ceil(arrived(Math.min(ms + 1, LOAD_MS)))
        while (all.length < due) all.push(decideOne(all.length))
        await pause(1)
      }
      await Promise.all(all)
      await pause(REST_MS)
      const { user, system } = process.cpuUsage(before)
      cpu = user + system
    }),
  )
  const requests = waits.length
  if (degraded > MAX_DEGRADED * requests)
    throw new Error(`${shape.what}: ${degraded} of ${requests} requests were not decided by the store.`)
  const { commands, scriptMicroseconds } = counted.result
  return { requests, trips: counted.trips, commands, redis: scriptMicroseconds, cpu, waits, admittedAt }
}

/** Waits for the next window of the wall clock. */
async function startOfWindow(windowMs: number): Promise<void> {
  await pause(windowMs - (Date.now() % windowMs) + 1)
}

/** Counts the HTTP requests of some work, in a wrapper of fetch. */
async function countTrips<T>(work: () => Promise<T>): Promise<{ trips: number; result: T }> {
  const realFetch = globalThis.fetch
  let trips = 0
  globalThis.fetch = (...args) => {
    trips += 1
    return realFetch(...args)
  }
  try {
    return { result: await work(), trips }
  } finally {
    globalThis.fetch = realFetch
  }
}

const pause = (ms: number) => new Promise<void>(resolve => setTimeout(resolve, ms))

/** How long requests are sent if they exceed the limit of the binding: its shortest window, and some of the next one. */
const BINDING_MS = 12_000
const WARM_UP_CALLS = 50

/** The limit of the binding that is nearest to that of a shape. */
function bindingLimitOf({ limit, period }: Shape): { limit: number; period: 10 | 60 } {
  return period === '1s' ? { limit: 10 * limit, period: 10 } : { limit, period: 60 }
}

const bindingNameOf = (shape: Shape) => `LIMIT_${SHAPES.indexOf(shape)}`

/** Starts a Worker with a binding for each shape. */
async function startBinding(
  bed: TestBed,
): Promise<{ run(shape: Shape): Promise<Load>; close(): Promise<void> }> {
  const ratelimits: BenchWorker['ratelimits'] = {}
  for (const shape of SHAPES) {
    const name = bindingNameOf(shape)
    ratelimits[name] = { namespace_id: name, simple: bindingLimitOf(shape) }
  }
  const worker = await startBenchWorker({ entry: 'binding-worker.ts', bindings: {}, ratelimits }, bed)
  const workerd = childNamed('workerd', worker.pid)

  async function send(load: BindingLoad): Promise<BindingCall[]> {
    // Not fetch, which waits for at most five minutes.
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const sent = request(worker.ready.url, { method: 'POST' }, resolve).on('error', reject)
      sent.end(JSON.stringify(load))
    })
    if (response.statusCode !== 200)
      throw new Error(`The Worker with the binding failed: ${response.statusCode}`)
    return (await json(response)) as BindingCall[]
  }

  return {
    async run(shape) {
      const { callers = 1 } = shape
      const binding = bindingNameOf(shape)
      // Not the keys of the callers, so that their limits stay whole.
      const warmUp = Array.from({ length: WARM_UP_CALLS }, () => 0)
      await send({ binding, prefix: 'warm', callers: 1, dueMs: warmUp })
      if (shape.exceeds) await startOfWindow(bindingLimitOf(shape).period * 1000)
      const dueMs = dueTimes(shape, shape.exceeds ? BINDING_MS : LOAD_MS)
      const before = cpuSeconds(workerd)
      const calls = await send({ binding, prefix: 'caller', callers, dueMs })
      return {
        requests: calls.length,
        cpu: (cpuSeconds(workerd) - before) * 1e6,
        waits: calls.map(({ waitMs }) => waitMs),
        admittedAt: calls.flatMap(({ isAdmitted, repliedAt }) => (isAdmitted ? repliedAt : [])),
      }
    },
    close: () => worker.close(),
  }
}

/** When each request of a shape is due, in ms after the start. */
function dueTimes({ arrived }: Shape, loadMs: number): number[] {
  const times: number[] = []
  for (let ms = 0; ms < loadMs; ms++) {
    const due = Math.ceil(arrived(Math.min(ms + 1, loadMs)))
    while (times.length < due) times.push(ms)
  }
  return times
}
