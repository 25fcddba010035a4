/**
 * Traffic of hot callers to a real Redis, and ways to decide it: Sluice without remembered refusals, with its defaults, and with leases; and
 * @upstash/ratelimit with its cache of refusals (`ephemeralCache`). Requests come on schedule, without waiting for earlier ones.
 * docs/internals/simulations.md has the same traffic in a simulation, with more isolates and longer leases.
 */
import { Ratelimit } from '@upstash/ratelimit'
import { checkedConfig } from '../src/config/check/check.ts'
import type { ConfigInput, Duration } from '../src/config/check/schema.ts'
import { createLimiterOnStore } from '../src/set-ups/limits/limiter-on-store.ts'
import { commandsOf } from './redis-statistics.ts'
import type { TestBed } from './test-bed.ts'
import { type Transport, throughBridge } from './transport.ts'

/** How long requests are sent (ms): two windows if they exceed the limit. */
const loadMsOf = ({ exceeds }: Shape) => (exceeds ? 2000 : 1000)
/** After this time, all leases have ended and are given back. */
const REST_MS = 600

/** The share of requests that may be decided without the store. More of them would make the contender look cheap. */
const MAX_DEGRADED = 0.02

export interface Shape {
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

export const SHAPES: readonly Shape[] = [
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
export type Make = (transport: Transport, shape: Shape) => Decide

export const CONTENDERS: Record<string, Make> = {
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

const LEASED = CONTENDERS['lease 250ms']

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

export interface Load {
  requests: number
  /** CPU of the contender (µs). */
  cpu: number
  /** The time of each decision (ms). */
  waits: readonly number[]
  /** When admitted requests were answered, by Date.now(). */
  admittedAt: readonly number[]
}

/** What all of the traffic has cost together. */
export interface Traffic extends Load {
  trips: number
  commands: number
  /** Time inside Redis (µs). */
  redis: number
}

/** @throws Error if the store has not decided the requests */
export async function sendTraffic(bed: TestBed, shape: Shape, make: Make): Promise<Traffic> {
  await bed.redis.send(['FLUSHDB', 'SYNC'])
  const { isolates = 1, callers = 1, arrived } = shape
  const isolate = Array.from({ length: isolates }, () => make(throughBridge(bed.near), shape))
  // Loads the scripts and opens the connections.
  await Promise.all(isolate.map(decide => decide('warm')))
  const loadMs = loadMsOf(shape)
  if (shape.exceeds) await startOfWindow(1000)

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
      for (let ms = 0; ms < loadMs; ms = performance.now() - startedAt) {
        const due = Math.ceil(arrived(Math.min(ms + 1, loadMs)))
        while (all.length < due) all.push(decideOne(all.length))
        await pause(1)
      }
      await Promise.all(all)
      if (make === LEASED) await pause(REST_MS)
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
export async function startOfWindow(windowMs: number): Promise<void> {
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
