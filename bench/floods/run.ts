/** Runs one flood. An innocent caller sends requests before, during and after it. */
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { cpuSeconds } from '../cpu-time.ts'
import { runConcurrently } from '../measure.ts'
import { totalsOf } from '../redis-statistics.ts'
import { newIdentities } from '../test-bed.ts'
import type { Contender, FloodBed } from './bed.ts'
import { LIMITS } from './config.ts'
import type { FloodAnswer, FloodCommand } from './flood-client.ts'
import type { InnocentCommand, Sample } from './innocent-client.ts'
import type { OriginCounts } from './origin.ts'
import type { Reply } from './raw-connection.ts'
import type { Caller, FloodRequests } from './requests.ts'
import type { Flood, Shape } from './shapes.ts'
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
  /** Unknown keys that were looked up, and those of them above the limits of their addresses. */
  guesses?: { tried: number; aboveLimit: number }
  innocent: { before: Sample[]; during: Sample[] }
  /** From the last reply of the flood to the last request of the innocent caller that was decided without the store. */
  degradedAfterMs: number
  /** Includes those of the innocent caller, whose decisions share HTTP requests with those of the flood. */
  httpRequests: number
  /** Excludes those for decisions of the innocent caller, with which calls of the flood travel. */
  ownHttpRequests: number
  /** Excludes those of the innocent caller. */
  scriptCalls: number
  /** For a stream: calls per second after every caller has been refused once, without the innocent caller. */
  laterScriptCallsPerSecond?: number
  /** For a stream to the gateway in Node: each second since the first request. */
  seconds?: NonNullable<FloodAnswer['seconds']>
  shortestPauseMs?: number
  redisCpuMs: number
  scriptMs: number
  /** CPU of the process of the gateway. In Node, it includes the callers. */
  gatewayCpuMs: number
  /** CPU of the process that sends the flood. Absent in Node. */
  floodingCpuMs?: number
}

const INNOCENT = { callers: 1, perSecond: 50 }
const INNOCENT_IN_NODE = { callers: 10, perSecond: 50 }
const BEFORE_MS = 1200
/** Time for workerd to accept all connections. */
const CONNECTED_MS = 500
const AFTER_MS = 500
/** The continuation of a stream, and the time after which every caller has been refused again. */
const LATER = { seconds: 5, afterMs: 1000 }
/** This many consecutive good replies show that nothing of the previous flood is left, so that the next one can begin. */
const GOOD_REPLIES = 25
const MAX_SETTLING_MS = 15_000
/** A flood must fit into one window of the limits, even if it is answered slowly. */
const ROOM_MS = { atLeast: 5000, perRequest: 2 }
const MINUTE_MS = 60_000

export async function runFlood(bed: FloodBed, contender: Contender, shape: Flood, size: Size): Promise<Run> {
  for (let left = MAX_TRIES - 1; ; left--) {
    try {
      return await tryFlood(bed, contender, shape, size)
    } catch (error) {
      if (!(error instanceof Disturbed) || left === 0) throw error
      console.error(`  once more: ${error.message}`)
    }
  }
}

const MAX_TRIES = 5

/** A run without meaningful figures, as can happen while other processes use the machine. */
class Disturbed extends Error {}

/** The processes of the gateway, and the clients that send to it. */
interface Side {
  /** Of each isolate; none for the gateway in Node. */
  urls: readonly string[]
  pids: readonly number[]
  flooding: { send<Answer>(command: FloodCommand): Promise<Answer> }
  innocent: { send<Answer>(command: InnocentCommand): Promise<Answer> }
}

function sideOf({ flooding, innocent }: FloodBed, contender: Contender, shape: Flood): Side {
  const { bare, inNode } = contender
  if (shape.kind === 'node') return { urls: [], pids: inNode.pids, flooding: inNode, innocent: inNode }
  const isBare = shape.kind === 'stream' && shape.bareIsolates !== undefined
  const flooded = isBare ? bare.slice(0, shape.bareIsolates) : [contender]
  const [urls, pids] = [flooded.map(({ url }) => url), flooded.map(({ workerd }) => workerd)]
  return { urls, pids, flooding, innocent }
}

async function tryFlood(bed: FloodBed, contender: Contender, shape: Flood, size: Size): Promise<Run> {
  const side = sideOf(bed, contender, shape)
  const { urls, pids } = side
  const send = <T>(command: FloodCommand) => side.flooding.send<T>(command)
  const sendToInnocent = <T>(command: InnocentCommand) => side.innocent.send<T>(command)
  const hasSockets = shape.kind !== 'node'

  // Cleans up after a disturbed try.
  await sendToInnocent({ do: 'stop' })
  const requests = await requestsOf(bed, shape, size)
  const { callers, perSecond } = hasSockets ? INNOCENT : INNOCENT_IN_NODE
  // Without names, so that the origin does not count them.
  const innocents = (await newCallers(bed, callers)).map(({ name: _, ...caller }) => caller)
  await send({ do: 'prepare', requests, count: size.requests })
  await sendToInnocent({ do: 'start', urls, path: '/innocent', callers: innocents, perSecond })
  await pause(BEFORE_MS)
  await mustSettle(side)
  await prepareCallers(side, shape, requests)
  await mustSettle(side)
  await roomInMinute(roomFor(size))
  const minute = Math.floor(Date.now() / MINUTE_MS)
  if (hasSockets) await send({ do: 'connect', urls, connections: size.connections })
  await pause(CONNECTED_MS)
  if (shape.before === 'spent') await sendOnce(side, { ...requests, path: '/spending' })
  await bed.origin.send<OriginCounts>({})

  const before = await totals(bed, pids)
  const floodingBefore = cpuSeconds(bed.flooding.pid)
  const answer = await send<FloodAnswer>(
    shape.kind === 'burst' ? { do: 'burst' } : { do: 'stream', perSecond: size.perSecond! },
  )
  const after = await totals(bed, pids)
  const floodingSeconds = cpuSeconds(bed.flooding.pid) - floodingBefore
  const isOneMinute = Math.floor(Date.now() / MINUTE_MS) === minute
  await pause(AFTER_MS)
  await settle(side)
  const samples = await sendToInnocent<Sample[]>({ do: 'stop' })
  const counts = await bed.origin.send<OriginCounts>({})
  if (!isOneMinute) throw new Disturbed('a new window of the limits began during the flood')

  const { startedAt, endedAt, replies, notSent } = answer
  if (endedAt === startedAt) throw new Disturbed('no request of the flood was answered')
  const during = samples.filter(({ sentAt, tookMs }) => sentAt <= endedAt && sentAt + tookMs >= startedAt)
  const trips = during.filter(({ reply }) => storeAnswered(reply)).length
  const used = (key: keyof typeof after) => after[key] - before[key]
  return {
    ...{ size, callers: shape.callers, replies, notSent, tookMs: endedAt - startedAt },
    ...againstLimits(shape, size, requests, counts),
    ...(isGuessing(shape) && { guesses: guessesOf(answer) }),
    innocent: {
      before: samples.filter(({ sentAt, tookMs }) => sentAt + tookMs < startedAt).slice(-GOOD_REPLIES * 2),
      during,
    },
    degradedAfterMs: Math.max(
      0,
      ...samples.filter(({ reply }) => reply !== '200').map(({ sentAt }) => sentAt - endedAt),
    ),
    httpRequests: used('httpRequests'),
    ownHttpRequests: Math.max(0, used('httpRequests') - trips),
    scriptCalls: used('scriptCalls') - trips,
    ...(shape.kind === 'stream' && {
      laterScriptCallsPerSecond: await laterCalls(bed, side, requests, size),
    }),
    ...(answer.seconds && { seconds: answer.seconds }),
    ...(answer.shortestPauseMs !== undefined && { shortestPauseMs: answer.shortestPauseMs }),
    redisCpuMs: used('cpuMicroseconds') / 1e3,
    scriptMs: used('scriptMicroseconds') / 1e3,
    gatewayCpuMs: used('gatewaySeconds') * 1e3,
    ...(hasSockets && { floodingCpuMs: floodingSeconds * 1e3 }),
  }
}

/** Continues the stream with the same callers, all of which have been refused. @returns EVALSHA calls per second */
async function laterCalls(
  bed: FloodBed,
  { flooding, urls, pids }: Side,
  requests: FloodRequests,
  { perSecond, connections }: Size,
): Promise<number> {
  const send = <T>(command: FloodCommand) => flooding.send<T>(command)
  await send({ do: 'prepare', requests, count: LATER.seconds * perSecond! })
  await send({ do: 'connect', urls, connections })
  await pause(CONNECTED_MS)
  const end = send<FloodAnswer>({ do: 'stream', perSecond: perSecond! })
  await pause(LATER.afterMs)
  const [before, startedAt] = [await totals(bed, pids), wallClock()]
  await end
  const [after, endedAt] = [await totals(bed, pids), wallClock()]
  return (1e3 * (after.scriptCalls - before.scriptCalls)) / (endedAt - startedAt)
}

function guessesOf({ replies, unknownKeys }: FloodAnswer): NonNullable<Run['guesses']> {
  const tried = replies['401'] ?? 0
  const aboveLimit = (unknownKeys ?? [tried]).map(count => Math.max(0, count - LIMITS.guesses))
  return { tried, aboveLimit: aboveLimit.reduce((sum, count) => sum + count, 0) }
}

/** Whether the store looks up the keys of the flood. */
const isGuessing = ({ sends }: Shape) => sends === 'api-key' || sends === 'opaque-key'

/** Whether the store has answered. For other requests, it is unknown whether they reached the store. */
const storeAnswered = (reply: Reply) => /^\d+$/.test(reply)

async function requestsOf(bed: FloodBed, shape: Shape, { requests }: Size): Promise<FloodRequests> {
  const { path, sends, hasManyAddresses } = shape
  const addresses = hasManyAddresses && newIdentities(requests).map(({ address }) => address)
  return {
    path,
    callers: sends === 'own keys' ? await newCallers(bed, shape.callers) : strangers(shape.callers),
    ...(sends !== 'own keys' && sends !== 'no key' && { guesses: sends }),
    ...(addresses && { addresses }),
  }
}

const strangers = (count: number): Caller[] =>
  newIdentities(count).map(({ address, consumer }) => ({ name: consumer, address }))

async function newCallers({ rest }: FloodBed, count: number): Promise<Caller[]> {
  const store = createAdminStore(rest)
  const callers: Caller[] = newIdentities(count).map(({ consumer, address }) => ({ name: consumer, address }))
  await runConcurrently(16, count, async i => {
    callers[i]!.apiKey = (await createKey(store, { consumer: callers[i]!.name! })).key
  })
  return callers
}

/** Lets the isolate verify the keys before the flood, without spending the limits of the flood. */
async function prepareCallers(side: Side, shape: Shape, requests: FloodRequests) {
  if (shape.before !== undefined) await sendOnce(side, { ...requests, path: '/innocent' }, true)
}

/** Sends one request of each caller, to one isolate or to each. @throws Disturbed unless the store admits all of them */
async function sendOnce({ flooding, urls }: Side, { path, callers }: FloodRequests, toAll = false) {
  const requests = { path, callers }
  const command: FloodCommand = { do: 'send', urls, requests, count: callers.length, toAll }
  const replies = await flooding.send<Record<Reply, number>>(command)
  if (replies['200'] !== callers.length) {
    throw new Disturbed(`before the flood, ${path} was answered ${JSON.stringify(replies)}`)
  }
}

/** Waits until the store serves the innocent caller. @returns undefined; or its last replies, if they stay bad for too long */
async function settle({ innocent }: Side): Promise<Sample[] | undefined> {
  const until = performance.now() + MAX_SETTLING_MS
  for (;;) {
    const last = await innocent.send<Sample[]>({ do: 'look', count: GOOD_REPLIES })
    if (last.length === GOOD_REPLIES && last.every(({ reply }) => reply === '200')) return undefined
    if (performance.now() > until) return last
    await pause(100)
  }
}

async function mustSettle(side: Side): Promise<void> {
  const bad = await settle(side)
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

async function totals({ redis, storeSide }: FloodBed, pids: readonly number[]) {
  const [ofRedis, httpRequests] = await Promise.all([totalsOf(redis), storeSide.send<number>({})])
  return { ...ofRedis, httpRequests, gatewaySeconds: secondsOf(pids) }
}

function secondsOf(pids: readonly number[]): number {
  try {
    return pids.reduce((sum, pid) => sum + cpuSeconds(pid), 0)
  } catch (error) {
    throw new Error('The process of the gateway has exited during the flood.', { cause: error })
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
