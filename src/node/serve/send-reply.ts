/** Sends the reply to a request that went to the origin. Its body goes from one message to the other, as the origin has sent it. */
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import { messageOf } from './origin-fetch.ts'

/** Resolves when the reply was handed over, or has failed. Never rejects. */
export async function sendReply(response: Response, outgoing: ServerResponse): Promise<void> {
  const message = messageOf(response)
  const body = message ? undefined : response.body
  if (outgoing.destroyed) {
    message?.destroy()
    await body?.cancel().catch(() => {})
    return
  }
  try {
    outgoing.writeHead(response.status, headersOf(response.headers))
  } catch (error) {
    message?.destroy()
    throw error
  }
  if (message) sendMessage(message, outgoing)
  else if (body) await sendStream(body, outgoing)
  else outgoing.end()
}

function headersOf(headers: Headers): OutgoingHttpHeaders {
  const record: OutgoingHttpHeaders = {}
  for (const [name, value] of headers) if (name !== 'set-cookie') record[name] = value
  const cookies = headers.getSetCookie()
  if (cookies.length > 0) record['set-cookie'] = cookies
  return record
}

function sendMessage(message: IncomingMessage, outgoing: ServerResponse): void {
  // A small body has arrived together with its head.
  if (message.complete && !message.destroyed) {
    outgoing.end(message.read() ?? undefined)
    message.resume()
    return
  }
  if (message.readableLength === 0) outgoing.flushHeaders()
  message.once('close', () => {
    // The origin has broken off. The client sees that too: the end of the body is missing.
    if (!message.readableEnded) outgoing.destroy()
  })
  outgoing.once('close', () => {
    if (!message.readableEnded) message.destroy()
  })
  if (message.destroyed) outgoing.destroy()
  else message.pipe(outgoing)
}

async function sendStream(body: ReadableStream<Uint8Array>, outgoing: ServerResponse): Promise<void> {
  outgoing.flushHeaders()
  const reader = body.getReader()
  outgoing.once('close', () => void reader.cancel().catch(() => {}))
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (outgoing.destroyed) return
      if (done) break
      if (!outgoing.write(value)) await drained(outgoing)
    }
    outgoing.end()
  } catch {
    outgoing.destroy()
  }
}

/** Resolves when more can be written, or the connection has closed. */
function drained(outgoing: ServerResponse): Promise<void> {
  return new Promise(resolve => {
    const end = () => {
      outgoing.off('drain', end)
      outgoing.off('close', end)
      resolve()
    }
    outgoing.once('drain', end)
    outgoing.once('close', end)
  })
}
