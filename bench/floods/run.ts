/** Runs one flood. An innocent caller sends requests before, during and after it. */
import { adminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { cpuSeconds } from '../cpu-time.ts'
import { runConcurrently } from '../measure.ts'
import { totalsOf } from '../redis-statistics.ts'
import { newIdentities } from '../test-bed.ts'
import type { Contender, FloodBed } from './bed.ts'
import { LIMITS } from './config.ts'
import type { FloodAnswer, FloodQuestion } from './flood-client.ts'
import type { InnocentQuestion, Sample } from './innocent-client.ts'
import type { OriginCounts } from './origin.ts'
import type { Reply } from './raw-connection.ts'
import type { Caller, FloodRequests } from './requests.ts'
import type { Burst, Shape, Stream } from './shapes.ts'
import { wallClock } from './wall-clock.ts'

export interface Size {
  /** Requests of the flood. */
  requests: number
  connections: number
  /** Rate of a stream. */
  perSecond?: number
}

export interface Run {
  size: Size
  callers: number
  replies: Record<Reply, number>
  notSent: number
  /** From the first request to the last reply. */
  tookMs: number
  reachedOrigin: number
  /** Requests of all callers that reached the origin above their limits. */
  aboveLimit: number
  /** Requests of all callers that were refused although their limits were not reached. */
  belowLimit: number
  /** Unknown keys that were looked up, and the limit of such look-ups. */
  guesses?: { tried: number; limit: number }
  innocent: { before: Sample[]; during: Sample[] }
  /** From the last reply of the flood to the last request of the innocent caller that was decided without the store. */
  degradedAfterMs: number
  /** Includes those of the innocent caller, whose decisions share HTTP requests with those of the flood. */
  httpRequests: number
  /** Excludes those of the innocent caller. */
  scriptCalls: number
  /** For a stream: calls per second after every caller has been refused once, without the innocent caller. */
  laterScriptCallsPerSecond?: number
  redisCpuMs: number
  scriptMs: number
  workerCpuMs: number
}

const INNOCENT_PER_SECOND = 50
const BEFORE_MS = 1200
/** Time for workerd to accept all connections. */
const CONNECTED_MS = 500
const AFTER_MS = 500
/** The continuation of a stream, and the time after which every caller has been refused again. */
const LATER = { seconds: 5, afterMs: 1000 }
/** This many consecutive good replies show that nothing of the previous flood is left, so that the next one can begin. */
const GOOD_REPLIES = 25
const MOST_SETTLING_MS = 15_000
/** A flood must fit into one window of the limits, even if it is answered slowly. */
const ROOM_MS = { atLeast: 5000, perRequest: 2 }
const MINUTE_MS = 60_000

export async function runFlood(
  bed: FloodBed,
  contender: Contender,
  shape: Burst | Stream,
  size: Size,
): Promise<Run> {
  for (let left = MOST_TRIES - 1; ; left--) {
    try {
      return await tryFlood(bed, contender, shape, size)
    } catch (error) {
      if (!(error instanceof Disturbed) || left === 0) throw error
      console.error(`  once more: ${error.message}`)
    }
  }
}

const MOST_TRIES = 5

/** A run without meaningful figures, as can happen while other processes use the machine. */
class Disturbed extends Error {}

async function tryFlood(
  bed: FloodBed,
  { url, workerd }: Contender,
  shape: Burst | Stream,
  size: Size,
): Promise<Run> {
  const { flooding, innocent } = bed
  const ask = <T>(question: FloodQuestion) => flooding.ask<T>(question)
  const askInnocent = <T>(question: InnocentQuestion) => innocent.ask<T>(question)

  // Cleans up after a disturbed try.
  await askInnocent({ do: 'stop' })
  const requests = await requestsOf(bed, shape, size)
  const [{ name: _, ...innocentCaller }] = (await newCallers(bed, 1)) as [Caller]
  await ask({ do: 'prepare', requests, count: size.requests })
  await askInnocent({
    ...{ do: 'start', url, path: '/innocent', caller: innocentCaller, perSecond: INNOCENT_PER_SECOND },
  })
  await pause(BEFORE_MS)
  await mustSettle(bed)
  await prepareCallers(bed, url, shape, requests)
  await mustSettle(bed)
  await roomInMinute(roomFor(size))
  const minute = Math.floor(Date.now() / MINUTE_MS)
  await ask({ do: 'connect', url, connections: size.connections })
  await pause(CONNECTED_MS)
  if (shape.before === 'spent') await sendOnce(bed, url, { ...requests, path: '/spending' })
  await bed.origin.ask<OriginCounts>({})

  const before = await totals(bed, workerd)
  const answer = await ask<FloodAnswer>(
    shape.kind === 'burst' ? { do: 'burst' } : { do: 'stream', perSecond: size.perSecond! },
  )
  const after = await totals(bed, workerd)
  const isOneMinute = Math.floor(Date.now() / MINUTE_MS) === minute
  await pause(AFTER_MS)
  await settle(bed)
  const samples = await askInnocent<Sample[]>({ do: 'stop' })
  const counts = await bed.origin.ask<OriginCounts>({})
  if (!isOneMinute) throw new Disturbed('a new window of the limits began during the flood')

  const { startedAt, endedAt, replies, notSent } = answer
  if (endedAt === startedAt) throw new Disturbed('no request of the flood was answered')
  const during = samples.filter(({ sentAt, tookMs }) => sentAt <= endedAt && sentAt + tookMs >= startedAt)
  const trips = during.filter(({ reply }) => storeAnswered(reply)).length
  const used = (key: keyof typeof after) => after[key] - before[key]
  return {
    ...{ size, callers: shape.callers, replies, notSent, tookMs: endedAt - startedAt },
    ...againstLimits(shape, size, requests, counts),
    ...(isGuessing(shape) && { guesses: { tried: replies['401'] ?? 0, limit: LIMITS.guesses } }),
    innocent: {
      before: samples.filter(({ sentAt, tookMs }) => sentAt + tookMs < startedAt).slice(-GOOD_REPLIES * 2),
      during,
    },
    degradedAfterMs: Math.max(
      0,
      ...samples.filter(({ reply }) => reply !== '200').map(({ sentAt }) => sentAt - endedAt),
    ),
    httpRequests: used('httpRequests'),
    scriptCalls: used('scriptCalls') - trips,
    ...(shape.kind === 'stream' && {
      laterScriptCallsPerSecond: await laterCalls(bed, url, workerd, requests, size),
    }),
    redisCpuMs: used('cpuMicroseconds') / 1e3,
    scriptMs: used('scriptMicroseconds') / 1e3,
    workerCpuMs: used('workerSeconds') * 1e3,
  }
}

/** Continues the stream with the same callers, all of which have been refused. @returns EVALSHA calls per second */
async function laterCalls(
  bed: FloodBed,
  url: string,
  workerd: number,
  requests: FloodRequests,
  { perSecond, connections }: Size,
): Promise<number> {
  const ask = <T>(question: FloodQuestion) => bed.flooding.ask<T>(question)
  await ask({ do: 'prepare', requests, count: LATER.seconds * perSecond! })
  await ask({ do: 'connect', url, connections })
  await pause(CONNECTED_MS)
  const end = ask<FloodAnswer>({ do: 'stream', perSecond: perSecond! })
  await pause(LATER.afterMs)
  const [before, startedAt] = [await totals(bed, workerd), wallClock()]
  await end
  const [after, endedAt] = [await totals(bed, workerd), wallClock()]
  return (1e3 * (after.scriptCalls - before.scriptCalls)) / (endedAt - startedAt)
}

const isGuessing = ({ sends }: Shape) => sends === 'api-key' || sends === 'opaque-key'

/** Whether the store has answered. For other requests, it is unknown whether they reached the store. */
const storeAnswered = (reply: Reply) => /^\d+$/.test(reply)

async function requestsOf(bed: FloodBed, shape: Shape, { requests }: Size): Promise<FloodRequests> {
  const { path, sends, hasManyAddresses } = shape
  const addresses = hasManyAddresses && newIdentities(requests).map(({ address }) => address)
  return {
    path,
    callers: sends === 'own keys' ? await newCallers(bed, shape.callers) : strangers(shape.callers),
    ...((sends === 'api-key' || sends === 'opaque-key') && { guesses: sends }),
    ...(addresses && { addresses }),
  }
}

const strangers = (count: number): Caller[] =>
  newIdentities(count).map(({ address, consumer }) => ({ name: consumer, address }))

async function newCallers({ rest }: FloodBed, count: number): Promise<Caller[]> {
  const store = adminStore(rest)
  const callers: Caller[] = newIdentities(count).map(({ consumer, address }) => ({ name: consumer, address }))
  await runConcurrently(16, count, async i => {
    callers[i]!.apiKey = (await createKey(store, { consumer: callers[i]!.name! })).key
  })
  return callers
}

/** Lets the isolate verify the keys before the flood, without spending the limits of the flood. */
async function prepareCallers(bed: FloodBed, url: string, shape: Shape, requests: FloodRequests) {
  if (shape.before !== undefined) await sendOnce(bed, url, { ...requests, path: '/innocent' })
}

/** Sends one request of each caller. @throws Disturbed unless the store admits all of them */
async function sendOnce({ flooding }: FloodBed, url: string, { path, callers }: FloodRequests) {
  const question: FloodQuestion = { do: 'send', url, requests: { path, callers }, count: callers.length }
  const replies = await flooding.ask<Record<Reply, number>>(question)
  if (replies['200'] !== callers.length) {
    throw new Disturbed(`before the flood, ${path} was answered ${JSON.stringify(replies)}`)
  }
}

/** Waits until the store serves the innocent caller. @returns undefined; or its last replies, if they stay bad for too long */
async function settle({ innocent }: FloodBed): Promise<Sample[] | undefined> {
  const until = performance.now() + MOST_SETTLING_MS
  for (;;) {
    const last = await innocent.ask<Sample[]>({ do: 'look', count: GOOD_REPLIES })
    if (last.length === GOOD_REPLIES && last.every(({ reply }) => reply === '200')) return undefined
    if (performance.now() > until) return last
    await pause(100)
  }
}

async function mustSettle(bed: FloodBed): Promise<void> {
  const bad = await settle(bed)
  if (bad) throw new Disturbed(`before the flood, the innocent caller was not served: ${JSON.stringify(bad)}`)
}

function roomFor({ requests, perSecond }: Size): number {
  const { atLeast, perRequest } = ROOM_MS
  if (perSecond === undefined) return atLeast + requests * perRequest
  return atLeast + (requests * 1e3) / perSecond + LATER.seconds * 2e3
}

async function roomInMinute(milliseconds: number): Promise<void> {
  const gone = Date.now() % MINUTE_MS
  if (gone + milliseconds > MINUTE_MS) await pause(MINUTE_MS - gone + 50)
}

async function totals({ redis, storeSide }: FloodBed, workerd: number) {
  const [ofRedis, httpRequests] = await Promise.all([totalsOf(redis), storeSide.ask<number>({})])
  return { ...ofRedis, httpRequests, workerSeconds: secondsOf(workerd) }
}

function secondsOf(workerd: number): number {
  try {
    return cpuSeconds(workerd)
  } catch (error) {
    throw new Error('workerd has exited during the flood.', { cause: error })
  }
}

function againstLimits(
  { limit }: Shape,
  { requests }: Size,
  { callers }: FloodRequests,
  counts: OriginCounts,
): Pick<Run, 'reachedOrigin' | 'aboveLimit' | 'belowLimit'> {
  let [reachedOrigin, aboveLimit, belowLimit] = [0, 0, 0]
  // Some callers may have sent one request more than the others.
  const sent = Math.floor(requests / callers.length)
  for (const { name } of callers) {
    const count = counts[name!] ?? 0
    reachedOrigin += count
    aboveLimit += Math.max(0, count - limit)
    belowLimit += Math.max(0, Math.min(limit, sent) - count)
  }
  return { reachedOrigin, aboveLimit, belowLimit }
}

const pause = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))
