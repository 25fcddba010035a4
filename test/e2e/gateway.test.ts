/**
 * The whole path with real parts: a caller's socket, the Worker in workerd, the real client, the bridge, a Redis,
 * and an origin's socket. Only behavior that needs workerd and sockets is tested here.
 */
import { createHash, randomBytes } from 'node:crypto'
import { request } from 'node:http'
import { connect } from 'node:net'
import { gunzipSync } from 'node:zlib'
import { beforeEach, describe, expect, it } from 'vitest'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { GZIPPED } from '../support/origin.ts'
import { useStack } from '../support/stack.ts'

const running = useStack('e2e.config.ts')
let key: string

beforeEach(async () => {
  key = (await createKey(createAdminStore(running.stack.rest), { consumer: 'acme', plan: 'pro' })).key
  running.origin.received.length = 0
})

const ask = (path: string, init: RequestInit = {}) =>
  fetch(running.stack.url + path, {
    redirect: 'manual',
    ...init,
    headers: { 'x-api-key': key, ...init.headers },
  })

describe('the running gateway', () => {
  it('authenticates, counts and forwards', async () => {
    const response = await ask('/hello?name=world')
    expect(response.status).toBe(200)
    expect(response.headers.get('ratelimit')).toMatch(/^"consumer";r=\d+;t=\d+$/)
    expect(running.origin.received[0]).toMatchObject({
      method: 'GET',
      url: '/hello?name=world',
      headers: { 'x-consumer-id': 'acme', 'x-consumer-plan': 'pro', host: new URL(running.origin.url).host },
    })
  })

  it('adds only the documented headers to a request', async () => {
    await raw('/plain', {})
    const { headers } = running.origin.received[0]!
    const added = [
      'x-consumer-id',
      'x-consumer-mode',
      'x-consumer-plan',
      'x-forwarded-for',
      'x-forwarded-host',
      'x-forwarded-proto',
      'x-request-id',
      'cache-control',
      'pragma',
    ]
    // accept-encoding, cf-worker and host come from workerd, or from the simulated edge in front of the Worker (src/node/start/edge.ts).
    expect(Object.keys(headers).sort()).toEqual(['accept-encoding', 'cf-worker', 'host', ...added].sort())
  })

  it('refuses requests above the limit, and requests without a key', async () => {
    const statuses = []
    for (let i = 0; i < 3; i++) statuses.push((await ask('/few')).status)
    expect(statuses).toEqual([200, 200, 429])
    expect((await fetch(`${running.stack.url}/few`)).status).toBe(401)
  })

  it('delays the queued requests of a leaky bucket, and forwards them in order and evenly', async () => {
    const startedAt = performance.now()
    const replies = await Promise.all(Array.from({ length: 8 }, () => ask('/queue')))
    const admitted = replies
      .filter(({ status }) => status === 200)
      .map(({ headers }) => ({
        id: headers.get('x-request-id'),
        left: Number(/"queue";r=(\d+)/.exec(headers.get('ratelimit')!)![1]),
      }))
      .sort((a, b) => b.left - a.left)
    expect(admitted.length).toBeGreaterThanOrEqual(5)
    expect(replies.filter(({ status }) => status === 429)).toHaveLength(8 - admitted.length)
    const arrivals = new Map(running.origin.received.map(({ headers, at }) => [headers['x-request-id'], at]))
    expect(arrivals.size).toBe(admitted.length)
    // Request i arrives at least i tenths of a second after the start, because timers do not fire early. So requests arrive in order, unless
    // a busy machine is later with one than the tenth of a second between two.
    for (const [i, { id }] of admitted.entries())
      expect(arrivals.get(id!)! - startedAt).toBeGreaterThan(i * 100 - 2)
  })

  it('is not affected by a shadow rule, and does not show it', async () => {
    for (let i = 0; i < 3; i++) {
      const { status, headers } = await ask('/tried-out')
      expect(status).toBe(200)
      expect(headers.get('ratelimit-policy')).toBe('"consumer";q=200;w=25920000')
    }
  })

  it('counts 40 requests at once exactly', async () => {
    const { key: other } = await createKey(createAdminStore(running.stack.rest), {
      consumer: 'crowd',
      plan: 'free',
    })
    const statuses = await Promise.all(
      Array.from({ length: 40 }, async () => (await ask('/few', { headers: { 'x-api-key': other } })).status),
    )
    expect(statuses.filter(status => status === 200)).toHaveLength(2)
    expect(statuses.filter(status => status === 429)).toHaveLength(38)
  })

  it('reports that it is healthy', async () => {
    const response = await fetch(`${running.stack.url}/_sluice/health`)
    expect([response.status, await response.json()]).toEqual([200, expect.objectContaining({ ready: true })])
  })
})

describe('the proxy', () => {
  it.each(['POST', 'PUT', 'PATCH', 'DELETE'])(
    'streams the body of a %s to the origin, byte for byte',
    async method => {
      const body = randomBytes(1_500_000)
      expect((await ask('/upload', { method, body })).status).toBe(200)
      const bodySha256 = createHash('sha256').update(body).digest('hex')
      expect(running.origin.received[0]).toMatchObject({ method, bodyBytes: body.length, bodySha256 })
    },
  )

  it.each([
    ['content-length', '0', ''],
    ['content-length', '2', '{}'],
  ])('forwards a GET with %s: %s', async (name, value, body) => {
    const status = await new Promise((resolve, reject) => {
      request(
        `${running.stack.url}/search`,
        { method: 'GET', headers: { 'x-api-key': key, [name]: value } },
        response => {
          response.resume()
          resolve(response.statusCode)
        },
      )
        .on('error', reject)
        .end(body)
    })
    expect(status).toBe(200)
    expect(running.origin.received[0]).toMatchObject({ method: 'GET', bodyBytes: body.length })
  })

  it('forwards a response while it arrives, without waiting for its end', async () => {
    // Uncompressed, because the local simulation of the edge compresses a body as a whole. The Worker does not change it.
    const response = await ask('/stream', { headers: { 'accept-encoding': 'identity' } })
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
    expect((await reader.read()).value).toBe('first ')
    // The origin continues only now. If the gateway waited for the end, the first part would not have arrived.
    await fetch(`${running.origin.url}/stream/go-on`)
    expect((await reader.read()).value).toBe('second')
  })

  it('forwards redirects and does not follow them', async () => {
    const response = await ask('/redirect')
    expect([response.status, response.headers.get('location')]).toEqual([302, 'https://elsewhere.example/'])
  })

  it('does not change status, cookies, empty bodies and errors of the origin', async () => {
    expect((await ask('/empty')).status).toBe(204)
    expect((await ask('/cookies')).headers.getSetCookie()).toEqual(['a=1', 'b=2; Path=/'])
    const error = await ask('/error')
    expect([error.status, await error.text()]).toEqual([500, 'the origin broke'])
    const head = await ask('/hello', { method: 'HEAD' })
    expect([head.status, await head.text()]).toEqual([200, ''])
  })

  it('forwards a compressed body without decompressing it', async () => {
    const { headers, body } = await raw('/gzip', { 'accept-encoding': 'gzip' })
    expect(headers['content-encoding']).toBe('gzip')
    expect(gunzipSync(body).toString()).toBe(GZIPPED)
    // fetch decompresses the body, and gets the text of the origin.
    expect(await (await ask('/gzip')).text()).toBe(GZIPPED)
  })

  it.each([
    ['without Accept-Encoding', {}] as const,
    ['that accepts no coding', { 'accept-encoding': '' }] as const,
  ])(
    'requests an uncompressed body for a client %s, and returns one even if the origin compresses it',
    async (_, encoding) => {
      const { headers, body } = await raw('/gzip', encoding)
      expect(running.origin.received[0]!.headers['accept-encoding']).toBe('identity')
      expect([headers['content-encoding'], body.toString()]).toEqual([undefined, GZIPPED])
    },
  )

  it('drops hop-by-hop headers, and those that Connection names, both ways', async () => {
    const { headers } = await raw('/hop', {
      connection: 'close, x-secret-hop',
      'x-secret-hop': '1',
      'proxy-authorization': 'Basic x',
      te: 'trailers',
      'keep-alive': 'timeout=5',
      'x-kept': '1',
    })
    const [received] = running.origin.received
    expect(received!.headers).toMatchObject({ 'x-kept': '1' })
    for (const name of ['x-secret-hop', 'proxy-authorization', 'te', 'keep-alive']) {
      expect(received!.headers).not.toHaveProperty(name)
    }
    expect(headers).toMatchObject({ 'x-public': 'yes' })
    expect(headers).not.toHaveProperty('x-internal')
  })

  it('opens a WebSocket to the origin', async () => {
    const key13 = 'dGhlIHNhbXBsZSBub25jZQ=='
    const { hostname, port } = new URL(running.stack.url)
    const socket = connect(Number(port), hostname)
    socket.write(
      `GET /socket HTTP/1.1\r\nHost: ${hostname}\r\nX-API-Key: ${key}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
        `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key13}\r\n\r\n`,
    )
    const reply = await new Promise<string>(resolve => socket.once('data', data => resolve(String(data))))
    socket.destroy()
    expect(reply).toMatch(/^HTTP\/1\.1 101 /)
  })

  it('answers 502 when the origin closes the connection, with problem details', async () => {
    const broken = await ask('/drop')
    expect([broken.status, await broken.json()]).toEqual([
      502,
      expect.objectContaining({ title: 'Bad Gateway' }),
    ])
    // The request was admitted and counted, so the reply has a RateLimit header.
    expect(broken.headers.get('ratelimit')).toMatch(/^"consumer"/)
  })
})

describe('bytes that no good client sends', () => {
  const CONSUMER = 'X-Consumer-Id: admin'
  const keyed = () => `X-API-Key: ${key}`
  const get = (path: string, ...lines: string[]) => [`GET ${path} HTTP/1.1`, 'Host: a.test', ...lines]

  it.each<[string, () => string[]]>([
    ['a key twice', () => get('/', keyed(), keyed())],
    ['a bearer key twice', () => get('/', `Authorization: Bearer ${key}`, `Authorization: Bearer ${key}`)],
    [
      'a bearer key after another scheme',
      () => get('/', 'Authorization: Basic x', `Authorization: Bearer ${key}`),
    ],
    ['a key of 10 kB', () => get('/', keyed() + 'x'.repeat(10_000))],
    ['NUL in a key', () => get('/', `${keyed()}\0`)],
    ['NUL in a header', () => get('/', keyed(), 'X-Other: a\0b')],
    ['a bare CR in a header', () => get('/', keyed(), `X-Other: a\r${CONSUMER}`)],
    ['a header folded over two lines', () => get('/', keyed(), `X-Other: a\r\n ${CONSUMER}`)],
    ['a space before the colon', () => get('/', keyed(), CONSUMER.replace(':', ' :'))],
    ['a length twice', () => get('/', keyed(), 'Content-Length: 0', 'Content-Length: 5')],
    ['a method in lower case', () => get('/', keyed()).with(0, 'get / HTTP/1.1')],
    ['an unknown method', () => get('/', keyed()).with(0, 'FOO / HTTP/1.1')],
    ['a reserved path in an absolute URL', () => get('http://b.test//_sluice/x', keyed())],
    ['a reserved path after dots', () => get('/log/..%2f%5Fsluice/x', keyed())],
    ['dots that leave a public path', () => get('/log/../x')],
    ['encoded dots that leave a public path', () => get('/log/%2e%2e/x')],
    ['backslashes that leave a public path', () => get('/log\\..\\x')],
    ['dots with a parameter that leave a public path', () => get('/log/..;/x')],
    [
      'a preflight with a body',
      () =>
        get('/', 'Origin: a', 'Access-Control-Request-Method: GET', 'Transfer-Encoding: chunked')
          .with(0, 'OPTIONS / HTTP/1.1')
          .concat('', '1', 'x', '0'),
    ],
  ])('do not reach the origin: %s', async (_, lines) => {
    expect(await rawBytes(lines())).toMatch(/^HTTP\/1\.1 (400|401|404|501) /)
    expect(running.origin.received).toEqual([])
  })

  it.each<[string, () => string[]]>([
    ['a bare line feed', () => get('/', keyed(), `X-Other: a\n${CONSUMER}`)],
    ['underscores', () => get('/', keyed(), 'X_Consumer_Id: admin', 'X.Consumer.Id: admin')],
    ['Connection', () => get('/', keyed(), CONSUMER, 'Connection: x-consumer-id, x-request-id')],
    [
      'a body that is another request',
      () => [...get('/', keyed(), 'Transfer-Encoding: chunked', ''), '0', '', ...get('/', CONSUMER)],
    ],
  ])('do not change the consumer: %s', async (_, lines) => {
    expect(await rawBytes(lines())).toMatch(/^HTTP\/1\.1 200 /)
    for (const { headers } of running.origin.received) expect(headers['x-consumer-id']).toBe('acme')
    expect(JSON.stringify(running.origin.received)).not.toContain('admin')
  })

  it('do not change the forwarded host, which is always the host that was matched', async () => {
    for (const host of ['a.test', 'u:p@a.test', 'a.test/x?', 'a.test#']) {
      await rawBytes(get('/', keyed()).with(1, `Host: ${host}`))
    }
    const forwardedHosts = new Set(running.origin.received.map(({ headers }) => headers['x-forwarded-host']))
    expect([...forwardedHosts]).toEqual(['a.test'])
  })
})

/** Sends these lines on a new socket. @returns the first bytes of the reply */
async function rawBytes(lines: readonly string[]): Promise<string> {
  const { hostname, port } = new URL(running.stack.url)
  const socket = connect(Number(port), hostname)
  const reply = new Promise<string>((resolve, reject) => {
    socket.once('data', data => resolve(String(data)))
    socket.once('error', reject)
    socket.once('close', () => resolve('nothing'))
  })
  socket.write(Buffer.from([...lines, '', ''].join('\r\n'), 'latin1'))
  return await reply.finally(() => socket.destroy())
}

/** Uses node:http, which can send headers that fetch forbids, and does not change bodies. */
function raw(path: string, headers: Record<string, string>) {
  return new Promise<{ headers: Record<string, unknown>; body: Buffer }>((resolve, reject) => {
    request(running.stack.url + path, { headers: { 'x-api-key': key, ...headers } }, response => {
      const chunks: Buffer[] = []
      response.on('data', chunk => chunks.push(chunk))
      response.on('end', () => resolve({ headers: response.headers, body: Buffer.concat(chunks) }))
    })
      .on('error', reject)
      .end()
  })
}
