/** An origin with WebSockets, and with a path for each way in which a reply can proceed and end. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import { type WebSocket, WebSocketServer } from 'ws'

export interface EndingOrigin {
  url: string
  /** WebSockets that were opened, by the header X-Case of their handshake. */
  sockets: Map<string, WebSocket>
  /** Requests that arrived, by their header X-Case. */
  received: Set<string>
  /** Replies that were cut off before they were complete, by the header X-Case of their request. */
  cut: Set<string>
  close(): Promise<void>
}

/** Observes requests in flight at the origin: from the arrival of a request until its last byte is written or its connection is closed. */
export interface OriginObserver {
  arrived(request: IncomingMessage): void
  /** The head of the reply is written, so the gateway can detect whether its client is still connected. */
  answered(request: IncomingMessage): void
  over(request: IncomingMessage): void
}

type Route = (response: ServerResponse, request: IncomingMessage) => void

export const LARGE_BYTES = 10_000_000
const ZIPPED = gzipSync('compressed by the origin '.repeat(100))
/** A type that is streamed as it is. With other types, the local simulation of Cloudflare's edge may wait to compress the body. */
const BYTES = { 'content-type': 'application/octet-stream' }

const ROUTES: Record<string, Route> = {
  '/whole': response => response.writeHead(200, { 'content-length': 2, 'x-kept': 'yes' }).end('{}'),
  '/chunked': response => {
    response.writeHead(200, { 'set-cookie': ['a=1', 'b=2'] })
    response.write('in ')
    response.end('parts')
  },
  '/large': response => response.writeHead(200, { 'content-length': LARGE_BYTES }).end(large()),
  '/large-chunked': response => {
    response.writeHead(200, BYTES)
    response.write(large())
    response.end()
  },
  '/huge': response => {
    response.writeHead(200, { ...BYTES, 'content-length': HUGE_BYTES })
    writeWithoutEnd(response)
  },
  '/huge-chunked': response => {
    response.writeHead(200, BYTES)
    writeWithoutEnd(response)
  },
  '/gzip': response =>
    response.writeHead(200, { 'content-encoding': 'gzip', 'content-length': ZIPPED.length }).end(ZIPPED),
  '/gzip-chunked': response => {
    response.writeHead(200, { 'content-encoding': 'gzip' })
    response.write(ZIPPED.subarray(0, 20))
    response.end(ZIPPED.subarray(20))
  },
  '/unknown-encoding': response =>
    response.writeHead(200, { 'content-encoding': 'x-own', 'content-length': 3 }).end('abc'),
  '/range': response =>
    response.writeHead(206, { 'content-range': 'bytes 0-3/100', 'content-length': 4 }).end('abcd'),
  '/204': response => response.writeHead(204).end(),
  '/304': response => response.writeHead(304, { etag: '"a"' }).end(),
  '/empty': response => response.writeHead(200, { 'content-length': 0 }).end(),
  '/empty-chunked': response => {
    response.writeHead(200)
    response.flushHeaders()
    response.end()
  },
  '/early-hints': response => {
    response.writeEarlyHints({ link: '</style.css>; rel=preload' })
    response.writeHead(200, { 'content-length': 2 }).end('ok')
  },
  '/slow': response => {
    setTimeout(() => response.writeHead(200, { 'content-length': 2 }).end('{}'), SLOW_MS)
  },
  '/stream': response => {
    response.writeHead(200, BYTES)
    let ticks = 0
    const timer = setInterval(() => {
      ticks += 1
      if (ticks < TICKS) response.write('tick')
      else response.end('end')
    }, SLOW_MS / TICKS)
    response.once('close', () => clearInterval(timer))
  },
  '/error': response => response.writeHead(500, { 'content-length': 5 }).end('broke'),
  '/no-reply': (_, request) => request.socket.destroy(),
  '/no-head': () => {},
  '/ticking': response => {
    response.writeHead(200, BYTES)
    const timer = setInterval(() => response.write('tick'), 10)
    response.once('close', () => clearInterval(timer))
  },
  '/silent': response => {
    response.writeHead(200, BYTES)
    response.write('start')
  },
  '/silent-fixed': response => {
    response.writeHead(200, { ...BYTES, 'content-length': 1000 })
    response.write('start')
  },
  '/reset': (response, request) => {
    response.writeHead(200, BYTES)
    response.write('start', () => setImmediate(() => request.socket.resetAndDestroy()))
  },
  '/reset-fixed': (response, request) => {
    response.writeHead(200, { ...BYTES, 'content-length': 1000 })
    response.write('start', () => setImmediate(() => request.socket.resetAndDestroy()))
  },
}

/** The duration of slow requests and of streams (ms). */
export const SLOW_MS = 60
const TICKS = 3

/** More than all buffers between origin and client can hold. */
const HUGE_BYTES = 10_000_000_000

function writeWithoutEnd(response: ServerResponse): void {
  const chunk = large()
  const write = () => {
    if (!response.destroyed) response.write(chunk)
  }
  response.on('drain', write)
  write()
}

const large = () => Buffer.alloc(LARGE_BYTES, 'x')

/** The last part of the path chooses the route. The parts before it are for the rules of the gateway. */
const lastPartOf = ({ url = '' }: IncomingMessage) => /\/[^/]*$/.exec(url)?.[0] ?? ''

export async function startEndingOrigin(observer?: OriginObserver): Promise<EndingOrigin> {
  const sockets = new Map<string, WebSocket>()
  const received = new Set<string>()
  const cut = new Set<string>()
  const server = createServer((request, response) => {
    const name = String(request.headers['x-case'])
    received.add(name)
    if (observer) observe(request, response, observer)
    response.once('close', () => {
      if (!response.writableFinished) cut.add(name)
    })
    const route = ROUTES[lastPartOf(request)]
    if (route) route(response, request)
    else response.writeHead(404).end()
  })
  const webSockets = new WebSocketServer({ server, handleProtocols: ([first]) => first ?? false })
  webSockets.on('connection', (socket, request) => {
    sockets.set(String(request.headers['x-case']), socket)
    observer?.arrived(request)
    observer?.answered(request)
    socket.once('close', () => observer?.over(request))
    socket.on('error', () => {})
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    sockets,
    received,
    cut,
    close: () =>
      new Promise(resolve => {
        for (const socket of webSockets.clients) socket.terminate()
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

function observe(request: IncomingMessage, response: ServerResponse, observer: OriginObserver): void {
  let isOver = false
  const over = () => {
    if (!isOver) observer.over(request)
    isOver = true
  }
  observer.arrived(request)
  const { writeHead } = response
  response.writeHead = ((...head: Parameters<typeof writeHead>) => {
    observer.answered(request)
    return writeHead.apply(response, head)
  }) as typeof writeHead
  response.once('finish', over)
  response.once('close', over)
}
