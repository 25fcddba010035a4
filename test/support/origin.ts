/** An origin with a path for each behavior. */
import { createHash } from 'node:crypto'
import type { EventEmitter } from 'node:events'
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { gzipSync } from 'node:zlib'
import { serveInProcess, stopServingInProcess } from './in-process.ts'

export interface Received {
  method: string
  url: string
  headers: IncomingHttpHeaders
  bodyBytes: number
  bodySha256: string
  /** Time of arrival (ms), by performance.now(). */
  at: number
}

export interface TestOrigin {
  url: string
  /** Requests that arrived, oldest first. */
  received: Received[]
  /** Emits `request` with each request that arrives. */
  requests: EventEmitter
  /** The bytes of bodies that have arrived, also of requests that have not ended. */
  arrivedBytes(): number
  close(): Promise<void>
}

type Route = (request: IncomingMessage, response: ServerResponse) => void

export const GZIPPED = 'compressed by the origin '.repeat(100)

const ROUTES: Record<string, Route> = {
  '/redirect': (_, response) => response.writeHead(302, { location: 'https://elsewhere.example/' }).end(),
  '/gzip': (_, response) => {
    response
      .writeHead(200, { 'content-encoding': 'gzip', 'content-type': 'text/plain' })
      .end(gzipSync(GZIPPED))
  },
  '/empty': (_, response) => response.writeHead(204).end(),
  '/cookies': (_, response) =>
    response.writeHead(200, { 'set-cookie': ['a=1', 'b=2; Path=/'] }).end('cookies'),
  '/limited': (_, response) => {
    response
      .writeHead(200, { 'ratelimit-policy': '"origin";q=5;w=10', ratelimit: '"origin";r=4;t=9' })
      .end('limited')
  },
  '/x-limited': (_, response) => response.writeHead(200, { 'x-ratelimit-limit': '5' }).end('limited'),
  '/garbled': (_, response) => response.writeHead(200, { ratelimit: 'limit=5, remaining=4' }).end('garbled'),
  '/hop': (_, response) => {
    response
      .writeHead(200, { connection: 'x-internal', 'x-internal': 'secret', 'x-public': 'yes' })
      .end('hop')
  },
  '/cors': (_, response) => response.writeHead(200, { 'access-control-allow-origin': '*' }).end('cors'),
  '/error': (_, response) =>
    response.writeHead(500, { 'content-type': 'text/plain' }).end('the origin broke'),
  '/hang': () => {},
  '/drop': request => request.socket.destroy(),
  // These two answer, or send the second part, only after a request to /stream/go-on.
  '/stream': (_, response) => {
    response.writeHead(200, { 'content-type': 'text/plain' })
    response.write('first ')
    later.push(() => response.end('second'))
  },
  // It does not end before its client leaves.
  '/stream/endless': (_, response) => {
    response.writeHead(200, { 'content-type': 'text/plain' })
    response.write('first ')
  },
  '/held': (_, response) => void later.push(() => response.end('held')),
  '/stream/go-on': (_, response) => {
    for (const go of later.splice(0)) go()
    response.end('ok')
  },
}

const later: (() => void)[] = []

/** The headers of the reply to a path that has no behavior of its own. */
function headersFor(query: URLSearchParams): Record<string, string> {
  const utilization = query.get('utilization')
  const age = query.get('age')
  return {
    'content-type': 'application/json',
    ...(utilization !== null && { 'x-utilization': utilization }),
    ...(age !== null && { age }),
  }
}

const NO_BODY = createHash('sha256').digest('hex')

/** The headers that arrive if Node's `fetch` sends a request without a body to Node's server. */
function headersFromFetch(
  host: string,
  method: string,
  headers: Headers,
  cache: RequestInit['cache'],
): IncomingHttpHeaders {
  return {
    ...{ host, connection: method === 'HEAD' ? 'close' : 'keep-alive' },
    ...{ accept: '*/*', 'accept-language': '*', 'sec-fetch-mode': 'cors', 'user-agent': 'node' },
    ...(cache === 'no-store' && { pragma: 'no-cache', 'cache-control': 'no-cache' }),
    ...(['POST', 'PUT', 'PATCH'].includes(method) && { 'content-length': '0' }),
    'accept-encoding': 'gzip, deflate',
    ...Object.fromEntries(headers),
  }
}

export async function startOrigin(): Promise<TestOrigin> {
  const received: Received[] = []
  let arrivedBytes = 0
  const server = createServer(async (request, response) => {
    const hash = createHash('sha256')
    let bodyBytes = 0
    try {
      for await (const chunk of request as AsyncIterable<Buffer>) {
        bodyBytes += chunk.length
        arrivedBytes += chunk.length
        hash.update(chunk)
      }
    } catch {
      // The client has closed the connection in the middle of its body.
      return
    }
    const { method = '', url = '', headers } = request
    const bodySha256 = hash.digest('hex')
    const entry = { method, url, headers, bodyBytes, bodySha256, at: performance.now() }
    received.push(entry)
    const { pathname, searchParams } = new URL(`http://origin${url}`)
    const route = ROUTES[pathname]
    if (route) return route(request, response)
    response.writeHead(200, headersFor(searchParams)).end(JSON.stringify(entry))
  })
  // Longer than any test, so that no connection is closed at the moment at which a request arrives.
  server.keepAliveTimeout = 600_000
  // Completes the WebSocket handshake (RFC 6455, section 4.2.2), and sends nothing afterwards.
  const upgraded = new Set<Duplex>()
  server.on('upgrade', (request, socket) => {
    upgraded.add(socket)
    const nonce = `${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`
    const accept = createHash('sha1').update(nonce).digest('base64')
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
    )
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`
  const url = `http://${host}`

  serveInProcess(url, (path, { method = 'GET', headers: sent, body, cache }) => {
    const { pathname, searchParams } = new URL(`http://origin${path}`)
    const headers = new Headers(sent)
    // Tests that listen to requests get those of Node's server.
    const needsServer = server.listenerCount('request') > 1 || headers.has('upgrade') || pathname in ROUTES
    if (needsServer || body) return undefined
    const entry = {
      ...{ method, url: path, headers: headersFromFetch(host, method, headers, cache) },
      ...{ bodyBytes: 0, bodySha256: NO_BODY, at: performance.now() },
    }
    received.push(entry)
    const reply = new Response(method === 'HEAD' ? null : JSON.stringify(entry), {
      headers: { ...headersFor(searchParams), date: new Date().toUTCString() },
    })
    return Promise.resolve(reply)
  })

  return {
    url,
    received,
    requests: server,
    arrivedBytes: () => arrivedBytes,
    close: () =>
      new Promise(resolve => {
        stopServingInProcess(url)
        server.close(() => resolve())
        server.closeAllConnections()
        for (const socket of upgraded) socket.destroy()
      }),
  }
}
