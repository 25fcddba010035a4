/**
 * Traffic of hot callers against a real Redis, by the ways to decide it: Sluice without memory, as it is by default (it remembers
 * refusals), and with leases; and @upstash/ratelimit with its memory of refusals (`ephemeralCache`). Requests come at their time, whether
 * the ones before are decided or not. docs/hot-callers.md has the same in a simulation, with more isolates and longer leases.
 */
import { Ratelimit } from '@upstash/ratelimit'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput, Duration } from '../../src/config/check/schema.ts'
import { limiterOnStore } from '../../src/edges/limits/limiter.ts'
import { startBenchWorker } from '../child.ts'
import { childNamed, cpuSeconds } from '../cpu-time.ts'
import { median, quantile, roomInSecond, times } from '../measure.ts'
import { commandsOf } from '../redis-statistics.ts'
import type { Findings } from '../report.ts'
import type { TestBed } from '../test-bed.ts'
import { type Transport, throughBridge } from '../transport.ts'

/** USD for a command (Upstash, pay as you go: $0.20 per 100,000). */
const DOLLARS = 0.2 / 1e5

/** How long requests come (ms), and then until leases have ended and are given back. */
const LOAD_MS = 2000
const REST_MS = 600

/** A request that the store has not decided would look cheap. */
const MOST_DEGRADED = 0.02

interface Shape {
  what: string
  limit: number
  period: Duration & ('1s' | '60s')
  isolates?: number
  callers?: number
  /** Requests of all isolates together that have come by then. */
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
  { what: '600 a second of 500, one isolate', limit: 500, period: '1s', arrived: steady(600) },
  { what: '1,000 a second of 10, one isolate', limit: 10, period: '1s', arrived: steady(1000) },
  { what: '500 a second of 1,000 callers', limit: 1e6, period: '60s', callers: 1000, arrived: steady(500) },
]

/** One isolate. @returns whether the store has decided, or an answer of it was remembered */
type Decide = (caller: string) => Promise<boolean>
type Make = (transport: Transport, shape: Shape) => Decide

const CONTENDERS: Record<string, Make> = {
  'each asks': sluice({ refusals: { rememberFor: 0 } }),
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
        title: 'Hot callers: one fixed window, by how requests come',
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
      'Hot callers: all per request, over 2 s of requests, those that give back included. Trips are HTTP requests to the store. The caller is one ' +
        'wherever no number of callers is named. CPU of the client has the part of what makes the requests come, in a process that sleeps in between: the ' +
        'more seldom they come, the more of it. Where each of 1,000 requests a second asks, client and bridge fill two cores, and decisions wait for ' +
        'their turn (more than 100 HTTP requests in flight), so that several share a trip. The client of @upstash/redis, as @upstash/ratelimit uses it, sends calls that come ' +
        'in the same moment as one HTTP request (auto-pipelining); each of them is billed all the same. Of requests that come at once each asks for itself, ' +
        'with leases too: a lease is there after a trip. $: $0.20 per 100,000 commands (Upstash, pay as you go).',
      await bindingNote(bed),
    ],
  }
}

async function run(bed: TestBed, shape: Shape, make: Make) {
  await bed.redis.send(['FLUSHDB', 'SYNC'])
  const { isolates = 1, callers = 1, arrived } = shape
  const isolate = Array.from({ length: isolates }, () => make(throughBridge(bed.near), shape))
  // Scripts are loaded, and connections open.
  await Promise.all(isolate.map(decide => decide('warm')))
  await roomInSecond(50)

  const waits: number[] = []
  let degraded = 0
  const one = async (i: number) => {
    const startedAt = performance.now()
    const isDecided = await isolate[i % isolates]!(`caller${i % callers}`)
    waits.push(performance.now() - startedAt)
    if (!isDecided) degraded += 1
  }
  let cpu = 0
  const counted = await counting(() =>
    commandsOf(bed.redis, async () => {
      const before = process.cpuUsage()
      const startedAt = performance.now()
      const all: Promise<void>[] = []
      for (let ms = 0; ms < LOAD_MS; ms = performance.now() - startedAt) {
        const due = Math.ceil(arrived(Math.min(ms + 1, LOAD_MS)))
        while (all.length < due) all.push(one(all.length))
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

/** HTTP requests, counted where they leave. */
async function counting<T>(work: () => Promise<T>): Promise<{ trips: number; result: T }> {
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

/** Cloudflare's own binding: only a simulation of it runs here. */
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
    await times(5, ask)
    const workerd = childNamed('workerd', worker.pid)
    const before = cpuSeconds(workerd)
    const taken = await times(ROUNDS, ask)
    const cpu = ((cpuSeconds(workerd) - before) * 1e6) / (ROUNDS * CALLS)
    return (
      `Hot callers: the rate limiting binding of Workers runs here only as miniflare simulates it, in a Durable Object: ${(median(taken) / CALLS).toFixed(2)} ms a call, ` +
      `and ${cpu.toFixed(0)} µs of CPU in workerd. That says nothing about production, where it takes no trip to a store and has no price of its own, counts in each ` +
      'location of Cloudflare for itself, has periods of 10 and 60 seconds only, and says neither what is left nor when to come back. So it is not in the table.'
    )
  } finally {
    await worker.close()
  }
}
