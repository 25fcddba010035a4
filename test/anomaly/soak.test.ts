/**
 * Runs two Workers, one of them with leases, under load with random faults for minutes: every reply follows the fallback, all
 * requests are accounted for, and memory does not grow. A third Worker holds 3,000 streams meanwhile. A fourth Worker admits none of their
 * addresses while Redis knows of the streams. `npm run test:soak` runs it; SOAK_MINUTES sets the duration.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { writeTable } from '../../docs/programs/reliability/tables.ts'
import type { Exchanged } from '../support/counting-proxy.ts'
import { inspectHeap } from '../support/heap.ts'
import { childOf, residentBytes } from '../support/processes.ts'
import { randomFrom, SEED } from '../support/random.ts'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { hasRedisServer } from '../support/servers.ts'
import { startLane } from './lane.ts'
import {
  DEADLINE_MS,
  LATE_MS,
  SOAK_LEASE_LIMIT,
  SOAK_LEASE_PERIOD_MS,
  SOAK_LIMIT,
  SOAK_PERIOD_MS,
  SOAK_STREAM_TTL_MS,
  SOAK_STREAMS,
} from './modes.ts'
import type { SoakCounts, SoakOrder } from './soak-client.ts'
import { failAtRandom, type Span } from './soak-faults.ts'
import type { Asked, StreamCounts, StreamOrder } from './soak-streams.ts'

const MINUTES = Number(process.env.SOAK_MINUTES ?? 2)
const CLIENT = fileURLToPath(new URL('soak-client.ts', import.meta.url))
const STREAM_CLIENT = fileURLToPath(new URL('soak-streams.ts', import.meta.url))
const CLIENTS = 2
const AT_ONCE = 8

/** Callers with leases, on a Worker of their own. Each sends so many requests in a row. */
const LEASED_CALLERS = 2
const LEASED_VISITS = 150

/** In this time, one message about each stream is needed. */
const RENEWAL_MS = SOAK_STREAM_TTL_MS / 3
/** After the faults, the streams are held for so many more times, the first of them to recover. */
const RENEWALS_AFTER = 4

const why = !process.env.SOAK
  ? ' (npm run test:soak)'
  : hasRedisServer
    ? ''
    : ' (no redis-server is installed)'

describe.skipIf(why !== '')(`a Worker under load with random faults${why}`, () => {
  it(`answers for ${MINUTES} minutes, and its memory does not grow (SEED=${SEED})`, {
    timeout: MINUTES * 60_000 + 120_000,
  }, async () => {
    const redis = await startRedisProcess()
    const lane = await startLane(`redis://${redis.host}:${redis.port}`, { inspect: true })
    const leaseLane = await startLane(`redis://${redis.host}:${redis.port}`, { config: 'leases' })
    const streamLane = await startLane(`redis://${redis.host}:${redis.port}`, { config: 'streams' })
    const otherLane = await startLane(`redis://${redis.host}:${redis.port}`, { config: 'streams' })
    const heap = await inspectHeap(lane.inspectorUrl!)
    const clients: ChildProcess[] = []
    try {
      const newKeys = (count: number) =>
        Promise.all(Array.from({ length: count }, () => lane.key(lane.name())))
      const keys = await newKeys(CLIENTS * AT_ONCE)
      const leasedKeys = await newKeys(LEASED_CALLERS)
      const records = await recordsOf(redis)
      const worker = childOf(lane.pid, 'workerd')
      const memory = { worker: [] as number[], heap: [] as number[], redis: [] as number[] }

      const until = Date.now() + MINUTES * 60_000
      const launch = (file: string, order: SoakOrder | StreamOrder) => {
        const client = fork(file, [], { execArgv: ['--no-warnings'] })
        clients.push(client)
        client.send(order)
        return client
      }
      const startClient = (order: SoakOrder) =>
        once(launch(CLIENT, order), 'message').then(([counts]) => counts as SoakCounts)
      const counts = Array.from({ length: CLIENTS }, (_, i) =>
        startClient({
          url: lane.url,
          seed: SEED + i,
          keys: keys.slice(i * AT_ONCE, (i + 1) * AT_ONCE),
          network: String(i),
          atOnce: AT_ONCE,
        }),
      )
      leaseLane.store.count()
      const leasedCounts = startClient({
        url: leaseLane.url,
        seed: SEED + CLIENTS,
        keys: leasedKeys,
        network: String(CLIENTS),
        atOnce: LEASED_CALLERS,
        leases: { visits: LEASED_VISITS, periodMs: SOAK_LEASE_PERIOD_MS },
      })
      const streamClient = launch(STREAM_CLIENT, {
        ...{ url: streamLane.url, otherUrl: otherLane.url, streams: SOAK_STREAMS, seed: SEED },
      })
      expect(await once(streamClient, 'message')).toEqual(['open', undefined])
      const renewed = new Renewed()
      streamLane.store.watch = exchanged => renewed.add(exchanged)
      const streamCounts = once(streamClient, 'message').then(([counts]) => counts as StreamCounts)
      const sampling = setInterval(() => {
        const resident = worker === undefined ? undefined : residentBytes(worker)
        if (resident !== undefined) memory.worker.push(resident)
        // Fails while Redis is frozen or down.
        redis.send('INFO', 'memory').then(
          text => memory.redis.push(usedBytes(String(text))),
          () => {},
        )
      }, 1000)
      // Often, so that some samples are taken right after a garbage collection.
      const watching = setInterval(() => {
        void heap.used().then(bytes => memory.heap.push(bytes))
      }, 100)

      const random = randomFrom(SEED)
      const { faults, losses, down } = await failAtRandom(
        { lanes: [lane, leaseLane], lanesOfStreams: [streamLane], redis, random },
        until - RENEWALS_AFTER * RENEWAL_MS,
        () => Promise.all(records.map(([key, value]) => redis.send('SET', key, value))),
      )
      await new Promise(resolve => setTimeout(resolve, RENEWAL_MS))
      const countedFrom = renewed.messages
      await new Promise(resolve => setTimeout(resolve, (RENEWALS_AFTER - 1) * RENEWAL_MS))
      const messages = (renewed.messages - countedFrom) / (SOAK_STREAMS * (RENEWALS_AFTER - 1))
      clearInterval(sampling)
      clearInterval(watching)
      for (const client of clients) client.send('enough')
      const all = (await Promise.all(counts)).reduce(sum)
      const leased = await leasedCounts
      const streams = await streamCounts
      const known = streams.asked.filter(asked => isKnown(asked, renewed, down))
      const wrong = known.filter(({ status }) => status === 200)
      const leasedTrips = leaseLane.store.count()

      const replied = Object.values(all.replies).reduce((one, other) => one + other, 0)
      writeTable('soak', {
        head: ['what', 'result'],
        rows: [
          ...rowsOf(all, faults, losses, memory),
          ...leaseRowsOf(leased, leasedTrips),
          ...streamRowsOf(streams, known, messages),
        ],
      })
      for (const { mistakes, unanswered } of [all, leased]) {
        expect(mistakes, `SEED=${SEED}`).toEqual({})
        expect(unanswered).toBe(0)
      }
      expect(replied + all.left).toBe(all.sent)
      expect(streams.ended).toBe(0)
      expect(wrong, `SEED=${SEED} ${JSON.stringify(down)}`).toEqual([])
      expect(known.filter(({ status }) => status === 429).length).toBeGreaterThan(streams.asked.length / 10)
      expect(streams.free).toBeGreaterThan(0)
      expect(messages).toBeLessThanOrEqual(1.2)
      // All streams are renewed, also those whose messages were lost. They are renewed together, and the time of the count may have room
      // for one renewal less.
      expect(messages).toBeGreaterThan((RENEWALS_AFTER - 2) / (RENEWALS_AFTER - 1) - 0.01)
      // On a machine that is so busy that most calls to the store are late, callers have few leases.
      const { 200: admitted = 0 } = leased.replies
      if (admitted > leased.sent / 4) expect(leasedTrips).toBeLessThan(admitted)
      // Units of a lease can be counted in one window, and used in the next.
      expect(leased.mostInWindow).toBeLessThanOrEqual(
        (SOAK_LEASE_LIMIT + SOAK_LEASE_LIMIT / 16) * (1 + mostInOneWindow(losses, SOAK_LEASE_PERIOD_MS)),
      )
      expect(all.slowest).toBeLessThan(DEADLINE_MS + LATE_MS)
      expect(all.mostInWindow).toBeLessThanOrEqual(SOAK_LIMIT * (1 + mostInOneWindow(losses)))
      expect(floor(memory.heap, 3) - floor(memory.heap, 1)).toBeLessThan(MAX_HEAP_GROWTH)
      expect(floor(memory.heap, 3)).toBeLessThan(MAX_HEAP)
      expect(grown(memory.redis)).toBeLessThan(MAX_GROWTH)
    } finally {
      for (const client of clients) client.kill()
      heap.close()
      for (const each of [otherLane, streamLane, leaseLane]) await each.close()
      await lane.close()
      await redis.close()
    }
  })
})

/** The most losses that can affect one window. A loss is recorded after the restart, so it may belong to the window before. */
function mostInOneWindow(losses: readonly number[], periodMs = SOAK_PERIOD_MS): number {
  return Math.max(0, ...losses.map(one => losses.filter(other => Math.abs(other - one) < periodMs).length))
}

/** What Redis has executed of the messages about streams. */
class Renewed {
  messages = 0
  /** By address: when a message was sent, and when its reply arrived (ms since the epoch). */
  readonly #spans = new Map<string, Span[]>()

  add({ request, reply, sentAt }: Exchanged): void {
    const body = JSON.parse(request) as unknown[]
    const isPipeline = Array.isArray(body[0])
    const calls = (isPipeline ? body : [body]) as string[][]
    const answers = [JSON.parse(reply)].flat() as { result?: unknown }[]
    for (const [i, [command, , count, ...keys]] of calls.entries()) {
      if (!/^eval/i.test(command!) || !answers[i]?.result) continue
      for (const key of keys.slice(0, Number(count))) {
        const [address = ''] = /10\.200\.\d+\.\d+/.exec(key) ?? []
        this.messages += 1
        const spans = this.#spans.get(address) ?? []
        spans.push({ from: sentAt, to: Date.now() })
        this.#spans.set(address, spans)
      }
    }
  }

  spansOf(address: string): readonly Span[] {
    return this.#spans.get(address) ?? []
  }
}

/** Whether Redis knew of the stream of this address in all of this time: it had a message that is less than a ttl old, and still has its data. */
function isKnown({ address, sentAt, repliedAt }: Asked, renewed: Renewed, down: readonly Span[]): boolean {
  return renewed
    .spansOf(address)
    .some(
      ({ from, to }) =>
        to < sentAt &&
        repliedAt < from + SOAK_STREAM_TTL_MS &&
        !down.some(each => each.from <= repliedAt && each.to >= from),
    )
}

/** The number of samples to skip, one per second. */
const WARM_UP = 45

/** The most growth of the memory of Redis, as a factor. */
const MAX_GROWTH = 1.3

/** Allows for the caches of an isolate, but not for a leak of 200 bytes per request. */
const MAX_HEAP_GROWTH = 8e6

/** Half of the memory of a Worker. */
const MAX_HEAP = 64e6

/** The heap after a collection: the lowest sample in the first or last third of the time. */
function floor(samples: readonly number[], n: 1 | 3): number {
  return Math.min(...samples.slice(((n - 1) * samples.length) / 3, (n * samples.length) / 3))
}

/** The mean of the first or last third of the samples after the warm-up. */
const third = (samples: readonly number[], n: 1 | 3) => {
  const settled = samples.slice(WARM_UP)
  return average(settled.slice(((n - 1) * settled.length) / 3, (n * settled.length) / 3))
}

const average = (samples: readonly number[]) =>
  samples.reduce((sum, sample) => sum + sample, 0) / Math.max(1, samples.length)

const isMeasured = (samples: readonly number[]) => samples.length > WARM_UP + 10

/** The mean of the last third divided by that of the first. */
const grown = (samples: readonly number[]) =>
  isMeasured(samples) ? third(samples, 3) / third(samples, 1) : 1

function sum(one: SoakCounts, other: SoakCounts): SoakCounts {
  return {
    sent: one.sent + other.sent,
    left: one.left + other.left,
    unanswered: one.unanswered + other.unanswered,
    replies: added(one.replies, other.replies),
    mistakes: added(one.mistakes, other.mistakes),
    slowest: Math.max(one.slowest, other.slowest),
    mostInWindow: Math.max(one.mostInWindow, other.mostInWindow),
  }
}

function added(one: Record<string, number>, other: Record<string, number>): Record<string, number> {
  const names = new Set([...Object.keys(one), ...Object.keys(other)])
  return Object.fromEntries([...names].sort().map(name => [name, (one[name] ?? 0) + (other[name] ?? 0)]))
}

function rowsOf(
  { sent, left, unanswered, replies, slowest, mostInWindow }: SoakCounts,
  faults: Record<string, number>,
  losses: readonly number[],
  memory: Record<'worker' | 'heap' | 'redis', readonly number[]>,
): string[][] {
  const formatCounts = (counts: Record<string, number>) =>
    Object.entries(counts)
      .map(([name, count]) => `${name}: ${count.toLocaleString('en')}`)
      .join('<br>')
  const megabytes = (samples: readonly number[]) =>
    isMeasured(samples)
      ? `${(third(samples, 1) / 1e6).toFixed(1)} MB, then ${(third(samples, 3) / 1e6).toFixed(1)} MB`
      : 'not measured'
  return [
    ['time, seed', `${MINUTES} min, ${SEED}`],
    ['requests sent', sent.toLocaleString('en')],
    ['replies', formatCounts(replies)],
    ['abandoned by their clients', left.toLocaleString('en')],
    ['not answered', String(unanswered)],
    ['faults', formatCounts(faults)],
    ['slowest reply', `${Math.round(slowest)} ms`],
    [
      `most requests of one caller that the store admitted in a window (limit ${SOAK_LIMIT})`,
      `${mostInWindow} (Redis lost its data ${losses.length} times, up to ${mostInOneWindow(losses)} times in a window)`,
    ],
    [
      'smallest heap of the isolate, first and last third of the time',
      `${(floor(memory.heap, 1) / 1e6).toFixed(1)} MB, then ${(floor(memory.heap, 3) / 1e6).toFixed(1)} MB`,
    ],
    [
      `mean memory of the workerd process with garbage, first and last third of the time after ${WARM_UP} s`,
      megabytes(memory.worker),
    ],
    ['mean memory of Redis, same times', megabytes(memory.redis)],
  ]
}

function leaseRowsOf({ sent, replies, mostInWindow }: SoakCounts, trips: number): string[][] {
  return [
    [
      'callers with leases: requests, of these admitted by the store, and trips',
      [sent, replies['200'] ?? 0, trips].map(each => each.toLocaleString('en')).join(', '),
    ],
    [
      `most requests of one caller with leases that were admitted in a window (limit ${SOAK_LEASE_LIMIT})`,
      String(mostInWindow),
    ],
  ]
}

function streamRowsOf({ asked, free }: StreamCounts, known: readonly Asked[], messages: number): string[][] {
  const counted = (asked: readonly Asked[]) =>
    [429, 503, 200]
      .map(status => `${status}: ${asked.filter(each => each.status === status).length.toLocaleString('en')}`)
      .join('<br>')
  return [
    [
      `requests of another Worker for a second stream of an address, while ${SOAK_STREAMS.toLocaleString('en')} are in flight, limit 1`,
      counted(asked),
    ],
    ['of these, while Redis knew of the first stream', counted(known)],
    ['admitted requests of addresses without a stream', free.toLocaleString('en')],
    ['messages that renew the streams after the faults, per needed message', messages.toFixed(2)],
  ]
}

/** The records of API keys in Redis. */
async function recordsOf(redis: RedisProcess): Promise<(readonly [key: string, value: string])[]> {
  const keys = (await redis.send('KEYS', '*:key:*')) as Buffer[]
  return await Promise.all(
    keys.map(async key => [String(key), String(await redis.send('GET', String(key)))] as const),
  )
}

const usedBytes = (info: string) => Number(/^used_memory:(\d+)/m.exec(info)?.[1])
