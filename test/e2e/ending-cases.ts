/**
 * Each way in which a reply can end, through a gateway in workerd. Each ending is reported exactly once, with the right result.
 * The tests run on any gateway that can show the endings of a request by its header X-Case.
 */
import { request as httpRequest } from 'node:http'
import { connect, type Socket } from 'node:net'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import WebSocket from 'ws'
import type { Ending } from '../../src/limiter/engine-shape.ts'
import { type EndingOrigin, LARGE_BYTES, startEndingOrigin } from '../support/ending-origin.ts'
import { PATIENT_MS } from '../support/patience.ts'

export interface ObservedGateway {
  url: string
  /** The endings of one request, in the order in which they were reported. */
  endingsOf(name: string): Promise<readonly Ending[]>
  close(): Promise<void>
}

export function describeEndings(title: string, start: (originUrl: string) => Promise<ObservedGateway>): void {
  let origin: EndingOrigin
  let gateway: ObservedGateway
  let cases = 0
  const newCase = () => `case-${++cases}`

  beforeAll(async () => {
    origin = await startEndingOrigin()
    gateway = await start(origin.url)
  })
  afterAll(async () => {
    await gateway?.close()
    await origin?.close()
  })

  const get = (name: string, path: string, init: RequestInit = {}) =>
    fetch(gateway.url + path, { ...init, headers: { 'x-case': name, ...init.headers } })

  /** Waits for the ending of a request, lets another request run to its end, and expects no second ending of the first one. */
  async function expectEnding(name: string, ending: Ending): Promise<void> {
    await untilEnded(name)
    const other = newCase()
    expect(await (await get(other, '/whole')).text()).toBe('{}')
    await untilEnded(other)
    expect(await gateway.endingsOf(name)).toEqual([ending])
  }

  const untilEnded = (name: string) =>
    vi.waitUntil(async () => (await gateway.endingsOf(name)).length > 0, {
      timeout: PATIENT_MS,
      interval: 10,
    })

  /** Sends a request on a new socket, and waits until the reply has begun. */
  async function begin(name: string, path: string, headers?: string): Promise<Socket> {
    const socket = open(name, path, headers)
    await new Promise((resolve, reject) => socket.once('data', resolve).once('error', reject))
    // Bytes that are not read here stay in the gateway.
    socket.pause()
    return socket
  }

  function open(name: string, path: string, headers = ''): Socket {
    const { hostname, port } = new URL(gateway.url)
    const socket = connect(Number(port), hostname)
    socket.on('error', () => {})
    socket.write(`GET ${path} HTTP/1.1\r\nHost: a.test\r\nX-Case: ${name}\r\n${headers}\r\n`)
    return socket
  }

  describe(`${title}: a reply`, () => {
    it.each([
      ['with a length', '/whole', 2],
      ['without a length', '/chunked', 8],
      ['of 10 MB', '/large', LARGE_BYTES],
      ['of 10 MB without a length', '/large-chunked', LARGE_BYTES],
      ['of a range', '/range', 4],
      ['with an empty body', '/empty', 0],
      ['with an empty body and no length', '/empty-chunked', 0],
      ['with an error of the origin', '/error', 5],
    ])('%s is complete when its body has ended', async (_, path, bytes) => {
      const name = newCase()
      expect((await (await get(name, path)).arrayBuffer()).byteLength).toBe(bytes)
      await expectEnding(name, 'complete')
    })

    it.each([
      ['204', '/204', 'GET'],
      ['304', '/304', 'GET'],
      ['HEAD', '/whole', 'HEAD'],
      ['HEAD of a reply without a length', '/chunked', 'HEAD'],
    ])('without a body is complete: %s', async (_, path, method) => {
      const name = newCase()
      await (await get(name, path, { method })).arrayBuffer()
      await expectEnding(name, 'complete')
    })

    it('of the gateway itself is complete', async () => {
      const name = newCase()
      const response = await get(name, '/no-reply')
      expect([response.status, (await response.json()) as object]).toMatchObject([502, { status: 502 }])
      await expectEnding(name, 'complete')
    })

    it('is over after its last byte, and not before', async () => {
      const name = newCase()
      const socket = await begin(name, '/silent')
      const other = newCase()
      await (await get(other, '/whole')).text()
      await untilEnded(other)
      expect(await gateway.endingsOf(name)).toEqual([])
      socket.resetAndDestroy()
      await expectEnding(name, 'cancelled')
    })

    it.each([
      ['while the origin sends', '/ticking'],
      ['in the middle of a large body', '/huge'],
      ['in the middle of a large body without a length', '/huge-chunked'],
    ])('is cancelled when its client leaves %s', async (_, path) => {
      const name = newCase()
      const socket = await begin(name, path)
      socket.destroy()
      await expectEnding(name, 'cancelled')
    })

    it.each([
      ['', '/silent', ''],
      [' in the middle of a body of known length', '/silent-fixed', ''],
      [", with onClientGone: 'abort'", '/silent', 'X-Abort: yes\r\n'],
    ])(
      'is cancelled when its client leaves while the origin is silent%s, and the connection to the origin is closed',
      async (_, path, headers) => {
        const name = newCase()
        const socket = await begin(name, path, headers)
        socket.resetAndDestroy()
        await expectEnding(name, 'cancelled')
        await vi.waitUntil(() => origin.cut.has(name), PATIENT_MS)
      },
    )

    it.each([
      ['', '/reset'],
      [' in the middle of a body of known length', '/reset-fixed'],
    ])('has failed if the origin resets it%s, and is cut off for the client', async (_, path) => {
      const name = newCase()
      await expect(get(name, path).then(response => response.arrayBuffer())).rejects.toThrow()
      await expectEnding(name, 'failed')
    })

    it.each([
      ['/whole', 'complete'],
      ['/204', 'complete'],
    ] as const)(
      'is still sent if annotating it throws an exception, and ends once: %s',
      async (path, ending) => {
        const name = newCase()
        await (await get(name, path, { headers: { 'x-throw': 'yes' } })).arrayBuffer()
        await expectEnding(name, ending)
      },
    )
  })

  describe(`${title}: a WebSocket`, () => {
    const PROTOCOL = 'chat.v2'

    async function openWebSocket(name: string, headers: Record<string, string> = {}): Promise<WebSocket> {
      const client = new WebSocket(`${gateway.url.replace('http', 'ws')}/socket`, [PROTOCOL, 'chat.v1'], {
        headers: { 'x-case': name, ...headers },
      })
      await new Promise((resolve, reject) => client.once('open', resolve).once('error', reject))
      client.on('error', () => {})
      return client
    }

    const closed = (socket: WebSocket) =>
      new Promise<[code: number, reason: string]>(resolve =>
        socket.once('close', (code, reason) => resolve([code, String(reason)])),
      )

    it('forwards texts, bytes and the protocol that the origin chose', async () => {
      const name = newCase()
      const client = await openWebSocket(name)
      expect(client.protocol).toBe(PROTOCOL)
      const received: unknown[] = []
      client.on('message', (data, isBinary) => received.push(isBinary ? data : String(data)))
      const sent = ['text', '', 'ünïcödé'.repeat(10_000), Buffer.from([0, 1, 255]), Buffer.alloc(0)]
      for (const message of sent) client.send(message)
      await vi.waitUntil(() => received.length === sent.length, PATIENT_MS)
      expect(received).toEqual(sent)
      expect(await gateway.endingsOf(name)).toEqual([])
      client.close()
      await expectEnding(name, 'complete')
    })

    it.each<[string, [code?: number, reason?: string], [code: number, reason: string]]>([
      ['with a code and a reason', [4001, 'enough'], [4001, 'enough']],
      ['with a code', [1000], [1000, '']],
      ['without a code', [], [1005, '']],
    ])('that its client closes %s is closed alike at the origin, and complete', async (_, close, code) => {
      const name = newCase()
      const client = await openWebSocket(name)
      const both = Promise.all([closed(client), closed(origin.sockets.get(name)!)])
      client.close(...close)
      expect(await both).toEqual([code, code])
      await expectEnding(name, 'complete')
    })

    it.each<[string, [code?: number, reason?: string], [code: number, reason: string]]>([
      ['with a code and a reason', [4002, 'done'], [4002, 'done']],
      ['with a code', [1012], [1012, '']],
      ['without a code', [], [1005, '']],
    ])('that the origin closes %s is closed alike at its client, and complete', async (_, close, code) => {
      const name = newCase()
      const client = await openWebSocket(name)
      const both = Promise.all([closed(client), closed(origin.sockets.get(name)!)])
      origin.sockets.get(name)!.close(...close)
      expect(await both).toEqual([code, code])
      await expectEnding(name, 'complete')
    })

    it('that its client closes is complete when the origin has closed it too, and not before', async () => {
      const name = newCase()
      const client = await openWebSocket(name)
      const atOrigin = origin.sockets.get(name)!
      const both = Promise.all([closed(client), closed(atOrigin)])
      atOrigin.pause()
      client.close(4001)
      const other = newCase()
      await (await get(other, '/whole')).text()
      await untilEnded(other)
      expect(await gateway.endingsOf(name)).toEqual([])
      expect(client.readyState).toBe(WebSocket.CLOSING)
      atOrigin.resume()
      expect(await both).toEqual([
        [4001, ''],
        [4001, ''],
      ])
      await expectEnding(name, 'complete')
    })

    it.each([1004, 1015, 1016, 2999, 999, 0, 5000, 65535])(
      'whose client sends the close code %d is closed on both sides',
      async code => {
        const name = newCase()
        const client = await openWebSocket(name)
        const atOrigin = origin.sockets.get(name)!
        const both = Promise.all([closed(client), closed(atOrigin)])
        sendCloseFrame(client, code)
        const [, [received]] = await both
        expect([1002, 1006, 1011, code]).toContain(received)
        await vi.waitUntil(() => atOrigin.readyState === WebSocket.CLOSED, PATIENT_MS)
        await untilEnded(name)
        expect(await gateway.endingsOf(name)).toHaveLength(1)
      },
    )

    it.each([1004, 1015, 999, 65535])(
      'whose origin sends the close code %d is closed on both sides',
      async code => {
        const name = newCase()
        const client = await openWebSocket(name)
        const both = Promise.all([closed(client), closed(origin.sockets.get(name)!)])
        sendCloseFrame(origin.sockets.get(name)!, code)
        await both
        await untilEnded(name)
        expect(await gateway.endingsOf(name)).toHaveLength(1)
      },
    )

    it.each<[string, Record<string, string>]>([
      ['', {}],
      [", with onClientGone: 'abort'", { 'x-abort': 'yes' }],
    ])('whose client vanishes is cancelled, and closed at the origin%s', async (_, headers) => {
      const name = newCase()
      const client = await openWebSocket(name, headers)
      const atOrigin = closed(origin.sockets.get(name)!)
      client.terminate()
      expect(await atOrigin).toEqual([1001, ''])
      await expectEnding(name, 'cancelled')
    })

    it('whose origin vanishes has failed, and is closed at its client', async () => {
      const name = newCase()
      const client = await openWebSocket(name)
      const atClient = closed(client)
      origin.sockets.get(name)!.terminate()
      expect(await atClient).toEqual([1011, ''])
      await expectEnding(name, 'failed')
    })
  })

  describe(`${title}: a request whose client leaves before the reply`, () => {
    it('ends once if the origin does not answer in time', async () => {
      const name = newCase()
      const socket = open(name, '/no-head')
      await vi.waitUntil(() => origin.received.has(name), { timeout: PATIENT_MS, interval: 10 })
      socket.resetAndDestroy()
      await expectEnding(name, 'cancelled')
    })

    it("ends when its client leaves, and is cut at the origin, with onClientGone: 'abort'", async () => {
      const name = newCase()
      const socket = open(name, '/no-head', 'X-Abort: yes\r\n')
      await vi.waitUntil(() => origin.received.has(name), { timeout: PATIENT_MS, interval: 10 })
      expect(await gateway.endingsOf(name)).toEqual([])
      socket.resetAndDestroy()
      await expectEnding(name, 'cancelled')
      await vi.waitUntil(() => origin.cut.has(name), { timeout: PATIENT_MS, interval: 10 })
    })
  })
}

/** Everything that a client receives of a reply, except its date and request ID. */
export function wholeReply(url: string, method: string, headers: Record<string, string>) {
  return new Promise<{ status: number; headers: string[]; body: string }>((resolve, reject) => {
    httpRequest(url, { method, headers, agent: false }, response => {
      const chunks: Buffer[] = []
      response.on('data', chunk => chunks.push(chunk))
      response.on('error', reject)
      response.on('end', () =>
        resolve({
          status: response.statusCode!,
          headers: response.rawHeaders.filter(
            (_, i, all) => !/^(date|x-request-id)$/i.test(all[i - (i % 2)]!),
          ),
          body: Buffer.concat(chunks).toString('base64'),
        }),
      )
    })
      .on('error', reject)
      .end()
  })
}

/** Sends a close frame with a code that the library refuses to send (RFC 6455, section 5.5.1). */
function sendCloseFrame(socket: WebSocket, code: number): void {
  const { _socket: raw, _isServer: isServer } = socket as unknown as { _socket: Socket; _isServer: boolean }
  const payload = Buffer.alloc(2)
  payload.writeUInt16BE(code)
  // A client masks its frames; with a mask of zeros, the bytes stay as they are.
  raw.write(isServer ? Buffer.from([0x88, 2, ...payload]) : Buffer.from([0x88, 0x82, 0, 0, 0, 0, ...payload]))
}
