/** An origin with a path for each way in which a reply goes on and ends, and with WebSockets. */
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

type Route = (response: ServerResponse, request: IncomingMessage) => void

export const LARGE_BYTES = 10_000_000
const ZIPPED = gzipSync('compressed by the origin '.repeat(100))
/** Streamed as it is: with another type, the local stand-in for the edge may wait to compress it. */
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

/** More than all buffers on the way hold. */
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

export async function startEndingOrigin(): Promise<EndingOrigin> {
  const sockets = new Map<string, WebSocket>()
  const received = new Set<string>()
  const cut = new Set<string>()
  const server = createServer((request, response) => {
    const name = String(request.headers['x-case'])
    received.add(name)
    response.once('close', () => {
      if (!response.writableFinished) cut.add(name)
    })
    const route = ROUTES[request.url ?? '']
    if (route) route(response, request)
    else response.writeHead(404).end()
  })
  const webSockets = new WebSocketServer({ server, handleProtocols: ([first]) => first ?? false })
  webSockets.on('connection', (socket, request) => {
    sockets.set(String(request.headers['x-case']), socket)
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
