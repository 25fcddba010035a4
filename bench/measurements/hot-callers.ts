/**
 * Sends traffic of hot callers to a real Redis and compares ways to decide it: Sluice without remembered refusals, with its defaults, and
 * with leases; and @upstash/ratelimit with its cache of refusals (`ephemeralCache`). Requests come on schedule, without waiting for
 * earlier ones. docs/hot-callers.md has the same traffic in a simulation, with more isolates and longer leases.
 */
import { Ratelimit } from '@upstash/ratelimit'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput, Duration } from '../../src/config/check/schema.ts'
import { limiterOnStore } from '../../src/edges/limits/limiter-on-store.ts'
import { startBenchWorker } from '../child.ts'
import { childNamed, cpuSeconds } from '../cpu-time.ts'
import { measureTimes, median, quantile, roomInSecond } from '../measure.ts'
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
const MOST_DEGRADED = 0.02

interface Shape {
  what: string
  limit: number
  period: Duration & ('1s' | '60s')
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
    what: '25 a second in each of 20 isolates',
    limit: 1e6,
    period: '60s',
    isolates: 20,
    arrived: steady(500),
  },
  {
    what: '200 at once, every half second',
    ...{ limit: 1e6, period: '60s', arrived: (ms: number) => 200 * Math.ceil(ms / 500) },
  },
  { what: '600 a second, limit 500 a second, one isolate', limit: 500, period: '1s', arrived: steady(600) },
  { what: '1,000 a second, limit 10 a second, one isolate', limit: 10, period: '1s', arrived: steady(1000) },
  { what: '500 a second from 1,000 callers', limit: 1e6, period: '60s', callers: 1000, arrived: steady(500) },
]

/** Decides one request in an isolate. @returns whether the store or a remembered answer of the store has decided */
type Decide = (caller: string) => Promise<boolean>
type Make = (transport: Transport, shape: Shape) => Decide

const CONTENDERS: Record<string, Make> = {
  'store only': sluice({ refusals: { rememberFor: 0 } }),
  default: sluice({}),
  'lease 250ms': sluice({ lease: { for: '250ms' } }),
  '@upstash, cache': ({ redis }, { limit, period }) => {
    const limiter = Ratelimit.fixedWindow(limit, `${Number.parseInt(period, 10)} s`)
    const upstash = new Ratelimit({ redis, limiter, prefix: 'hot', ephemeralCache: new Map() })
    return async caller => (await upstash.limit(caller)).reason !== 'timeout'
  },
}

function sluice(settings: Pick<ConfigInput, 'lease' | 'refusals'>): Make {
  return ({ store }, { limit, period }) => {
    const rule = { name: 'hot', by: ['caller'], algorithm: 'fixed-window', limit, period } as const
    const limiter = limiterOnStore(checkedConfig({ ...settings, limits: { hot: [rule] } }), store)
    return async caller => (await limiter.limit('hot', { caller })).degraded === undefined
  }
}

export async function hotCallers(bed: TestBed): Promise<Findings> {
  const rows: string[][] = []
  for (const shape of SHAPES) {
    let what = shape.what
    for (const [name, make] of Object.entries(CONTENDERS)) {
      const { requests, trips, commands, redis, cpu, waits } = await run(bed, shape, make)
      rows.push([
        ...[what, name, (trips / requests).toFixed(3), (redis / requests).toFixed(2)],
        ...[(cpu / requests).toFixed(0), quantile(waits, 0.5).toFixed(2), quantile(waits, 0.99).toFixed(2)],
        ((1e6 * DOLLARS * commands) / requests).toFixed(2),
      ])
      what = ''
    }
  }
  return {
    rows: [],
    tables: [
      {
        title: 'Hot callers: one fixed window, by kind of traffic',
        head: [
          'requests',
          'decided by',
          'trips',
          'µs in Redis',
          'CPU of the client, µs',
          'p50, ms',
          'p99, ms',
          '$ per million',
        ],
        rows,
      },
    ],
    notes: [
      'Hot callers: all figures are per request, over 2 s of requests. Trips are HTTP requests to the store, including those that only give units back. ' +
        'All requests are from one caller, unless the row names a number of callers. "Store only": Sluice without leases and without remembered refusals. ' +
        'The CPU of the client includes the loop that starts the requests, which takes more CPU per request if requests are rare. When 1,000 requests a second ' +
        'all go to the store, client and bridge use two cores fully. Decisions then wait for their turn, and several share a trip. The client @upstash/redis, as ' +
        '@upstash/ratelimit uses it, sends simultaneous calls in one HTTP request (auto-pipelining), but each call is billed. Requests that come at ' +
        'once all go to the store, even with leases, because the lease begins with the first answer. $: $0.20 per 100,000 commands (Upstash, pay as you go).',
      await bindingNote(bed),
    ],
  }
}

async function run(bed: TestBed, shape: Shape, make: Make) {
  await bed.redis.send(['FLUSHDB', 'SYNC'])
  const { isolates = 1, callers = 1, arrived } = shape
  const isolate = Array.from({ length: isolates }, () => make(throughBridge(bed.near), shape))
  // Loads the scripts and opens the connections.
  await Promise.all(isolate.map(decide => decide('warm')))
  await roomInSecond(50)

  const waits: number[] = []
  let degraded = 0
  const decideOne = async (i: number) => {
    const startedAt = performance.now()
    const isDecided = await isolate[i % isolates]!(`caller${i % callers}`)
    waits.push(performance.now() - startedAt)
    if (!isDecided) degraded += 1
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
  if (degraded > MOST_DEGRADED * requests)
    throw new Error(`${shape.what}: ${degraded} of ${requests} requests were not decided by the store.`)
  const { commands, scriptMicroseconds } = counted.result
  return { requests, trips: counted.trips, commands, redis: scriptMicroseconds, cpu, waits }
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

const CALLS = 100
const ROUNDS = 20

/** A note about Cloudflare's rate limiting binding, of which only a simulation can be measured. */
async function bindingNote(bed: TestBed): Promise<string> {
  const worker = await startBenchWorker(
    {
      entry: 'binding-worker.ts',
      bindings: {},
      ratelimits: { LIMIT: { namespace_id: '1', simple: { limit: 1e6, period: 60 } } },
    },
    bed,
  )
  try {
    const ask = async () => {
      const response = await fetch(`${worker.ready.url}/?calls=${CALLS}`)
      if ((await response.text()) !== String(CALLS)) throw new Error('The binding has refused.')
    }
    await measureTimes(5, ask)
    const workerd = childNamed('workerd', worker.pid)
    const before = cpuSeconds(workerd)
    const durations = await measureTimes(ROUNDS, ask)
    const cpu = ((cpuSeconds(workerd) - before) * 1e6) / (ROUNDS * CALLS)
    return (
      `Hot callers: the rate limiting binding of Workers runs here only as miniflare simulates it, in a Durable Object: ${(median(durations) / CALLS).toFixed(2)} ms a call, ` +
      `and ${cpu.toFixed(0)} µs of CPU in workerd. These figures say nothing about production, so the binding is not in the table. In production, the binding makes no trip to a ` +
      'store and has no price of its own. It counts separately in each location of Cloudflare, has periods of 10 and 60 seconds only, and returns neither the remaining ' +
      'units nor a time to wait.'
    )
  } finally {
    await worker.close()
  }
}
