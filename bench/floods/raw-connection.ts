/**
 * A keep-alive connection that costs little CPU, as clients, Worker and Redis share the machine: requests are ready-made texts, and of a
 * reply only the status and the mark of degraded decisions are read.
 */
import { connect, type Socket } from 'node:net'

/** The status and, where it is set, `Sluice-Degraded`, as in `429 overload`; or `no reply`. */
export type Reply = string

export const NO_REPLY: Reply = 'no reply'

export interface RawConnection {
  /** Requests without a reply. */
  waiting(): number
  isClosed(): boolean
  /** Sends several requests in one piece; `onReply` is called once for each. */
  send(requests: readonly string[], onReply: (reply: Reply) => void): void
  close(): void
}

export async function openConnection(url: string): Promise<RawConnection> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.once('error', reject)
  })
  return connectionOf(socket)
}

function connectionOf(socket: Socket): RawConnection {
  const waiting: ((reply: Reply) => void)[] = []
  let isClosed = false
  let text = ''
  socket.setNoDelay(true)
  socket.setEncoding('latin1')
  socket.on('error', () => {})
  socket.on('close', () => {
    isClosed = true
    for (const onReply of waiting.splice(0)) onReply(NO_REPLY)
  })
  socket.on('data', chunk => {
    text += chunk
    for (let read = readReply(text); read; read = readReply(text)) {
      text = text.slice(read.length)
      waiting.shift()?.(read.reply)
    }
  })
  return {
    waiting: () => waiting.length,
    isClosed: () => isClosed,
    send(requests, onReply) {
      if (isClosed) {
        for (const _ of requests) onReply(NO_REPLY)
        return
      }
      for (const _ of requests) waiting.push(onReply)
      socket.write(requests.join(''), 'latin1')
    },
    close: () => socket.destroy(),
  }
}

/** The first reply in a text of one character a byte; undefined while a part of it is missing. */
export function readReply(text: string): { reply: Reply; length: number } | undefined {
  const headEnd = text.indexOf('\r\n\r\n')
  if (headEnd < 0) return undefined
  const head = text.slice(0, headEnd)
  const length = replyLength(text, head)
  if (length === undefined || text.length < length) return undefined
  const mark = /\r\nsluice-degraded: ([^\r]+)/i.exec(head)?.[1]
  const status = head.slice(9, 12)
  return { reply: mark === undefined ? status : `${status} ${mark}`, length }
}

const LAST_CHUNK = '\r\n0\r\n\r\n'

function replyLength(text: string, head: string): number | undefined {
  const bodyAt = head.length + 4
  const contentLength = /\r\ncontent-length: (\d+)/i.exec(head)?.[1]
  if (contentLength !== undefined) return bodyAt + Number(contentLength)
  if (!/\r\ntransfer-encoding: chunked/i.test(head)) return bodyAt
  // From the end of the head on, as a body can be empty. No body here has the same bytes in it.
  const end = text.indexOf(LAST_CHUNK, bodyAt - 2)
  return end < 0 ? undefined : end + LAST_CHUNK.length
}
