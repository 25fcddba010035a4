/** Sends the reply to a request that went to the origin. Its body goes from one connection to the other, as the origin has sent it. */
import type { OutgoingHttpHeaders, ServerResponse } from 'node:http'
import { type OriginBody, originBodyOf } from './origin-fetch.ts'

/** Resolves when the reply was handed over, or has failed. Never rejects. */
export async function sendReply(response: Response, outgoing: ServerResponse): Promise<void> {
  const originBody = originBodyOf(response)
  const body = originBody ? undefined : response.body
  if (outgoing.destroyed) {
    originBody?.destroy()
    await body?.cancel().catch(() => {})
    return
  }
  try {
    outgoing.writeHead(response.status, headersOf(response.headers))
  } catch (error) {
    originBody?.destroy()
    throw error
  }
  if (originBody) sendBody(originBody, outgoing)
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

function sendBody(body: OriginBody, outgoing: ServerResponse): void {
  // A small body has arrived together with its head.
  if (body.complete && !body.destroyed) {
    outgoing.end(body.read() ?? undefined)
    body.resume()
    return
  }
  if (body.readableLength === 0) outgoing.flushHeaders()
  body.once('close', () => {
    // The origin has broken off. The client sees that too: the end of the body is missing.
    if (!body.readableEnded) outgoing.destroy()
  })
  outgoing.once('close', () => {
    if (!body.readableEnded) body.destroy()
  })
  if (body.destroyed) outgoing.destroy()
  else body.pipe(outgoing)
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
