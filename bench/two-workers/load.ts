/** Sends requests to several Workers on schedule, without waiting for replies to earlier ones. */
import { NO_REPLY, openConnection, type RawConnection, type Reply } from '../floods/raw-connection.ts'
import { wallClock } from '../floods/wall-clock.ts'

export interface Sent {
  /** By wall-clock.ts. */
  sentAt: number
  worker: number
  tookMs: number
  reply: Reply
}

export interface Load {
  /** For each Worker, its URL, and the number of requests that it has got after `ms` milliseconds. */
  workers: readonly { url: string; arrived(ms: number): number }[]
  durationMs: number
  /** The text of a request to a Worker. */
  textOf(worker: number, request: number): string
}

/** Connections to a Worker, each with one request at a time. A request waits if no connection is free. */
const MAX_CONNECTIONS = 100
const TICK_MS = 2
const PATIENCE_MS = 20_000

/** @returns every request, in the order of the replies */
export async function run({ workers, durationMs, textOf }: Load): Promise<Sent[]> {
  const sent: Sent[] = []
  const clients = await Promise.all(workers.map(({ url }) => clientOf(url)))
  const begun = workers.map(() => 0)
  const startedAt = performance.now()
  for (let ms = 0; ms < durationMs; ms = performance.now() - startedAt) {
    for (const [worker, { arrived }] of workers.entries()) {
      const due = Math.ceil(arrived(Math.min(ms + TICK_MS, durationMs)))
      for (; begun[worker]! < due; begun[worker]! += 1) {
        const sentAt = wallClock()
        clients[worker]!.send(textOf(worker, begun[worker]!), reply =>
          sent.push({ sentAt, worker, tookMs: wallClock() - sentAt, reply }),
        )
      }
    }
    await pause(TICK_MS)
  }
  const all = begun.reduce((sum, count) => sum + count, 0)
  for (const until = performance.now() + PATIENCE_MS; sent.length < all; await pause(TICK_MS)) {
    if (performance.now() > until) throw new Error(`${all - sent.length} requests were not answered.`)
  }
  for (const client of clients) client.close()
  return sent
}

async function clientOf(url: string) {
  const connections: RawConnection[] = []
  for (let i = 0; i < MAX_CONNECTIONS; i++) connections.push(await openConnection(url))
  const idle = [...connections]
  const waiting: [text: string, onReply: (reply: Reply) => void][] = []
  const sendOn = (connection: RawConnection, text: string, onReply: (reply: Reply) => void) =>
    connection.send([text], reply => {
      onReply(reply)
      const next = waiting.shift()
      if (next) sendOn(connection, ...next)
      else if (reply !== NO_REPLY) idle.push(connection)
    })
  return {
    send(text: string, onReply: (reply: Reply) => void) {
      const connection = idle.pop()
      if (connection) sendOn(connection, text, onReply)
      else waiting.push([text, onReply])
    },
    close() {
      for (const connection of connections) connection.close()
    },
  }
}

export const pause = (ms: number) => new Promise<void>(resolve => setTimeout(resolve, ms))
