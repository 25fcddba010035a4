import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { afterEach, describe, expect, it, vi } from 'vitest'
import {
  type ConnectionSettings,
  ignoreFailedWrites,
  OriginConnections,
} from '../../../src/node/serve/origin-connections.ts'
import { connectToOrigin } from '../../../src/node/serve/origin-fetch.ts'

/** A request as it arrived at the origin. `connection` counts from 1. */
interface Arrived {
  connection: number
  method: string
  head: string
  body: string
}

type Answer = (socket: Socket, request: Arrived) => unknown

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const SURPLUS = 'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison'

const closing: (() => void)[] = []
afterEach(() => {
  for (const close of closing.splice(0)) close()
})

/** Not `response.text()`: only the body of these responses is that of the origin. */
const bodyOf = (response: Response) => new Response(response.body).text()

/** An origin that answers each request as the test says, and a client that serve would use for it. */
async function startOrigin(answer: Answer, settings: Partial<ConnectionSettings> = {}) {
  const arrived: Arrived[] = []
  let connections = 0
  const server: Server = createServer(socket => {
    const connection = ++connections
    let text = ''
    socket.on('error', () => {})
    socket.on('data', chunk => {
      text += chunk.toString('latin1')
      const end = text.indexOf('\r\n\r\n')
      if (end < 0) return
      const head = text.slice(0, end)
      const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0)
      const isWhole = text.length >= end + 4 + length
      if (!isWhole && !head.includes(' /early ')) return
      const request = { connection, method: head.split(' ')[0]!, head, body: text.slice(end + 4) }
      text = ''
      arrived.push(request)
      answer(socket, request)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const origin = connectToOrigin({ connectTimeoutMs: 10_000, reuse: 'kept', ...settings })
  closing.push(origin.close, () => server.close())
  const ask = async (path: string, init: RequestInit & { duplex?: 'half' } = {}) => {
    const request = new Request(`http://gateway.example${path}`, init)
    const headers = new Headers(init.headers)
    const { signal } = init
    return await origin.fetchOrigin(`http://127.0.0.1:${port}${path}`, request, {
      headers,
      ...(signal && { signal }),
    })
  }
  const textOf = async (path: string, init?: RequestInit) => bodyOf(await ask(path, init))
  return { arrived, ask, textOf, connections: () => connections }
}

describe('a response reaches only the one who asked', () => {
  it.each([
    ['a body after HEAD', 'HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n'],
    ['a body after 204', 'GET', 'HTTP/1.1 204 No Content\r\n\r\n'],
    ['a body after 205', 'GET', 'HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n'],
    ['a body after 304', 'GET', 'HTTP/1.1 304 Not Modified\r\n\r\n'],
  ])('%s that comes at any time', async (_, method, head) => {
    const { textOf, arrived } = await startOrigin((socket, { connection }) => {
      if (connection > 1) socket.write(OK)
      // The second request would have to wait for an answer on this connection.
      else if (arrived.length === 1) socket.write(head)
      else socket.write(SURPLUS)
    })
    await textOf('/first', { method })
    expect(await textOf('/second')).toBe('ok')
    expect(arrived.map(({ connection }) => connection)).toEqual([1, 2])
  })

  it.each([
    ['Content-Length', OK],
    ['the last chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n'],
  ])('what comes with the response behind %s', async (_, response) => {
    const { textOf, connections } = await startOrigin((socket, { connection }) =>
      socket.write(connection === 1 ? response + SURPLUS : OK),
    )
    expect([await textOf('/first'), await textOf('/second')]).toEqual(['ok', 'ok'])
    expect(connections()).toBe(2)
  })

  it('what comes while the connection is idle', async () => {
    let idle: Socket | undefined
    const { textOf, connections } = await startOrigin((socket, { connection }) => {
      socket.write(OK)
      if (connection === 1) idle = socket
    })
    await textOf('/first')
    idle!.write(SURPLUS)
    await once(idle!, 'close')
    expect(await textOf('/second')).toBe('ok')
    expect(connections()).toBe(2)
  })

  it('a response that begins before its request has ended is the last one of its connection', async () => {
    const { ask, textOf, connections } = await startOrigin((socket, { head }) => {
      if (!head.includes(' /early ')) return socket.write(OK)
      socket.write(OK.slice(0, -1))
      socket.once('data', () => socket.write('k'))
    })
    const { readable, writable } = new TransformStream<Uint8Array>()
    const writer = writable.getWriter()
    void writer.write(new TextEncoder().encode('half of '))
    const headers = { 'content-length': '16' }
    const early = await ask('/early', { method: 'POST', body: readable, duplex: 'half', headers })
    void writer.write(new TextEncoder().encode('the body'))
    void writer.close()
    expect(await bodyOf(early)).toBe('ok')
    expect(await textOf('/second')).toBe('ok')
    expect(connections()).toBe(2)
  })

  it("each connection serves one request with reuse: 'fresh'", async () => {
    const { textOf, arrived } = await startOrigin(socket => socket.write(OK), { reuse: 'fresh' })
    for (const path of ['/a', '/b', '/c']) await textOf(path)
    expect(arrived.map(({ connection }) => connection)).toEqual([1, 2, 3])
    expect(arrived[0]!.head).toContain('connection: close')
  })
})

describe('if the origin closes a kept connection instead of answering', () => {
  /** It answers the first request of each connection only. */
  const closesSecond = (how: 'end' | 'reset'): Answer => {
    const used = new Set<number>()
    return (socket, { connection }) => {
      if (!used.has(connection)) socket.write(OK)
      else if (how === 'end') socket.end()
      else socket.resetAndDestroy()
      used.add(connection)
    }
  }

  it.each(
    ['GET', 'OPTIONS', 'PUT', 'DELETE'].flatMap(method =>
      (['end', 'reset'] as const).map(how => [method, how] as const),
    ),
  )('%s is sent once more, on a new connection (%s)', async (method, how) => {
    const { textOf, arrived } = await startOrigin(closesSecond(how))
    await textOf('/first')
    expect(await textOf('/second', { method })).toBe('ok')
    expect(arrived.map(({ connection }) => connection)).toEqual([1, 1, 2])
  })

  it('with its body, if that has at most 64 kB', async () => {
    const { textOf, ask, arrived } = await startOrigin(closesSecond('end'))
    const put = (size: number) => ({
      method: 'PUT',
      body: 'x'.repeat(size),
      headers: { 'content-length': `${size}` },
    })
    await textOf('/first')
    expect(await textOf('/second', put(65_536))).toBe('ok')
    expect(arrived.slice(1).map(({ body }) => body.length)).toEqual([65_536, 65_536])
    await textOf('/third')
    await expect(ask('/fourth', put(65_537))).rejects.toThrow()
  })

  it.each(['POST', 'PATCH'])('%s is not, because it may have been handled', async method => {
    const { textOf, ask, arrived } = await startOrigin(closesSecond('end'))
    await textOf('/first')
    await expect(ask('/second', { method })).rejects.toThrow('other side closed')
    expect(arrived).toHaveLength(2)
  })

  it('it is sent twice at most, however many connections are kept', async () => {
    let count = 0
    const waiting: Socket[] = []
    const { textOf, ask, arrived } = await startOrigin((socket, { head }) => {
      if (head.includes('/poison')) socket.destroy()
      else if (waiting.push(socket) === count) for (const each of waiting) each.write(OK)
    })
    count = 50
    await Promise.all(Array.from({ length: count }, () => textOf('/warm')))
    await expect(ask('/poison')).rejects.toThrow()
    expect(arrived.filter(({ head }) => head.includes('/poison'))).toHaveLength(2)
  })

  it('a request on a new connection is not repeated', async () => {
    const { ask, arrived } = await startOrigin(socket => socket.destroy())
    await expect(ask('/')).rejects.toThrow('other side closed')
    expect(arrived).toHaveLength(1)
  })

  it('it is not repeated after a byte of a response', async () => {
    const { ask, textOf, arrived } = await startOrigin(socket => {
      if (arrived.length === 1) socket.write(OK)
      else socket.end('HTTP/1.1 2')
    })
    await textOf('/first')
    await expect(ask('/second')).rejects.toThrow()
    expect(arrived).toHaveLength(2)
  })

  it('it is not used again if the origin announces to close it soon', async () => {
    const { textOf, connections } = await startOrigin(socket =>
      socket.write('HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nok'),
    )
    await textOf('/first')
    await textOf('/second')
    expect(connections()).toBe(2)
  })
})

describe('a response that is read late', () => {
  const body = 'x'.repeat(65_536)

  it.each([
    ['the end of the connection', ''],
    ['Content-Length, with Connection: close', 'Connection: close\r\nContent-Length: 65536\r\n'],
    ['Content-Length', 'Content-Length: 65536\r\n'],
  ])('is whole if the origin has closed the connection meanwhile, after %s', async (_, head) => {
    const { promise: closed, resolve } = Promise.withResolvers<unknown>()
    const { ask } = await startOrigin(socket => {
      socket.once('close', resolve)
      socket.end(`HTTP/1.1 200 OK\r\n${head}\r\n${body}`)
    })
    const response = await ask('/')
    await closed
    expect(await bodyOf(response)).toBe(body)
  })

  it('is read from the connection no faster', async () => {
    let written = 0
    const { promise: full, resolve } = Promise.withResolvers<void>()
    const { ask } = await startOrigin(socket => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n')
      const more = () => {
        if (written > 1e8) return resolve()
        written += body.length
        socket.write(body, more)
        // All buffers are full if nothing more was written in this time.
        const before = written
        setTimeout(() => written === before && resolve(), 300)
      }
      more()
    })
    const response = await ask('/')
    await full
    expect(written).toBeLessThan(5e7)
    await response.body!.cancel()
  })
})

describe('the origin', () => {
  it('is heard if it answers and resets the connection before the request is written', async () => {
    const { promise: reset, resolve } = Promise.withResolvers<void>()
    const server = createServer(socket => {
      socket.on('error', () => {}).once('close', resolve)
      socket.once('data', () => socket.write('answer', () => socket.resetAndDestroy()))
    })
    closing.push(() => server.close())
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
    await once(socket, 'connect')
    ignoreFailedWrites(socket)
    socket.on('error', () => {})
    socket.write('first')
    await reset
    for (let i = 0; i < 3; i++) await new Promise<void>(done => socket.write('more', () => done()))
    expect(String((await once(socket, 'data'))[0])).toBe('answer')
  })

  it('can send interim responses, and no status above 599', async () => {
    const { ask, arrived } = await startOrigin(socket =>
      socket.write(
        arrived.length === 1
          ? `HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n${OK}`
          : 'HTTP/1.1 600 X\r\nContent-Length: 0\r\n\r\n',
      ),
    )
    expect((await ask('/')).status).toBe(200)
    await expect(ask('/')).rejects.toThrow('The origin has answered with the status 600.')
  })

  it('has sent a head that is too long, and the error says so', async () => {
    const { ask } = await startOrigin((socket, { head }) =>
      socket.write(`HTTP/1.1 200 OK\r\nA: ${'a'.repeat(Number(head.split(' ')[1]!.slice(1)))}\r\n\r\n`),
    )
    expect((await ask('/16000')).status).toBe(200)
    await expect(ask('/16384')).rejects.toThrow(
      "The status line and headers of the origin's response have more than 16 kB.",
    )
  })

  const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n'

  it.each([
    ['at once', CONTINUE + OK],
    [
      'twice, with a reason of its own and a header',
      `HTTP/1.1 100\r\n\r\nHTTP/1.1 100 Go on\r\nA: b\r\n\r\n${OK}`,
    ],
    ['before another interim response', `${CONTINUE}HTTP/1.1 103 Early Hints\r\n\r\n${OK}`],
    ['behind another interim response', `HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n${CONTINUE}${OK}`],
  ])('can send 100 Continue that it was not asked for, %s, in pieces of any size', async (_, answer) => {
    const sizes = [1, 7, 12, 30, answer.length]
    let size = 0
    const { textOf, connections } = await startOrigin(async socket => {
      socket.setNoDelay(true)
      for (let i = 0; i < answer.length; i += size) {
        socket.write(answer.slice(i, i + size))
        await new Promise(setImmediate)
      }
    })
    for (size of sizes) expect(await textOf('/')).toBe('ok')
    expect(connections()).toBe(1)
  })

  it('chooses no response by the end of 100 Continue that readers see in different places', async () => {
    const poison = 'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison'
    for (const head of [
      'HTTP/1.1 100 Continue\n\n',
      'HTTP/1.1 100 Continue\r\nA: b\n\n',
      'HTTP/1.1 100 a\rb\r\n\r\n',
      'HTTP/1.1 100 Continue\r\nHTTP/1.1 200 OK\r\n\r\n',
      'HTTP/1.1 101 Switching Protocols\r\n\r\n',
    ]) {
      const { ask } = await startOrigin(socket =>
        socket.write(`${head}HTTP/1.1 200 OK\r\nContent-Length: ${poison.length}\r\n\r\n${poison}`),
      )
      await expect(ask('/'), head).rejects.toThrow()
    }
  })

  it('does not wait for the rest of 100 Continue after the end of the connection', async () => {
    const { ask } = await startOrigin(socket => socket.end('HTTP/1.1 100 Conti'))
    await expect(ask('/')).rejects.toThrow()
  })

  it('is asked without headers that undici refuses', async () => {
    const { textOf, arrived } = await startOrigin(socket => socket.write(OK))
    expect(await textOf('/', { headers: { upgrade: 'websocket', expect: '100-continue' } })).toBe('ok')
    expect(arrived[0]!.head).not.toMatch(/upgrade|expect/i)
  })

  it('has no connection for a request that was aborted before', async () => {
    const { ask } = await startOrigin(socket => socket.write(OK))
    const take = vi.spyOn(OriginConnections.prototype, 'take')
    await expect(ask('/', { signal: AbortSignal.abort(new Error('gone')) })).rejects.toThrow('gone')
    expect(take).not.toHaveBeenCalled()
    take.mockRestore()
  })

  it('is left at once if the request is aborted while its connection is being opened', async () => {
    const opened = Promise.withResolvers<Socket>()
    // It never answers in TLS.
    const server = createServer(socket => opened.resolve(socket.on('error', () => {}).resume()))
    closing.push(() => server.close())
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const origin = connectToOrigin({ connectTimeoutMs: 600_000, reuse: 'kept' })
    closing.push(origin.close)
    const { port } = server.address() as AddressInfo
    const controller = new AbortController()
    const request = new Request('http://gateway.example/')
    const { signal } = controller
    const asked = origin.fetchOrigin(`https://127.0.0.1:${port}/`, request, {
      headers: new Headers(),
      signal,
    })
    const socket = await opened.promise
    controller.abort(new Error('gone'))
    await expect(asked).rejects.toThrow('gone')
    if (!socket.closed) await once(socket, 'close')
  })

  it('is not asked, or left, if the request is aborted', async () => {
    const reason = new Error('too late')
    const controller = new AbortController()
    let left = Promise.withResolvers<unknown>()
    const { ask, connections } = await startOrigin((socket, { head }) => {
      socket.once('close', left.resolve)
      if (head.includes('/body')) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf')
      else controller.abort(reason)
    })
    await expect(ask('/', { signal: AbortSignal.abort(reason) })).rejects.toThrow(reason)
    expect(connections()).toBe(0)
    await expect(ask('/head', { signal: controller.signal })).rejects.toThrow(reason)
    await left.promise
    left = Promise.withResolvers()
    const second = new AbortController()
    const response = await ask('/body', { signal: second.signal })
    second.abort(reason)
    await expect(bodyOf(response)).rejects.toThrow(reason)
    await left.promise
  })
})
