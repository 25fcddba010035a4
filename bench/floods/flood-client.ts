/** The process of the flooding callers. */
import { handleCommands, reportReady } from '../child.ts'
import { runConcurrently } from '../measure.ts'
import { NO_REPLY, openConnection, type RawConnection, type Reply } from './raw-connection.ts'
import { type FloodRequests, requestTexts } from './requests.ts'
import { wallClock } from './wall-clock.ts'

export type FloodCommand =
  /**
   * Before a flood: sends requests on a few connections, one after the other on each of them.
   * `toAll`: if there are several isolates, all of them get these requests; otherwise the first one.
   */
  | { do: 'send'; urls: readonly string[]; requests: FloodRequests; count: number; toAll: boolean }
  /** Prepares the requests of the next flood. */
  | { do: 'prepare'; requests: FloodRequests; count: number }
  /** Opens the connections. workerd closes connections on which nothing is sent for about 15 s. */
  | { do: 'connect'; urls: readonly string[]; connections: number }
  /** Sends all requests at once, each on its own connection if there are enough. */
  | { do: 'burst' }
  /** Sends all requests at a fixed rate, without waiting for replies. */
  | { do: 'stream'; perSecond: number }

export interface FloodAnswer {
  replies: Record<Reply, number>
  startedAt: number
  /** When the last reply arrived. */
  endedAt: number
  /** Requests that were not sent, because too many requests were unanswered already. */
  notSent: number
  /** Only after a burst: the number of 401 replies to each caller, in the order of the callers. */
  unknownKeys?: number[]
  /** Only if the stream runs in the process of the gateway (node-gateway.ts): the counts of each second since the stream began. */
  seconds?: { sent: number; scriptCalls: number }[]
  /** Of such a stream: the shortest time between two decisions about one caller that went to the store, after the first second. */
  shortestPauseMs?: number
}

/** If no reply arrives for this long, the flood ends. */
const MAX_SILENCE_MS = 20_000
const FEW_CONNECTIONS = 16

/** The most unanswered requests of a connection. A stream does not wait for replies, but the unanswered requests must be answered soon after its end. */
const MAX_WAITING = 16
/** Requests that are written together, which saves CPU. */
const IN_ONE_PIECE = 4
const TICK_MS = 2

let prepared: { texts: string[]; callers: number; connections: RawConnection[] } | undefined

handleCommands(async (command: FloodCommand) => {
  switch (command.do) {
    case 'send':
      return await send(command)
    case 'prepare':
      for (const connection of prepared?.connections ?? []) connection.close()
      prepared = {
        texts: requestTexts(command.requests, command.count),
        callers: command.requests.callers.length,
        connections: [],
      }
      return {}
    case 'connect':
      if (!prepared) throw new Error('No flood is prepared.')
      prepared.connections = await openAll(command.urls, command.connections)
      return {}
    case 'burst':
      return await flood(burst)
    case 'stream':
      return await flood((requests, tally) => stream(requests, tally, command.perSecond))
  }
})
reportReady({})

type Prepared = NonNullable<typeof prepared>

/** @param urls of the isolates, which get the same number of connections each */
async function openAll(urls: readonly string[], count: number): Promise<RawConnection[]> {
  const connections: RawConnection[] = []
  // Not all at the same moment, because the queue of a listening socket is limited.
  await runConcurrently(64, count, async i => {
    connections[i] = await openConnection(urls[i % urls.length]!)
  })
  return connections
}

async function send({ urls, requests, count, toAll }: Extract<FloodCommand, { do: 'send' }>) {
  const texts = requestTexts(requests, count)
  const replies: Record<Reply, number> = {}
  const targets = toAll ? urls : urls.slice(0, 1)
  for (const url of targets) {
    const connections = await openAll([url], Math.min(FEW_CONNECTIONS, count))
    let sent = 0
    await Promise.all(
      connections.map(async connection => {
        while (sent < count) {
          const text = texts[sent++]!
          const reply = await new Promise<Reply>(resolve => connection.send([text], resolve))
          replies[reply] = (replies[reply] ?? 0) + 1 / targets.length
        }
        connection.close()
      }),
    )
  }
  return replies
}

interface Tally {
  replies: Record<Reply, number>
  sent: number
  notSent: number
  answered: number
  lastAt: number
  unknownKeys?: number[]
  onReply(reply: Reply): void
}

async function flood(run: (requests: Prepared, tally: Tally) => Promise<void> | void): Promise<FloodAnswer> {
  if (!prepared) throw new Error('No flood is prepared.')
  const requests = prepared
  prepared = undefined
  const startedAt = wallClock()
  const tally: Tally = {
    ...{ replies: {}, sent: 0, notSent: 0, answered: 0, lastAt: startedAt },
    onReply(reply) {
      tally.answered += 1
      tally.lastAt = wallClock()
      tally.replies[reply] = (tally.replies[reply] ?? 0) + 1
    },
  }
  await run(requests, tally)
  while (tally.answered < tally.sent && wallClock() - tally.lastAt < MAX_SILENCE_MS) await pause(TICK_MS)
  const { replies, lastAt, sent, answered, notSent, unknownKeys } = tally
  const counted = { ...replies }
  if (sent > answered) counted[NO_REPLY] = (counted[NO_REPLY] ?? 0) + sent - answered
  for (const connection of requests.connections) connection.close()
  return { replies: counted, startedAt, endedAt: lastAt, notSent, ...(unknownKeys && { unknownKeys }) }
}

function burst({ texts, callers, connections }: Prepared, tally: Tally): void {
  const unknownKeys = Array.from({ length: callers }, () => 0)
  tally.sent = texts.length
  tally.unknownKeys = unknownKeys
  for (const [i, text] of texts.entries()) {
    connections[i % connections.length]!.send([text], reply => {
      if (reply === '401') unknownKeys[i % callers]! += 1
      tally.onReply(reply)
    })
  }
}

/** The elapsed time determines how many requests are due. So a process that was late catches up. */
async function stream({ texts, connections }: Prepared, tally: Tally, perSecond: number): Promise<void> {
  const startedAt = performance.now()
  let next = 0
  for (let begun = 0; begun < texts.length; ) {
    const due = Math.min(texts.length, Math.floor(((performance.now() - startedAt) * perSecond) / 1000))
    while (begun < due) {
      const piece = texts.slice(begun, Math.min(due, begun + IN_ONE_PIECE))
      begun += piece.length
      const free = freeFrom(connections, next)
      if (free === undefined) {
        tally.notSent += piece.length
        continue
      }
      next = free + 1
      tally.sent += piece.length
      connections[free]!.send(piece, tally.onReply)
    }
    await pause(TICK_MS)
  }
}

/** The index of the next connection with room, starting at `from`. */
function freeFrom(connections: readonly RawConnection[], from: number): number | undefined {
  for (let i = 0; i < connections.length; i++) {
    const at = (from + i) % connections.length
    const connection = connections[at]!
    if (!connection.isClosed() && connection.waiting() + IN_ONE_PIECE <= MAX_WAITING) return at
  }
  return undefined
}

const pause = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))
