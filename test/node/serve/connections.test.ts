import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { trackConnections } from '../../../src/node/serve/connections.ts'
import type { Isolate } from '../../../src/node/serve/isolate.ts'
import { startRedis, type TestRedis } from '../../support/redis.ts'
import { serveInProcess } from '../../support/serve.ts'

/** The requests that the origin has got, as `GET /path`. */
let seen: string[]
/** Lets the origin answer requests for `/slow`. */
let answerSlow: () => void
let slow: Promise<void>

const origin = createServer(socket => {
  socket.on('error', () => {})
  socket.on('data', async chunk => {
    const [line = ''] = String(chunk).split(' HTTP/1.1\r\n')
    if (!/^[A-Z]+ \//.test(line)) return
    seen.push(line)
    if (line.endsWith('/slow')) await slow
    const path = line.split(' ')[1]!
    // It refuses the body before it has read it, and resets the connection because of what it has not read.
    if (path === '/refused')
      socket.end('HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge')
    else if (path === '/ignored') {
      // It refuses the body, and neither reads it nor closes the connection.
      socket.pause()
      socket.write('HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge')
    } else socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${path.length}\r\n\r\n${path}`)
  })
})

let redis: TestRedis
let isolate: Isolate
beforeAll(async () => {
  redis = await startRedis()
  await once(origin.listen(0, '127.0.0.1'), 'listening')
  const { port } = origin.address() as AddressInfo
  isolate = await serveInProcess({ origin: `http://127.0.0.1:${port}` }, { REDIS_URL: redis.url })
})
afterAll(async () => {
  await isolate.stop(0, true)
  origin.close()
  await redis.close()
})
beforeEach(() => {
  seen = []
  ;({ promise: slow, resolve: answerSlow } = Promise.withResolvers<void>())
  vi.spyOn(console, 'error').mockImplementation(() => {})
})

const sockets: Socket[] = []
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy()
})

/** Sends bytes on a connection. `reply` has what has come back, and `closed` resolves when serve has closed it. */
function talk(bytes: string | Buffer) {
  const socket = connect(Number(new URL(isolate.url).port), '127.0.0.1')
  sockets.push(socket)
  const conversation = { socket, reply: '', closed: once(socket, 'close') }
  socket.on('data', chunk => {
    conversation.reply += chunk.toString('latin1')
  })
  socket.write(bytes)
  return conversation
}

const statusesIn = (reply: string) => [...reply.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status]) => status)
const LAST = 'GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'

describe('requests in one packet', () => {
  it('are sent to the origin one after the other', async () => {
    const conversation = talk(`GET /slow HTTP/1.1\r\nHost: a\r\n\r\n${LAST}`)
    await vi.waitFor(() => expect(seen).toEqual(['GET /slow']))
    answerSlow()
    await conversation.closed
    expect(seen).toEqual(['GET /slow', 'GET /last'])
    expect(conversation.reply).toMatch(/\/slow.*\/last$/s)
  })

  it.each([
    [
      'a Transfer-Encoding in HTTP/1.0',
      'POST / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      '501',
    ],
    [
      'another Transfer-Encoding than chunked',
      'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n',
      '501',
    ],
    ['two hosts', 'GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n', '400'],
    [
      'two hosts among many headers',
      `GET / HTTP/1.1\r\nHost: a\r\n${'a:\r\n'.repeat(100)}Host: b\r\n\r\n`,
      '400',
    ],
    ['no host', 'GET / HTTP/1.1\r\n\r\n', '400'],
    ['too many headers', `GET / HTTP/1.1\r\nHost: a\r\n${'a:\r\n'.repeat(1000)}\r\n`, '431'],
    [
      'too many headers before its length, and an Upgrade',
      `POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n${'a:\r\n'.repeat(1000)}Content-Length: 5\r\n\r\nhello`,
      '431',
    ],
  ])('are not executed behind one that is refused because of %s', async (_, refused, status) => {
    const conversation = talk(`${refused}DELETE /behind HTTP/1.1\r\nHost: a\r\n\r\n`)
    await conversation.closed
    expect([seen, statusesIn(conversation.reply)]).toEqual([[], [status]])
  })

  it.each([
    ['h2c', 'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n', '200'],
    ['a WebSocket', 'Connection: Upgrade\r\nUpgrade: websocket\r\n', '501'],
    ['TLS or a WebSocket', 'Connection: Upgrade\r\nUpgrade: TLS/1.0, WebSocket\r\n', '501'],
  ])('are answered behind one that asks for %s', async (_, head, status) => {
    const conversation = talk(`GET /first HTTP/1.1\r\nHost: a\r\n${head}\r\n${LAST}`)
    await conversation.closed
    expect(statusesIn(conversation.reply)).toEqual([status, '200'])
    expect(conversation.reply).toMatch(/\/last$/)
  })

  it('are answered in turn if the second one asks for another protocol and has a body', async () => {
    const second =
      'POST /second HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello'
    const conversation = talk(`GET /slow HTTP/1.1\r\nHost: a\r\n\r\n${second}${LAST}`)
    await vi.waitFor(() => expect(seen).toEqual(['GET /slow']))
    answerSlow()
    await conversation.closed
    expect(seen).toEqual(['GET /slow', 'POST /second', 'GET /last'])
    expect(statusesIn(conversation.reply)).toEqual(['200', '200', '200'])
  })
})

it('a client that sends many requests at once fills the memory with those of a packet only', async () => {
  const server = createHttpServer()
  const connections = trackConnections(server, 1)
  const count = 10_000
  let arrived = 0
  let begun = 0
  let most = 0
  const { promise: done, resolve } = Promise.withResolvers<void>()
  server.on('request', () => {
    arrived += 1
    most = Math.max(most, arrived - begun)
  })
  server.on(
    'request',
    connections.inTurn((_, reply) => {
      begun += 1
      reply.end()
      if (begun === count) resolve()
    }),
  )
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  socket.resume().write('GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(count))
  await done
  socket.destroy()
  server.close()
  expect([arrived, begun]).toEqual([count, count])
  // A packet has at most 64 kB.
  expect(most).toBeLessThan(5000)
})

it('a client that still sends its body gets the early answer of the origin, and then the connection is closed', async () => {
  const size = 5_000_000
  const conversation = talk(`POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: ${size}\r\n\r\n`)
  conversation.socket.on('error', () => {})
  const ended = once(conversation.socket, 'end')
  for (let sent = 0; sent < size; sent += 100_000) conversation.socket.write(Buffer.alloc(100_000))
  await ended
  expect(statusesIn(conversation.reply)).toEqual(['413'])
  expect(conversation.reply).toMatch(/connection: close.*large$/is)
  expect(seen).toEqual(['POST /refused'])
})

it('a client that sends its whole body before it reads gets the early answer of an origin that reads no more', async () => {
  const size = 20_000_000
  const conversation = talk(`POST /ignored HTTP/1.1\r\nHost: a\r\nContent-Length: ${size}\r\n\r\n`)
  conversation.socket.pause().on('error', () => {})
  await new Promise(resolve => conversation.socket.write(Buffer.alloc(size), resolve))
  conversation.socket.resume()
  await conversation.closed
  expect(statusesIn(conversation.reply)).toEqual(['413'])
})
