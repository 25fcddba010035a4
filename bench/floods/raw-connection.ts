/**
 * A keep-alive connection that needs little CPU, because clients, Worker and Redis share the machine. Requests are prepared texts. From a
 * reply, it reads only the status and the header `Sluice-Degraded`.
 */
import { connect, type Socket } from 'node:net'

/** The status, followed by the value of `Sluice-Degraded` if there is one, as in `429 overload`; or `no reply`. */
export type Reply = string

export const NO_REPLY: Reply = 'no reply'

export interface RawConnection {
  /** Requests without a reply. */
  waiting(): number
  isClosed(): boolean
  /** Writes several requests at once. `onReply` is called for each of them. */
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

/** The first reply in a text with one character for each byte. @returns undefined if the reply is not complete */
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
  // Searched from the end of the head, because a body can be empty. No body of the benchmark contains these bytes.
  const end = text.indexOf(LAST_CHUNK, bodyAt - 2)
  return end < 0 ? undefined : end + LAST_CHUNK.length
}
