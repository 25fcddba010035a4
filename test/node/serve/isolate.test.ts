import { createHash } from 'node:crypto'
import { once } from 'node:events'
import {
  Agent,
  get,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  request,
  type ServerOptions,
} from 'node:http'
import { type AddressInfo, connect, createServer as createTcpServer } from 'node:net'
import { gunzipSync } from 'node:zlib'
import { sha256 as portableSha256 } from '@noble/hashes/sha2.js'
import { bytesToHex } from '@noble/hashes/utils.js'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import type { ConfigInput } from '../../../src/config/check/schema.ts'
import { jwt } from '../../../src/credentials/jwt.ts'
import { connectRedisStore } from '../../../src/node/redis-store/redis-store.ts'
import type { Isolate } from '../../../src/node/serve/isolate.ts'
import { adminStoreOn } from '../../../src/ops/admin-store.ts'
import { ON_CLUSTER } from '../../../src/ops/on-cluster.ts'
import { createToken } from '../../../src/ops/tokens.ts'
import { gatewayRuleSet, limitRuleSet } from '../../../src/script/compiled.ts'
import { sha256 } from '../../../src/sha256.ts'
import { statsKey } from '../../../src/store/keys.ts'
import { GZIPPED, startOrigin, type TestOrigin } from '../../support/origin.ts'
import { PATIENT } from '../../support/patience.ts'
import { startRedis, type TestRedis } from '../../support/redis.ts'
import { ANY_CALLER, type SendOptions, send, serveInProcess } from '../../support/serve.ts'

let origin: TestOrigin
let redis: TestRedis
beforeAll(async () => {
  ;[origin, redis] = await Promise.all([startOrigin(), startRedis()])
})
afterAll(async () => {
  await origin.close()
  await redis.close()
})
beforeEach(() => {
  origin.received.length = 0
  // Of origins and clients that break off.
  vi.spyOn(console, 'error').mockImplementation(() => {})
})

const running: Isolate[] = []
afterEach(async () => {
  await Promise.all(running.splice(0).map(isolate => isolate.stop(0, true)))
})

async function serve(config: Partial<ConfigInput> = {}, serverOptions: ServerOptions = {}): Promise<Isolate> {
  const isolate = await serveInProcess(
    { origin: origin.url, ...config },
    { REDIS_URL: redis.url },
    { serverOptions },
  )
  running.push(isolate)
  return isolate
}

const lastReceived = () => origin.received.at(-1)!

describe('serve passes on', () => {
  let url: string
  const to = (path: string, options?: SendOptions) => send(url + path, options)
  beforeEach(async () => {
    url = (await serve()).url
  })

  it('a request and its reply, with the headers of the limits', async () => {
    const { status, headers, body } = await to('/orders?a=%20b', { headers: { 'x-mine': 'yes' } })
    expect(status).toBe(200)
    expect(JSON.parse(String(body))).toMatchObject({ method: 'GET', url: '/orders?a=%20b' })
    expect(headers['ratelimit-policy']).toBe('"address-minute";q=1000;w=60')
    const { host, 'x-mine': mine, connection, expect: expectation } = lastReceived().headers
    expect([host, mine, connection, expectation]).toEqual([
      new URL(origin.url).host,
      'yes',
      'keep-alive',
      undefined,
    ])
  })

  it.each([
    ['POST', { 'content-length': 100_000 }],
    ['PUT', { 'transfer-encoding': 'chunked' }],
    // Seldom, but some APIs of databases want it.
    ['GET', { 'content-length': 100_000 }],
  ])('the body of %s with %o', async (method, headers: OutgoingHttpHeaders) => {
    const body = Buffer.alloc(100_000, 'sluice')
    expect((await to('/upload', { method, headers, body })).status).toBe(200)
    const { bodySha256, bodyBytes, headers: received } = lastReceived()
    expect([bodyBytes, bodySha256]).toEqual([100_000, createHash('sha256').update(body).digest('hex')])
    // The length of a body in chunks is known if all of it has arrived before it is sent.
    if (headers['content-length']) expect(received['content-length']).toBe('100000')
    else expect([undefined, '100000']).toContain(received['content-length'])
  })

  it.each(['POST', 'PUT', 'PATCH'])('%s without a body, and without chunks', async method => {
    await to('/orders', { method, headers: { 'content-length': 0 } })
    const { 'content-length': length, 'transfer-encoding': coding } = lastReceived().headers
    expect([length, coding]).toEqual(['0', undefined])
  })

  it('a compressed body as the origin has sent it, byte for byte', async () => {
    const [through, direct] = [await to('/gzip'), await send(`${origin.url}/gzip`)]
    expect(through.headers['content-encoding']).toBe('gzip')
    expect(through.body).toEqual(direct.body)
    expect(String(gunzipSync(through.body))).toBe(GZIPPED)
  })

  it('statuses without a body, the reply to HEAD, cookies and redirections', async () => {
    expect(await to('/empty')).toMatchObject({ status: 204, body: Buffer.alloc(0) })
    const head = await to('/orders', { method: 'HEAD' })
    expect([head.status, head.body.length]).toEqual([200, 0])
    expect((await to('/cookies')).headers['set-cookie']).toEqual(['a=1', 'b=2; Path=/'])
    const redirect = await to('/redirect')
    expect([redirect.status, redirect.headers.location]).toEqual([302, 'https://elsewhere.example/'])
    expect(redirect.headers['content-type']).toBeUndefined()
  })

  it('no headers of a single connection', async () => {
    const { headers } = await to('/hop')
    expect([headers['x-internal'], headers['x-public']]).toEqual([undefined, 'yes'])
  })

  it('a body while it is sent', async () => {
    const [reply] = (await once(get(`${url}/stream`), 'response')) as [IncomingMessage]
    expect(String((await once(reply, 'data'))[0])).toBe('first ')
    await send(`${origin.url}/stream/go-on`)
    expect(String((await once(reply, 'data'))[0])).toBe('second')
  })

  it('that the origin has broken off', async () => {
    const reply = await to('/drop')
    expect([reply.status, JSON.parse(String(reply.body)).title]).toEqual([502, 'Bad Gateway'])
  })

  it('requests on connections that it keeps', async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const statuses = []
    for (const path of ['/a', '/empty', '/gzip', '/b']) statuses.push((await to(path, { agent })).status)
    expect(statuses).toEqual([200, 204, 200, 200])
    agent.destroy()
  })
})

describe('the API reads a body', () => {
  const LIMITS = {
    sms: [{ name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 100, period: '1d' }],
  } satisfies ConfigInput['limits']
  let port: number
  let head: string
  beforeAll(async () => {
    const direct = await connectRedisStore({ url: redis.url })
    const admin = adminStoreOn(
      direct.admin,
      {},
      { ofGateway: gatewayRuleSet, ofLimit: limitRuleSet },
      ON_CLUSTER,
    )
    const { token } = await createToken(admin, { name: 'test', scopes: ['limits:use'] })
    await direct.close()
    head = [
      'POST /_sluice/v1/limits/sms HTTP/1.1',
      'Host: a',
      `Authorization: Bearer ${token}`,
      'Content-Type: application/json',
      'Connection: close\r\n',
    ].join('\r\n')
  })
  beforeEach(async () => {
    port = Number(new URL((await serve({ api: {}, limits: LIMITS })).url).port)
  })

  /** @param parts sent one after the other @returns the last reply */
  async function talk(...parts: string[]): Promise<string> {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true })
    let reply = ''
    const ended = once(
      socket.on('data', chunk => (reply += chunk)),
      'close',
    )
    for (const part of parts) {
      await new Promise(resolve => socket.write(part, resolve))
      await new Promise(resolve => setImmediate(resolve))
    }
    await ended
    return reply
  }
  const BODY = '{"identity":{"account":"42"}}'
  const ADMITTED = /^HTTP\/1.1 200 OK\r\n.*"allowed":true/s

  it.each([
    ['that comes with its head', [`Content-Length: 29\r\n\r\n${BODY}`]],
    ['that comes after its head', ['Content-Length: 29\r\n\r\n', BODY]],
    ['in pieces', ['Content-Length: 29\r\n\r\n', BODY.slice(0, 9), BODY.slice(9, 20), BODY.slice(20)]],
    ['in chunks', ['Transfer-Encoding: chunked\r\n\r\n', `1d\r\n${BODY}\r\n`, '0\r\n\r\n']],
  ])('%s', async (_, [first, ...rest]) => {
    expect(await talk(head + first, ...rest)).toMatch(ADMITTED)
  })

  it('after 100 Continue', async () => {
    const reply = await talk(`${head}Expect: 100-continue\r\nContent-Length: 29\r\n\r\n`, BODY)
    expect(reply.split('HTTP/1.1 200')[0]).toBe('HTTP/1.1 100 Continue\r\n\r\n')
    expect(reply.slice(reply.indexOf('HTTP/1.1 200'))).toMatch(ADMITTED)
  })

  it.each([
    ['too long', `Content-Length: 64001\r\n\r\n${'x'.repeat(64_001)}`, 413],
    [
      'too long in chunks',
      `Transfer-Encoding: chunked\r\n\r\nfa01\r\n${'x'.repeat(64_001)}\r\n0\r\n\r\n`,
      413,
    ],
    ['not UTF-8', 'Content-Length: 3\r\n\r\n"\xff"', 400],
  ])('and refuses one that is %s', async (_, rest, status) => {
    const socket = connect(port, '127.0.0.1')
    socket.write(Buffer.from(head + rest, 'latin1'))
    expect(String((await once(socket, 'data'))[0])).toMatch(new RegExp(`^HTTP/1.1 ${status} `))
    socket.destroy()
  })
})

describe('the digests of serve', () => {
  it.each(['', 'slt_abc', 'ä€😀', '\ud800 alone', new Uint8Array([0, 255, 128])])(
    'are those of a Worker: %j',
    data => {
      const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data
      expect(sha256(data)).toBe(bytesToHex(portableSha256(bytes)))
    },
  )
})

describe('if the origin closes a connection that serve has kept', () => {
  /** It answers one request on each connection, and closes the connection when the next one arrives. */
  const forgetful = createTcpServer(socket => {
    socket.on('error', () => {})
    socket.once('data', () => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
      socket.once('data', () => socket.resetAndDestroy())
    })
  })
  beforeAll(async () => {
    forgetful.listen(0, '127.0.0.1')
    await once(forgetful, 'listening')
  })
  afterAll(() => void forgetful.close())

  it.each([
    ['GET', 200],
    // It may have been handled.
    ['POST', 502],
  ])('%s gets a %i', async (method, status) => {
    const { port } = forgetful.address() as AddressInfo
    const { url } = await serve({ origin: `http://127.0.0.1:${port}` })
    expect((await send(url)).status).toBe(200)
    expect((await send(url, { method })).status).toBe(status)
  })
})

describe('if the origin answers', () => {
  let head: string
  const odd = createTcpServer(socket => {
    socket.on('error', () => {})
    socket.on('data', () => socket.write(head))
  })
  beforeAll(async () => {
    odd.listen(0, '127.0.0.1')
    await once(odd, 'listening')
  })
  afterAll(() => void odd.close())
  const throughServe = async () => {
    const { port } = odd.address() as AddressInfo
    return await send((await serve({ origin: `http://127.0.0.1:${port}` })).url)
  }

  it('101 to a request that did not ask for it, the client gets a 502', async () => {
    head = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n'
    expect((await throughServe()).status).toBe(502)
  })

  it.each([204, 205])('%i with a length, the client waits for no body', async status => {
    head = `HTTP/1.1 ${status} X\r\nContent-Length: 5\r\n\r\nhello`
    const reply = await throughServe()
    expect([reply.status, reply.headers['content-length'], reply.body.length]).toEqual([status, undefined, 0])
  })
})

describe('serve refuses', () => {
  it('WebSockets and methods that a proxy does not pass on, before they are counted', async () => {
    const { url } = await serve()
    const webSocket = await send(url, { headers: { connection: 'upgrade', upgrade: 'websocket' } })
    expect([webSocket.status, String(webSocket.body)]).toEqual([501, expect.stringContaining('WebSockets')])
    expect((await send(url, { method: 'TRACE' })).status).toBe(501)
    expect(origin.received).toEqual([])
  })

  it('a body that a refused client would send after 100 Continue', async () => {
    const { url } = await serve({ rules: [], credentials: { accept: ['api-key'] } })
    const upload = request(url, { method: 'POST', headers: { expect: '100-continue', 'content-length': 5 } })
    let isContinued = false
    upload.on('continue', () => {
      isContinued = true
    })
    upload.flushHeaders()
    const [reply] = (await once(upload, 'response')) as [IncomingMessage]
    expect([reply.statusCode, reply.headers.connection, isContinued]).toEqual([401, 'close', false])
    upload.destroy()
  })

  it('not the body of an admitted client', async () => {
    const { url } = await serve()
    const upload = request(url, { method: 'POST', headers: { expect: '100-continue', 'content-length': 5 } })
    upload.flushHeaders()
    await once(upload, 'continue')
    upload.end('hello')
    const [reply] = (await once(upload, 'response')) as [IncomingMessage]
    reply.resume()
    expect([reply.statusCode, lastReceived().bodyBytes]).toEqual([200, 5])
  })

  it.each([
    ['GET / HTTP/1.1\r\nHost: a/b\r\n\r\n', 400],
    ['GET /\\evil HTTP/1.1\r\nHost: a\r\n\r\n', 400],
    ['GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n', 400],
    ['POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n', 501],
    [
      'POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /2 HTTP/1.1\r\n\r\n',
      501,
    ],
  ])('a request that two servers could read differently: %j', async (text, status) => {
    const { port } = new URL((await serve()).url)
    const socket = connect(Number(port), '127.0.0.1').end(text)
    const [bytes] = await once(socket, 'data')
    expect(String(bytes)).toMatch(new RegExp(`^HTTP/1.1 ${status} `))
    if (status === 501) expect(String(bytes)).toMatch(/^connection: close\r$/im)
    expect(origin.received).toEqual([])
  })
})

it.each([
  ['of two lines', ['Cookie: a=1', 'Accept: a/b', 'cookie: b=2; c=3'], 'a=1; b=2; c=3'],
  ['of three lines', ['Cookie: a=1', 'COOKIE: b=2', 'Cookie: c=3', 'X-B: 2'], 'a=1; b=2; c=3'],
  ['with a comma in a value', ['Cookie: a=1, b=2', 'Cookie: c="3, d=4"'], 'a=1, b=2; c="3, d=4"'],
  ['of one line', ['Cookie: a=1, b=2'], 'a=1, b=2'],
  // Access reads its token in a cookie, which is not for the origin.
  ['with a credential', ['Cookie: a=1', 'Cookie: CF_Authorization=a.b.c'], 'a=1'],
])('serve passes on cookies as one line: %s', async (_, lines, cookie) => {
  const access = jwt({ access: 'https://team.cloudflareaccess.com', audience: 'tag' })
  const { port } = new URL((await serve({ credentials: { ...ANY_CALLER, jwt: { access } } })).url)
  for (const expectation of [[], ['Expect: 100-continue']]) {
    const socket = connect(Number(port), '127.0.0.1')
    const text = ['GET / HTTP/1.1', 'Host: a', 'Connection: close', ...lines, ...expectation, '', '']
    socket.write(text.join('\r\n'))
    await once(socket.resume(), 'close')
    expect(lastReceived().headers.cookie).toBe(cookie)
  }
  expect(origin.received).toHaveLength(2)
})

describe('serve closes the connection of a client', () => {
  const talk = async (options: ServerOptions, text: string) => {
    const { port } = new URL((await serve({}, { connectionsCheckingInterval: 10, ...options })).url)
    const socket = connect(Number(port), '127.0.0.1')
    socket.write(text)
    let reply = ''
    for await (const chunk of socket) reply += chunk
    return reply
  }

  it.each([
    ['sends its head slowly', { headersTimeout: 50 }, 'GET / HTTP/1.1\r\nHost: a\r\nX-', 408],
    [
      'sends its body slowly',
      { headersTimeout: 50, requestTimeout: 50 },
      'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1',
      408,
    ],
    ['sends a long head', { maxHeaderSize: 1000 }, `GET / HTTP/1.1\r\nX: ${'x'.repeat(2000)}\r\n\r\n`, 431],
    [
      'sends two lengths',
      {},
      'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      400,
    ],
  ])('that %s', async (_, options, text, status) => {
    expect(await talk(options, text)).toMatch(new RegExp(`^HTTP/1.1 ${status} `))
    // Of a body that breaks off, the origin gets no end.
    expect(origin.received).toEqual([])
  })

  it('that has left while its request was decided, and asks the origin nothing', async () => {
    const isolate = await serve({ originDeadline: '10m' })
    const { port } = new URL(isolate.url)
    const socket = connect(Number(port), '127.0.0.1')
    // Node closes the connection because of the chunk.
    socket.write('POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n')
    await once(socket.resume(), 'close')
    const logged = vi.mocked(console.error)
    await vi.waitUntil(() => logged.mock.calls.length > 0, PATIENT)
    expect(JSON.parse(logged.mock.calls[0]![0])).toMatchObject({
      reason: 'Error: The client has broken off the body of its request.',
    })
    expect(origin.received).toEqual([])
  })

  it('that has left, also to the origin', async () => {
    const { url } = await serve({ onClientGone: 'abort' })
    const arrived = once(origin.requests, 'request')
    const client = get(`${url}/hang`)
    client.on('error', () => {})
    const [{ socket }] = (await arrived) as [IncomingMessage]
    client.destroy()
    await once(socket, 'close')
  })
})

describe('the address of a client', () => {
  const forged = {
    'cf-connecting-ip': '192.0.2.66',
    'cf-connecting-ipv6': '2001:db8::66',
    'true-client-ip': '192.0.2.66',
    'x-real-ip': '192.0.2.66',
    'sluice-client-ip': '192.0.2.66',
  }
  const addressFor = async (url: string, headers: SendOptions['headers'] = {}) => {
    expect((await send(url, { headers })).status).toBe(200)
    const { headers: received } = lastReceived()
    for (const name of Object.keys(forged)) expect(received[name]).toBeUndefined()
    return received['x-forwarded-for']
  }

  it('is that of the connection, whatever it sends', async () => {
    const { url } = await serve()
    const headers = { ...forged, 'x-forwarded-for': '192.0.2.66', forwarded: 'for=192.0.2.66' }
    expect(await addressFor(url, headers)).toBe('127.0.0.1')
  })

  it('is in X-Forwarded-For behind a trusted proxy, up to what the client wrote', async () => {
    const { url } = await serve({
      address: { from: 'x-forwarded-for', trustedProxies: ['127.0.0.1', '10.0.0.0/8'] },
    })
    expect(await addressFor(url, forged)).toBe('127.0.0.1')
    expect(
      await addressFor(url, { ...forged, 'x-forwarded-for': '192.0.2.66, 198.51.100.7, 10.0.0.1' }),
    ).toBe('198.51.100.7')
  })

  it('is that of the connection if that is no trusted proxy', async () => {
    const { url } = await serve({ address: { from: 'forwarded', trustedProxies: ['10.0.0.0/8'] } })
    const headers = { ...forged, forwarded: 'for=192.0.2.66', 'x-forwarded-proto': 'https' }
    expect(await addressFor(url, headers)).toBe('127.0.0.1')
    expect(lastReceived().headers['x-forwarded-proto']).toBe('http')
  })

  it('comes with the scheme that a trusted proxy names', async () => {
    const { url } = await serve({ address: { from: 'x-forwarded-for', trustedProxies: ['127.0.0.1'] } })
    await send(`${url}/a?b`, { headers: { host: 'api.example', 'x-forwarded-proto': 'https' } })
    const { url: path, headers } = lastReceived()
    expect([path, headers['x-forwarded-proto'], headers['x-forwarded-host']]).toEqual([
      '/a?b',
      'https',
      'api.example',
    ])
  })

  it('comes with http, also if the client names an https URL', async () => {
    const { port } = new URL((await serve()).url)
    const socket = connect(Number(port), '127.0.0.1')
    socket.write('GET https://api.example/a HTTP/1.1\r\nHost: api.example\r\n\r\n')
    await once(socket, 'data')
    socket.destroy()
    const { 'x-forwarded-proto': scheme, 'x-forwarded-host': host } = lastReceived().headers
    expect([scheme, host]).toEqual(['http', 'api.example'])
  })
})

it('serve says which Redis does not answer, and why, without the password', async () => {
  const logged = vi.spyOn(console, 'warn').mockImplementation(() => {})
  running.push(
    await serveInProcess({ origin: origin.url, log: {} }, { REDIS_URL: 'redis://user:secret@127.0.0.1:1' }),
  )
  await vi.waitUntil(() => logged.mock.calls.length > 0, PATIENT)
  expect(JSON.parse(logged.mock.calls[0]![0])).toEqual({
    ...{ level: 'warn', event: 'store-lost', cause: 'ERR_STORE_UNREACHABLE', skipped: 0 },
    detail: 'Redis at 127.0.0.1:1 does not answer: connect ECONNREFUSED 127.0.0.1:1.',
  })
})

describe('when serve stops', () => {
  it('it is not ready, and requests in flight end', async () => {
    const isolate = await serve()
    const agent = new Agent({ keepAlive: true })
    const health = () => send(`${isolate.url}/_sluice/health`, { agent })
    expect((await health()).status).toBe(200)
    const [reply] = (await once(get(`${isolate.url}/stream`, { agent: false }), 'response')) as [
      IncomingMessage,
    ]
    const stopped = isolate.stop(10_000, true)
    const unready = await health()
    expect([unready.status, unready.headers.connection, JSON.parse(String(unready.body))]).toEqual([
      503,
      'close',
      { live: true, ready: false, stopping: true },
    ])
    await expect(send(isolate.url)).rejects.toThrow('ECONNREFUSED')
    await send(`${origin.url}/stream/go-on`)
    let text = ''
    for await (const chunk of reply) text += chunk
    expect([text, await stopped]).toEqual(['first second', 0])
  })

  it('it cuts off what lasts longer than the drain, and leaves no units taken', async () => {
    const isolate = await serve({
      rules: [{ name: 'in-flight', by: 'address', algorithm: 'concurrency', limit: 5, ttl: '1m' }],
    })
    const endless = get(`${isolate.url}/stream/endless`)
    const [reply] = (await once(endless, 'response')) as [IncomingMessage]
    const broken = once(reply, 'error')
    expect(await isolate.stop(10, true)).toBe(1)
    await broken
    const next = await serve({
      rules: [{ name: 'in-flight', by: 'address', algorithm: 'concurrency', limit: 5, ttl: '1m' }],
    })
    expect((await send(next.url)).headers.ratelimit).toContain('r=4')
  })

  it('it gives leases back and sends its counters', async () => {
    await redis.connection.send(['FLUSHALL'])
    const rules: ConfigInput['rules'] = [
      {
        name: 'leased',
        by: 'global',
        algorithm: 'fixed-window',
        limit: 1000,
        period: '1d',
        lease: { for: '10s' },
      },
    ]
    const isolate = await serve({ rules })
    for (let i = 0; i < 20; i++) await send(isolate.url)
    await isolate.stop(1000, true)
    const totals = (await redis.connection.send(['HGETALL', statsKey(new Date())])) as Buffer[]
    expect(totals.map(String)).toContain('20')
    const next = await serve({ rules: rules.map(({ lease: _, ...rule }) => rule) as ConfigInput['rules'] })
    expect((await send(next.url)).headers.ratelimit).toContain('"leased";r=979')
  })
})
