/** The bridge implements Upstash's protocol, tested with Upstash's own clients and with HTTP requests. */

import { createHash } from 'node:crypto'
import { connect } from 'node:net'
import { Ratelimit } from '@upstash/ratelimit'
import { Redis } from '@upstash/redis'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { describeOnRedis, type TestRedis } from '../support/redis.ts'

const PLATFORM = [Request, Response]
const TOKEN = 'a token for tests'
const BYTES = '\u0000\u0001 "quotes" \\ ünïcödé 🚦 \r\n'

describeOnRedis('the bridge', start => {
  let redis: TestRedis
  let bridge: Bridge

  beforeAll(async () => {
    redis = await start()
    bridge = await startBridge({
      redisUrl: redis.url,
      token: TOKEN,
      port: 0,
      maxRequestBytes: 100_000,
      deadlineMs: PATIENT_MS,
    })
  })
  afterAll(async () => {
    await bridge?.close()
    await redis?.close()
  })

  const client = (options = {}) => new Redis({ url: bridge.url, token: TOKEN, ...options })
  const post = (path: string, body: unknown, headers = {}) =>
    fetch(bridge.url + path, {
      method: 'POST',
      headers: { authorization: `Bearer ${TOKEN}`, ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    })

  const errorOf = async (response: Response) => ((await response.json()) as { error: string }).error

  describe('serves @upstash/redis', () => {
    it.each([
      ['with default options (auto-pipelining, base64)', {}],
      ['without auto-pipelining', { enableAutoPipelining: false }],
      ['without base64', { responseEncoding: false }],
      [
        'without auto-pipelining, base64 and deserialization',
        { enableAutoPipelining: false, responseEncoding: false, automaticDeserialization: false },
      ],
    ] as const)('%s', async (_, options) => {
      const upstash = client(options)
      expect(await upstash.set('text', BYTES)).toBe('OK')
      expect(await upstash.get('text')).toBe(BYTES)
      expect(await upstash.get('nothing')).toBeNull()
      expect(await upstash.del('n')).toBeTypeOf('number')
      expect(await upstash.incrby('n', 41)).toBe(41)
      expect(await upstash.mget('text', 'nothing')).toEqual([BYTES, null])
      // The value OK is not the status OK.
      await upstash.set('ok', 'OK')
      expect(await upstash.mget('ok')).toEqual(['OK'])
    })

    it('with pipelines, in which each command has its own answer', async () => {
      const pipeline = client().pipeline()
      pipeline.set('p', '1').incr('p').lpush('p', 'x').get('p')
      const answers = await pipeline.exec({ keepErrors: true })
      expect(answers.map(({ result }) => result ?? 'none')).toEqual(['OK', 2, 'none', 2])
      expect(answers[2]!.error).toContain('WRONGTYPE')
    })

    it('with transactions', async () => {
      const upstash = client()
      const [set, incremented] = await upstash.multi().set('m', '5').incr('m').exec()
      expect([set, incremented]).toEqual(['OK', 6])
    })

    it('with scripts, their errors and their SHA-1', async () => {
      const upstash = client({ enableAutoPipelining: false })
      const source = '#!lua flags=allow-key-locking\nreturn {KEYS[1], ARGV[1], 3}'
      const sha = createHash('sha1').update(source).digest('hex')
      await expect(upstash.evalsha(sha, ['k'], ['a'])).rejects.toThrow('NOSCRIPT')
      expect(await upstash.eval(source, ['k'], ['a'])).toEqual(['k', 'a', 3])
      // The SHA-1 is that of the text that the client sent, although the bridge sends another text to Redis.
      expect(await upstash.evalsha(sha, ['k'], ['b'])).toEqual(['k', 'b', 3])
      const loaded = `${source} -- loaded`
      expect(await upstash.scriptLoad(loaded)).toBe(createHash('sha1').update(loaded).digest('hex'))
      expect(await upstash.scriptExists(sha, 'f'.repeat(40))).toEqual([1, 0])
      await expect(upstash.eval('return redis.error_reply("OOPS no")', [], [])).rejects.toThrow('OOPS no')
    })

    it('with 40 calls at once, none of which is lost or runs twice', async () => {
      const upstash = client()
      await upstash.del('count')
      const counts = await Promise.all(Array.from({ length: 40 }, () => upstash.incr('count')))
      expect(counts.sort((a, b) => a - b)).toEqual(Array.from({ length: 40 }, (_, i) => i + 1))
    })
  })

  describe('serves @upstash/ratelimit', () => {
    it.each([
      ['fixedWindow', Ratelimit.fixedWindow(5, '1h')],
      ['slidingWindow', Ratelimit.slidingWindow(5, '1h')],
      ['tokenBucket', Ratelimit.tokenBucket(5, '1h', 5)],
    ] as const)('%s: 40 calls at once, 5 admitted', async (name, limiter) => {
      const ratelimit = new Ratelimit({ redis: client(), limiter, prefix: name, ephemeralCache: false })
      const results = await Promise.all(Array.from({ length: 40 }, () => ratelimit.limit('caller')))
      expect(results.filter(({ success }) => success)).toHaveLength(5)
      expect((await ratelimit.getRemaining('caller')).remaining).toBe(0)
    })
  })

  describe('on the wire', () => {
    it.each(['/', '/pipeline', '/multi-exec', '/get/text'])('%s needs the token', async path => {
      for (const authorization of ['', 'Bearer', 'Bearer wrong', `Basic ${TOKEN}`, `Bearer ${TOKEN}x`]) {
        const response = await fetch(bridge.url + path, {
          method: 'POST',
          headers: { authorization },
          body: '[]',
        })
        expect(response.status).toBe(401)
        expect(await response.json()).toEqual({ error: expect.stringContaining('WRONGPASS') })
      }
    })

    it('accepts the token in the query, and a command in the path with a body as its last argument', async () => {
      const url = `${bridge.url}/set/path%2Fkey/?EXAT=4102444800&_token=${encodeURIComponent(TOKEN)}`
      expect(await (await fetch(url, { method: 'POST', body: BYTES })).json()).toEqual({ result: 'OK' })
      const got = await fetch(`${bridge.url}/get/path%2Fkey`, {
        headers: { authorization: `Bearer ${TOKEN}` },
      })
      expect(await got.json()).toEqual({ result: BYTES })
      expect(await (await post('/', ['EXPIRETIME', 'path/key'])).json()).toEqual({ result: 4102444800 })
    })

    it('encodes every string except a bare OK if the client requests base64', async () => {
      const headers = { 'upstash-encoding': 'base64' }
      expect(await (await post('/', ['SET', 'b', 'OK'], headers)).json()).toEqual({ result: 'OK' })
      expect(await (await post('/', ['MGET', 'b', 'none'], headers)).json()).toEqual({
        result: ['T0s=', null],
      })
      const pipeline = [
        ['GETSET', 'b64', 'héllo'],
        ['GETSET', 'b64', ''],
        ['STRLEN', 'b64'],
      ]
      expect(await (await post('/pipeline', pipeline, headers)).json()).toEqual([
        { result: null },
        { result: Buffer.from('héllo').toString('base64') },
        { result: 0 },
      ])
    })

    it.each([
      ['invalid JSON', '/', '{', 400, /parse/],
      ['an empty command', '/', [], 400, /empty/],
      ['an object instead of a command', '/', { a: 1 }, 400, /empty/],
      ['an argument that is an object', '/', ['SET', 'a', { b: 1 }], 400, /parse/],
      ['a command instead of a pipeline', '/pipeline', ['GET', 'a'], 400, /empty/],
      ['an unknown command', '/', ['NOSUCH'], 400, /unknown command/i],
      ['a wrong number of arguments', '/', ['GET'], 400, /wrong number/],
      ['a body that is too large', '/', ['SET', 'a', 'x'.repeat(200_000)], 413, /max request size/],
      ['a path that cannot be decoded', '/get/%zz', '', 400, /parse/],
    ] as const)('answers %s with an error', async (_, path, body, status, message) => {
      const response = await post(path, body)
      expect(response.status).toBe(status)
      expect(await errorOf(response)).toMatch(message)
      expect(response.headers.get('content-type')).toBe('application/json')
    })

    it('answers other methods with 405, and a HEAD without a body', async () => {
      const headers = { authorization: `Bearer ${TOKEN}` }
      expect((await fetch(bridge.url, { method: 'DELETE', headers })).status).toBe(405)
      const head = await fetch(`${bridge.url}/ping`, { method: 'HEAD', headers })
      expect([head.status, await head.text()]).toEqual([200, ''])
      expect(head.headers.get('content-length')).toBe(String('{"result":"PONG"}'.length))
    })

    it.each([
      ['without the token', 'GET / HTTP/1.1', 'Bearer wrong', '', 401],
      ['with another method', 'DELETE / HTTP/1.1', `Bearer ${TOKEN}`, '', 405],
      ['with a bad command', 'POST / HTTP/1.1', `Bearer ${TOKEN}`, '[]', 400],
      ['with a command', 'POST / HTTP/1.1', `Bearer ${TOKEN}`, '["PING"]', 200],
    ])('keeps the connection open after a request %s', async (_, line, token, body, status) => {
      const headers = `host: bridge\r\nauthorization: ${token}\r\ncontent-length: ${body.length}`
      const last = `GET /ping HTTP/1.1\r\nhost: bridge\r\nauthorization: Bearer ${TOKEN}\r\nconnection: close\r\n\r\n`
      const answers = await exchange(bridge.port, `${line}\r\n${headers}\r\n\r\n${body}${last}`)
      expect(statusesIn(answers)).toEqual([status, 200])
    })

    it.each([
      ['without the token', 'Bearer wrong', 'x', 401],
      ['that is too large', `Bearer ${TOKEN}`, 'x'.repeat(150_000), 413],
    ])('closes the connection when it refuses an incomplete body %s', async (_, token, sent, status) => {
      const headers = `host: bridge\r\nauthorization: ${token}\r\ncontent-length: 900000`
      const answer = await exchange(bridge.port, `POST / HTTP/1.1\r\n${headers}\r\n\r\n${sent}`)
      expect([statusesIn(answer), answer.toLowerCase()]).toEqual([
        [status],
        expect.stringContaining('connection: close'),
      ])
    })

    it.each([
      [
        'a GET with a body as the last argument',
        'GET /set/got HTTP/1.1\r\nhost: bridge',
        'text',
        '{"result":"OK"}',
      ],
      ['an empty path segment', 'GET //set//a%2Fb/1 HTTP/1.1\r\nhost: bridge', '', '{"result":"OK"}'],
      ['HTTP/1.0 without a host', 'GET /ping HTTP/1.0', '', '{"result":"PONG"}'],
      [
        'a whole URL as the target',
        'GET http://other/ping HTTP/1.1\r\nhost: bridge',
        '',
        '{"result":"PONG"}',
      ],
      [
        'a second token',
        'GET /ping HTTP/1.1\r\nhost: bridge\r\nauthorization: Bearer x',
        '',
        '{"error":"WRONGPASS',
      ],
      [
        'a target that is not a path',
        'OPTIONS * HTTP/1.1\r\nhost: bridge',
        '',
        '{"error":"ERR failed to parse',
      ],
      ['a path that is not a URL', 'GET /a\\b HTTP/1.1\r\nhost: bridge', '', '{"error":"ERR failed to parse'],
    ])('answers %s', async (_, head, body, answer) => {
      const headers = `authorization: Bearer ${TOKEN}\r\ncontent-length: ${body.length}\r\nconnection: close`
      expect(await exchange(bridge.port, `${head}\r\n${headers}\r\n\r\n${body}`)).toContain(answer)
    })

    it('creates no AbortSignal for a command, which would take a quarter of the time of a request', async () => {
      const signals = vi.spyOn(AbortSignal, 'timeout')
      for (const [path, body] of [
        ['/', ['PING']],
        ['/pipeline', [['PING']]],
        ['/multi-exec', [['PING']]],
      ] as const) {
        expect((await post(path, body)).status).toBe(200)
      }
      expect(signals).not.toHaveBeenCalled()
      signals.mockRestore()
    })

    it("does not replace the platform's Request and Response", () => {
      expect([Request, Response]).toEqual(PLATFORM)
    })

    it.each([
      ...[
        'MULTI',
        'EXEC',
        'SUBSCRIBE',
        'psubscribe',
        'SELECT',
        'CLIENT',
        'BLPOP',
        'MONITOR',
        'AUTH',
        'HELLO',
      ],
      ...['CONFIG', 'SHUTDOWN', 'DEBUG', 'WAIT', 'QUIT', 'RESET', 'WATCH'],
    ])('refuses %s, on every path', async name => {
      const command = [name, 'x', '0']
      const refusal = { error: expect.stringContaining('not available') }
      const single = await post('/', command)
      expect([single.status, await single.json()]).toEqual([400, refusal])
      expect(await (await post('/pipeline', [['PING'], command])).json()).toEqual([
        { result: 'PONG' },
        refusal,
      ])
      const transaction = await post('/multi-exec', [['SET', 'never', '1'], command])
      expect([transaction.status, await transaction.json()]).toEqual([400, refusal])
      expect(await (await post('/', ['GET', 'never'])).json()).toEqual({ result: null })
    })

    it('refuses XREAD with BLOCK and SCRIPT KILL, and accepts XREAD without BLOCK', async () => {
      expect((await post('/', ['XREAD', 'BLOCK', '0', 'STREAMS', 's', '$'])).status).toBe(400)
      expect((await post('/', ['XREAD', 'STREAMS', 's', '0'])).status).toBe(200)
      expect(await errorOf(await post('/', ['SCRIPT', 'KILL']))).toContain('not available')
    })

    it('returns the error of a discarded transaction', async () => {
      const response = await post('/multi-exec', [['SET', 'd', '1'], ['NOSUCH']])
      expect(response.status).toBe(400)
      expect(await errorOf(response)).toMatch(/EXECABORT|unknown command/i)
    })
  })
})

/** Sends bytes on a new connection, and returns the bytes that arrive until the bridge closes it. */
async function exchange(port: number, bytes: string): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  socket.write(bytes)
  let received = ''
  try {
    for await (const chunk of socket) received += chunk
  } catch (error) {
    // The bridge closes the connection while bytes that it refuses are still arriving.
    if (!received) throw error
  }
  return received
}

function statusesIn(answers: string): number[] {
  return [...answers.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status]) => Number(status))
}
