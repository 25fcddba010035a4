/** Rules that count units, through the whole gateway on Node: what a request reserves, and what it has cost in the end. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { ConfigInput, RuleInput, UnitInput } from '../../src/config/check/schema.ts'
import type { ActualHook } from '../../src/config/hooks.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import type { Parts } from '../../src/set-ups/http/parts.ts'
import { type App, useGateway } from '../support/gateway.ts'
import { PATIENT } from '../support/patience.ts'
import { quickTime } from '../support/quick-time.ts'

const DAY: RuleInput = {
  ...{ name: 'day', unit: 'tokens', by: 'consumer', limit: 10_000, period: '1d' },
  algorithm: 'fixed-window',
}
const LOGINS: RuleInput = {
  ...{ name: 'logins', by: 'address', algorithm: 'sliding-window', limit: 3, period: '1h' },
  countIf: { status: [401, 403] },
}
const OPEN = { credentials: { accept: ['anonymous' as const] } }

type Reply = (request: IncomingMessage, response: ServerResponse, body: string) => void

const json =
  (body: unknown, headers: Record<string, string> = {}): Reply =>
  (_, response) =>
    response.writeHead(200, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))

const usage = (tokens: number) => json({ usage: { total_tokens: tokens } })

describe('a rule with a unit', () => {
  const gateway = useGateway()
  const api = useApi()
  const TOTAL: UnitInput = { estimate: 2000, actual: { json: '/usage/total_tokens' } }

  const appWith = (unit: UnitInput, more: Partial<ConfigInput> = {}, rule: Partial<RuleInput> = {}) =>
    gateway.app(
      { origin: api.url, units: { tokens: unit }, rules: [{ ...DAY, ...rule } as RuleInput], ...more },
      quickTime(),
    )

  /** Sends a request, and reads its reply to the end. Returns what was left when it was admitted. */
  async function leftBy(app: App, key: string, init: RequestInit = {}): Promise<number> {
    const response = await app('/', { key, ...init })
    await response.text().catch(() => {})
    return leftIn(response)
  }

  /** Waits until so many units are left. */
  async function expectLeft(key: string, units: number): Promise<void> {
    const peeking = appWith(TOTAL, { hooks: { amounts: () => ({ tokens: 0 }) } })
    await vi.waitFor(async () => expect(leftIn(await peeking('/', { key }))).toBe(units), PATIENT)
  }

  it('reserves the estimate, and counts what the response reports', async () => {
    const [app, key] = [appWith(TOTAL), await gateway.key('acme')]
    api.reply = usage(731)
    expect(await leftBy(app, key)).toBe(8000)
    await expectLeft(key, 10_000 - 731)
    api.reply = usage(5000)
    expect(await leftBy(app, key)).toBe(10_000 - 731 - 2000)
    await expectLeft(key, 10_000 - 731 - 5000)
  })

  it('passes the key of the API on to it, beside the key of the caller', async () => {
    const app = appWith(
      { estimate: 'llm', actual: { usage: 'openai' } },
      {
        rules: [
          { name: 'minute', by: 'consumer', algorithm: 'sliding-window', limit: 500, period: '1m' },
          DAY,
        ],
      },
    )
    const key = await gateway.key('acme')
    let sent: IncomingMessage['headers'] = {}
    api.reply = (request, ...rest) => {
      sent = request.headers
      json({ usage: { prompt_tokens: 20, completion_tokens: 30 } })(request, ...rest)
    }
    const openai = new OpenAI({
      ...{ apiKey: 'sk-openai', baseURL: 'http://gateway.example/v1', maxRetries: 0 },
      defaultHeaders: { 'X-API-Key': key },
      fetch: (url, init) => app(new URL(String(url)).pathname, init),
    })
    await openai.chat.completions.create({ model: 'gpt', messages: [{ role: 'user', content: 'Hello' }] })
    expect(sent).toMatchObject({ authorization: 'Bearer sk-openai', 'x-consumer-id': 'acme' })
    expect(sent).not.toHaveProperty('x-api-key')
    await expectLeft(key, 10_000 - 50)
  })

  it("a caller cannot reserve more of a shared limit than its own limit has, with aboveLimit: 'refuse'", async () => {
    const rules: RuleInput[] = [DAY, { ...DAY, name: 'all', by: 'global', limit: 1_000_000 }]
    const left = async (aboveLimit: 'refuse' | 'clamp', consumer: string) => {
      const unit: UnitInput = { estimate: 'llm', actual: { usage: 'openai' }, aboveLimit }
      const app = gateway.app({ origin: api.url, units: { tokens: unit }, rules })
      // A stream without usage: the estimate stays.
      api.reply = json({})
      const body = JSON.stringify({ messages: [], max_tokens: 9000, n: 100, stream: true })
      const response = await app('/', { key: await gateway.key(consumer), method: 'POST', body })
      await response.text()
      return [response.status, Number(/"all";r=(\d+)/.exec(response.headers.get('ratelimit')!)?.[1])]
    }
    expect(await left('refuse', 'acme')).toEqual([429, 1_000_000])
    // `check` warns about this.
    expect(await left('clamp', 'beta')).toEqual([200, expect.closeTo(100_000, -2)])
  })

  it('refuses while a cost above the estimate is a debt, and names the unit in headers and body', async () => {
    const [app, key] = [appWith(TOTAL), await gateway.key('acme')]
    api.reply = usage(12_000)
    expect(await leftBy(app, key)).toBe(8000)
    await expectLeft(key, 0)
    const refused = await app('/', { key })
    expect(refused.status).toBe(429)
    expect(refused.headers.get('RateLimit-Policy')).toBe('"day";q=10000;qu="tokens";w=86400')
    expect(await refused.json()).toMatchObject({
      detail: expect.stringMatching(/^Limit reached: day \(10000 tokens per day\)\. Nothing was charged\./),
    })
  })

  it.each<[string, Reply, left: number]>([
    [
      'an error in JSON',
      (_, response) => response.writeHead(500, { 'content-type': 'application/json' }).end('{"error":{}}'),
      10_000,
    ],
    [
      'a status that says that it did not take the request',
      (_, response) => response.writeHead(503).end(),
      10_000,
    ],
    [
      'an error that says nothing',
      (_, response) => response.writeHead(500).end('Internal Server Error'),
      8000,
    ],
    ['a broken connection', request => request.socket.destroy(), 8000],
  ])(
    'counts nothing if the origin says that it produced nothing, as it may with %s',
    async (_, reply, left) => {
      const log = vi.spyOn(console, 'error').mockImplementation(() => {})
      const [app, key] = [appWith(TOTAL), await gateway.key('acme')]
      api.reply = reply
      expect(await leftBy(app, key)).toBe(8000)
      // Its units are settled before those of the next request.
      api.reply = usage(1)
      await leftBy(app, key)
      await expectLeft(key, left - 1)
      log.mockRestore()
    },
  )

  it('costs nothing to read what was made before, unless the method is overridden', async () => {
    const unit: UnitInput = { estimate: 2000, actual: { usage: 'openai' } }
    const [app, key] = [appWith(unit), await gateway.key('acme')]
    const counts = { input_tokens: 3000, output_tokens: 50 }
    api.reply = json({ id: 'r', status: 'completed', usage: counts })
    for (let i = 0; i < 9; i++) await (await app('/v1/chat/completions/c', { key })).text()
    await expectLeft(key, 10_000)
    await (await app('/v1/chat/completions/c?_method=POST', { key })).text()
    await expectLeft(key, 10_000 - 3050)
  })

  it('is a request to Google whose caller does not leave its usage out of the reply', async () => {
    const unit: UnitInput = { estimate: 2000, actual: { usage: 'gemini' } }
    const [app, key] = [appWith(unit), await gateway.key('acme')]
    const [path, method] = ['/v1beta/models/m:generateContent', 'POST']
    const log = vi.spyOn(console, 'warn').mockImplementation(() => {})
    api.reply = json({ candidates: [] })
    for (const query of [
      'fields=candidates',
      '%24fields=candidates',
      'alt=proto',
      '$alt=media',
      'callback=f',
    ]) {
      const refused = await app(`${path}?${query}`, { key, method })
      expect([refused.status, await refused.text()]).toEqual([
        400,
        expect.stringContaining('Nothing was charged'),
      ])
    }
    const headers = { 'x-goog-fieldmask': 'candidates' }
    expect((await app(path, { key, method, headers })).status).toBe(400)
    expect((await app('/v1beta/models?fields=models', { key })).status).toBe(200)
    await expectLeft(key, 10_000)
    api.reply = json({ usageMetadata: { promptTokenCount: 700 } })
    await (await app(`${path}?alt=json`, { key, method })).text()
    await expectLeft(key, 9300)
    log.mockRestore()
  })

  describe('a job: a background response or a batch', () => {
    const unit: UnitInput = { estimate: 2000, actual: { usage: 'openai' } }
    const UNREAD = { id: 'resp_1', object: 'response', status: 'queued', usage: null }
    const DONE = { ...UNREAD, status: 'completed', usage: { input_tokens: 500, output_tokens: 200 } }

    /** Creates a job, and waits until its estimate is what it has cost. */
    async function create(app: App, key: string, body: unknown = UNREAD): Promise<void> {
      api.reply = json(body)
      await leftBy(app, key, { method: 'POST', body: '{"background":true}' })
      await vi.waitFor(async () => expect(await keysWith(':job:')).toHaveLength(1), PATIENT)
    }

    async function read(app: App, key: string, reply: unknown, path = '/v1/responses/resp_1', init = {}) {
      api.reply = typeof reply === 'function' ? (reply as Reply) : json(reply)
      await (await app(path, { key, ...init })).text()
    }

    const keysWith = async (part: string) =>
      (await gateway.redis.connection.send(['KEYS', `*${part}*`])) as string[]

    it('costs its estimate until its usage is read, which replaces it once', async () => {
      const [app, key] = [appWith(unit), await gateway.key('acme')]
      await create(app, key)
      await expectLeft(key, 8000)
      for (const status of ['queued', 'in_progress']) await read(app, key, { ...UNREAD, status })
      await expectLeft(key, 8000)
      // Two isolates, and many polls.
      const apps = [app, appWith(unit)]
      await Promise.all([0, 1, 0, 1, 0, 1].map(i => read(apps[i]!, key, DONE)))
      await expectLeft(key, 9300)
      for (const each of apps) await read(each, key, DONE)
      await create(app, key, { ...UNREAD, id: 'resp_2' })
      await expectLeft(key, 7300)
      expect(await keysWith(':job:')).toHaveLength(1)
    })

    it('costs more than its estimate if it has used more, also as a debt', async () => {
      const [app, key] = [appWith(unit), await gateway.key('acme')]
      await create(app, key, { id: 'batch_1', object: 'batch', status: 'validating', usage: null })
      const usage = { input_tokens: 9000, output_tokens: 5000 }
      const done = { id: 'batch_1', object: 'batch', status: 'completed', usage }
      await read(app, key, done, '/v1/batches/batch_1')
      await vi.waitFor(async () => expect((await app('/', { key })).status).toBe(429), PATIENT)
    })

    it('is settled by the end of its stream, of a stream of its events, and of its cancellation', async () => {
      const events = (...all: unknown[]): Reply => {
        const text = all.map(response => `event: response.x\ndata: ${JSON.stringify({ response })}\n\n`)
        return (_, reply) => reply.writeHead(200, { 'content-type': 'text/event-stream' }).end(text.join(''))
      }
      const [app, key] = [appWith(unit), await gateway.key('acme')]
      // The connection of the creation ends before the response does.
      api.reply = events(UNREAD, { ...UNREAD, status: 'in_progress' })
      await leftBy(app, key, { method: 'POST', body: '{"background":true,"stream":true}' })
      await vi.waitFor(async () => expect(await keysWith(':job:')).toHaveLength(1), PATIENT)
      await expectLeft(key, 8000)
      await read(
        app,
        key,
        events({ ...UNREAD, status: 'in_progress' }, DONE),
        '/v1/responses/resp_1?stream=true',
      )
      await expectLeft(key, 9300)

      await create(app, key, { ...UNREAD, id: 'resp_2' })
      const cancelled = { ...DONE, id: 'resp_2', status: 'cancelled' }
      await read(app, key, cancelled, '/v1/responses/resp_2/cancel', { method: 'POST' })
      await expectLeft(key, 8600)
    })

    it('is not settled by a reply without its usage, an error, another path, another caller or a broken reply', async () => {
      const [app, key, other] = [appWith(unit), await gateway.key('acme'), await gateway.key('other')]
      await create(app, key)
      const log = vi.spyOn(console, 'warn').mockImplementation(() => {})
      await read(app, key, { ...DONE, status: 'failed', usage: null })
      await read(app, key, (_: unknown, response: ServerResponse) =>
        response.writeHead(404, { 'content-type': 'application/json' }).end(JSON.stringify(DONE)),
      )
      await read(app, key, DONE, '/v1/files/resp_1')
      await read(app, other, DONE)
      await read(app, key, (_: unknown, response: ServerResponse) => {
        response.writeHead(200, { 'content-type': 'application/json', 'content-length': '9999' })
        response.write(JSON.stringify(DONE), () => response.destroy())
      }).catch(() => {})
      log.mockRestore()
      await expectLeft(key, 8000)
      await expectLeft(other, 10_000)
      await read(app, key, DONE)
      await expectLeft(key, 9300)
    })

    it('of an anonymous caller belongs to its address and its environment', async () => {
      const app = appWith(unit, { ...OPEN, environment: 'staging' }, { by: 'address' })
      const ask = async (reply: unknown, address: string, init: RequestInit = {}) => {
        api.reply = json(reply)
        const response = await app('/v1/responses/resp_1', { address, ...init })
        await response.text()
        return leftIn(response)
      }
      await ask(UNREAD, '192.0.2.1', { method: 'POST', body: '{"background":true}' })
      await vi.waitFor(async () => expect(await keysWith(':job:')).toHaveLength(1), PATIENT)
      expect(String((await keysWith(':job:'))[0])).toMatch(/^sluice:staging:\{ip:192\.0\.2\.1\}:job:/)
      await ask(DONE, '192.0.2.2')
      expect(await ask(UNREAD, '192.0.2.1')).toBe(8000)
      await ask(DONE, '192.0.2.1')
      await vi.waitFor(async () => expect(await ask(UNREAD, '192.0.2.1')).toBe(9300), PATIENT)
    })

    it('is settled by a read that its rule does not match', async () => {
      const match = { methods: ['POST'] }
      const [app, key] = [appWith(unit, {}, { match }), await gateway.key('acme')]
      await create(app, key)
      await read(app, key, DONE)
      await expectLeft(key, 9300)
    })

    it("keeps its estimate until then, also with onUnsettled: 'release'", async () => {
      const [app, key] = [appWith({ ...unit, onUnsettled: 'release' }), await gateway.key('acme')]
      await create(app, key)
      await expectLeft(key, 8000)
      await vi.waitFor(async () => expect(await keysWith(':reserved')).toEqual([]), PATIENT)
      await read(app, key, DONE)
      await expectLeft(key, 9300)
    })

    it('has a key of its caller without the id, which expires', async () => {
      const [app, key] = [appWith(unit), await gateway.key('acme')]
      await create(app, key)
      const [name] = await keysWith(':job:')
      expect(String(name)).toMatch(/^sluice:\{c:acme\}:job:[\da-f]{64}$/)
      expect(await gateway.redis.connection.send(['TTL', name!])).toBeGreaterThan(30 * 86_400)
    })
  })

  it('keeps the estimate if the origin answers too late: it may still be working', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const [app, key] = [appWith(TOTAL, { originDeadline: '1s' }), await gateway.key('acme')]
    api.reply = () => {}
    expect((await app('/', { key })).status).toBe(504)
    api.reply = usage(1)
    await leftBy(app, key)
    await expectLeft(key, 8000 - 1)
    log.mockRestore()
  })

  it('counts nothing if no connection to the origin was made', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const key = await gateway.key('acme')
    const server = createServer().listen(0, '127.0.0.1')
    await new Promise(resolve => server.once('listening', resolve))
    const { port } = server.address() as AddressInfo
    await new Promise(resolve => server.close(resolve))
    const app = appWith(TOTAL, { origin: `http://127.0.0.1:${port}` })
    expect((await app('/', { key })).status).toBe(502)
    await expectLeft(key, 10_000)
    log.mockRestore()
  })

  it('keeps the estimate if the response does not report an amount, and logs it once', async () => {
    const log = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const [app, key] = [appWith(TOTAL, { log: {} }), await gateway.key('acme')]
    api.reply = json({})
    for (const expected of [8000, 6000, 4000]) expect(await leftBy(app, key)).toBe(expected)
    await vi.waitUntil(() => log.mock.calls.length > 0, PATIENT)
    await expectLeft(key, 4000)
    const lines = log.mock.calls.map(([line]) => JSON.parse(line as string))
    log.mockRestore()
    expect(lines).toMatchObject([{ event: 'usage', reason: 'no-usage', unit: 'tokens' }])
  })

  /** Sends a request whose reply is read on, and leaves after its first bytes. Returns its end at the origin. */
  async function leave(app: App, key: string, text: string): Promise<(rest: string) => void> {
    let end: (rest: string) => void = () => {}
    api.reply = (_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write(text)
      end = rest => response.end(rest)
    }
    const client = new AbortController()
    const response = await app('/', { key, signal: client.signal })
    const reader = response.body!.getReader()
    await reader.read()
    client.abort()
    await reader.cancel().catch(() => {})
    return end
  }

  it('reads the reply on after its client has left', async () => {
    const unit: UnitInput = { estimate: 2000, actual: { usage: 'anthropic' } }
    const [app, key] = [appWith(unit), await gateway.key('acme')]
    const end = await leave(app, key, MESSAGE_START)
    end(MESSAGE_END)
    await expectLeft(key, 10_000 - 120)
  })

  it.each(['wait', 'abort'] as const)(
    "counts at least the estimate if a client leaves, with onClientGone: '%s'",
    async onClientGone => {
      const unit: UnitInput = { estimate: 50, actual: { usage: 'openai' } }
      const [app, key] = [appWith(unit, { onClientGone }), await gateway.key('acme')]
      const delta = 'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
      await leave(app, key, delta.repeat(70))
      await expectLeft(key, 10_000 - 70)
      await leave(app, key, delta.repeat(7))
      await leave(app, key, ': ping\n\n')
      await expectLeft(key, 10_000 - 70 - 50 - 50)
    },
  )

  it('reads tokens with weights, and asks the origin for an encoding that can be read', async () => {
    const unit: UnitInput = { estimate: 2000, actual: { usage: 'anthropic', weights: { output: 5 } } }
    const [app, key] = [appWith(unit), await gateway.key('acme')]
    const encodings: unknown[] = []
    api.reply = (request, response) => {
      if (request.method === 'POST') encodings.push(request.headers['accept-encoding'])
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write(MESSAGE_START)
      response.end(MESSAGE_END)
    }
    await leftBy(app, key, { method: 'POST', headers: { 'accept-encoding': 'br, gzip' } })
    await expectLeft(key, 10_000 - 200)
    await leftBy(app, key, { method: 'POST', headers: { 'accept-encoding': 'br' } })
    expect(encodings).toEqual(['gzip', 'identity'])
  })

  it('reads a header, which the client does not get unless the config says so', async () => {
    const key = await gateway.key('acme')
    api.reply = json({}, { 'x-cost': '42' })
    const hidden = appWith({ estimate: 2000, actual: { header: 'X-Cost' } })
    const kept = appWith({ estimate: 2000, actual: { header: 'x-cost', keep: true } })
    expect((await hidden('/', { key })).headers.get('x-cost')).toBeNull()
    expect((await kept('/', { key })).headers.get('x-cost')).toBe('42')
    await expectLeft(key, 10_000 - 2 * 42)
  })

  it('hides the header also from callers that no rule counts', async () => {
    api.reply = json({}, { 'x-cost': '42' })
    const unit: UnitInput = { estimate: 2000, actual: { header: 'x-cost' } }
    const app = appWith(unit, { allow: { consumers: ['friend'] } })
    const response = await app('/', { key: await gateway.key('friend') })
    expect(response.headers.get('RateLimit')).toBeNull()
    expect(response.headers.get('x-cost')).toBeNull()
  })

  it('measures the bytes of the body, and the milliseconds of the response', async () => {
    let now = 5000
    const rules: RuleInput[] = [
      { ...DAY, name: 'bytes', unit: 'bytes' },
      { ...DAY, name: 'ms', unit: 'ms' },
    ]
    const units: ConfigInput['units'] = {
      bytes: { estimate: 2000, actual: 'bytes' },
      ms: { estimate: 2000, actual: 'ms' },
    }
    const config = { origin: api.url, units, rules }
    const app = gateway.app(config, { ...quickTime(), clock: { now: () => now, elapsed: () => now } })
    const peeking = gateway.app({ ...config, hooks: { amounts: () => ({ bytes: 0, ms: 0 }) } })
    const key = await gateway.key('acme')
    api.reply = (_, response) => {
      now += 250
      response.end('x'.repeat(1234))
    }
    const response = await app('/', { key })
    expect(response.headers.get('RateLimit-Policy')).toContain('"bytes";q=10000;qu="content-bytes"')
    await response.text()
    await vi.waitFor(async () => {
      const limits = (await peeking('/', { key })).headers.get('RateLimit')
      expect(limits).toMatch(/"bytes";r=8766;t=\d+, "ms";r=9750;t=\d+/)
    }, PATIENT)
  })

  it('takes amounts from hooks, before the request and after it', async () => {
    const key = await gateway.key('acme')
    const seen: unknown[] = []
    const hooks: ConfigInput['hooks'] = {
      amounts: request => ({ tokens: Number(request.headers.get('x-size')) }),
      actual: ({ ending }, { status, headers }) => {
        seen.push(ending, status, headers.get('x-tokens'))
        return { tokens: 7 }
      },
    }
    const app = appWith({ estimate: 2000, actual: 'hook' }, { hooks })
    api.reply = json({}, { 'x-tokens': '7' })
    expect(await leftBy(app, key, { headers: { 'x-size': '500' } })).toBe(9500)
    await expectLeft(key, 10_000 - 7)
    expect(seen).toEqual(['complete', 200, '7'])
  })

  it.each<[string, ActualHook]>([
    ['throws', () => Promise.reject(new Error('no'))],
    ['takes too long', () => new Promise(() => {})],
    ['returns no amount', () => ({ tokens: -1 })],
  ])('keeps the estimate if the hook %s', async (_, actual) => {
    const log = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const key = await gateway.key('acme')
    const app = appWith({ estimate: 2000, actual: 'hook' }, { hooks: { actual, deadline: '5ms' }, log: {} })
    api.reply = json({})
    await leftBy(app, key)
    await vi.waitUntil(() => log.mock.calls.length > 0, PATIENT)
    expect(JSON.parse(log.mock.calls[0]![0])).toMatchObject({ event: 'usage', reason: 'hook' })
    log.mockRestore()
    await expectLeft(key, 8000)
  })

  it('keeps the estimate if limiting code fails to find the cost', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const key = await gateway.key('acme')
    const createUsageReader: Parts['createUsageReader'] = (...args) => ({
      ...ALL_PARTS.createUsageReader(...args),
      end: () => Promise.reject(new Error('a bug')),
    })
    const onFinish = vi.fn()
    const app = gateway.app(
      { origin: api.url, units: { tokens: TOTAL }, rules: [DAY] },
      { ...quickTime(), parts: { createUsageReader }, reporting: { onFinish } },
    )
    api.reply = usage(731)
    await leftBy(app, key)
    // Without an end, the isolate would renew what is reserved for as long as it lives.
    await vi.waitUntil(() => onFinish.mock.calls.length > 0, PATIENT)
    expect(JSON.parse(log.mock.calls[0]![0])).toMatchObject({ event: 'exception' })
    log.mockRestore()
    await expectLeft(key, 8000)
  })

  it('counts the amount of a hook for good if the unit has no actual amount', async () => {
    const key = await gateway.key('acme')
    const app = appWith({}, { hooks: { amounts: () => ({ tokens: 300 }) } })
    api.reply = usage(5)
    expect(await leftBy(app, key)).toBe(9700)
    expect(await leftBy(app, key)).toBe(9400)
  })

  it('is decided without the store if the hook does not say an amount that has no estimate', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const app = appWith({}, { hooks: { amounts: () => ({}) } }, { onStoreFailure: 'closed' })
    const response = await app('/', { key: await gateway.key('acme') })
    expect(response.status).toBe(503)
    expect(log).toHaveBeenCalledOnce()
    log.mockRestore()
  })

  it("reads the estimate 'llm' from the body of the request, which reaches the origin unchanged", async () => {
    const key = await gateway.key('acme')
    const app = appWith({ estimate: 'llm', actual: { usage: 'openai' } })
    const body = JSON.stringify({
      model: 'm',
      max_tokens: 500,
      messages: [{ role: 'user', content: 'hello' }],
    })
    const received: string[] = []
    const counts = { prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 }
    api.reply = (request, response, text) => {
      received.push(text)
      json({ usage: counts })(request, response, text)
    }
    const reserved = Math.ceil(body.length / 4) + 500
    expect(await leftBy(app, key, { method: 'POST', body })).toBe(10_000 - reserved)
    await expectLeft(key, 10_000 - 30)
    expect(received.filter(Boolean)).toEqual([body])
  })

  const ASKING: UnitInput = { estimate: 'llm', actual: { usage: 'openai', includeUsage: true } }
  const JSON_TYPE = { 'content-type': 'application/json' }

  it.each<[string, string | Uint8Array<ArrayBuffer>, Record<string, string>, number, string]>([
    ['NaN', '{"messages":[],"stream":true,"x":NaN}', JSON_TYPE, 400, 'The body is not JSON at byte 34.'],
    [
      'UTF-16',
      Uint8Array.from(Buffer.from('\ufeff{}', 'utf16le')),
      JSON_TYPE,
      400,
      'The body is UTF-16 or UTF-32.',
    ],
    [
      'a form',
      'a=1',
      { 'content-type': 'application/x-www-form-urlencoded' },
      415,
      'not known what it costs',
    ],
    ['a file', '--a', { 'content-type': 'multipart/form-data; boundary=a' }, 415, 'not known what it costs'],
  ])(
    'refuses a body whose cost cannot be read, before anything is spent: %s',
    async (_, body, headers, status, detail) => {
      const received = vi.fn<Reply>(usage(30))
      api.reply = received
      const key = await gateway.key('acme')
      const response = await appWith(ASKING)('/', { key, method: 'POST', body, headers })
      expect([response.status, response.headers.get('content-type')]).toEqual([status, 'application/json'])
      const { error } = (await response.json()) as { error: { message: string } }
      expect(error.message).toContain(detail)
      expect(received).not.toHaveBeenCalled()
      await expectLeft(key, 10_000)
    },
  )

  it('counts a body that is not JSON as estimateUnreadable, and what the reply reports instead', async () => {
    const key = await gateway.key('acme')
    const app = appWith({ ...ASKING, estimateUnreadable: 700 })
    api.reply = json({ usage: { prompt_tokens: 14, completion_tokens: 45 } })
    const body = new FormData()
    body.set('file', new Blob(['x'.repeat(100_000)]))
    expect(await leftBy(app, key, { method: 'POST', body })).toBe(9300)
    await expectLeft(key, 10_000 - 59)
    api.reply = json({ text: 'hello' })
    const log = vi.spyOn(console, 'warn').mockImplementation(() => {})
    expect(await leftBy(app, key, { method: 'POST', body })).toBe(10_000 - 59 - 700)
    await expectLeft(key, 10_000 - 59 - 700)
    log.mockRestore()
  })

  it.each(['1', '"true"', '{}', 'false,"stream":true'])(
    'charges a stream what it costs, whatever stream says: %s',
    async stream => {
      api.reply = (_, response, text) => {
        const { stream_options: options } = JSON.parse(text || '{}')
        const last = { choices: [], usage: { prompt_tokens: 10, completion_tokens: 2000 } }
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.end(
          options?.include_usage === true ? `data: ${JSON.stringify(last)}\n\n` : 'data: [DONE]\n\n',
        )
      }
      const key = await gateway.key('acme')
      for (const [i, path] of ['/v1/chat/completions', '/v1/completions'].entries()) {
        const body = `{${i ? '"prompt":"a"' : '"messages":[]'},"max_tokens":1,"stream":${stream}}`
        const response = await appWith(ASKING)(path, { key, method: 'POST', body, headers: JSON_TYPE })
        expect(await response.text()).toBe('')
        await expectLeft(key, 10_000 - (i + 1) * 2010)
      }
    },
  )

  /** A body in these chunks. */
  function inChunks(...texts: string[]): RequestInit {
    const chunks = texts.map(text => new TextEncoder().encode(text))
    const body = new ReadableStream({
      pull(controller) {
        const chunk = chunks.shift()
        if (chunk) controller.enqueue(chunk)
        else controller.close()
      },
    })
    return { method: 'POST', body, headers: JSON_TYPE, duplex: 'half' } as RequestInit
  }

  it('charges a large request without usage what its rest says', async () => {
    const log = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const key = await gateway.key('acme')
    api.reply = json({})
    const small = { ...ASKING, estimate: { maxBytes: 10 } }
    const chunks = [`{"messages":["${'x'.repeat(86)}`, `${'x'.repeat(86)}"],"max_tokens":4000}`]
    expect(await leftBy(appWith(small), key, inChunks(...chunks))).toBe(10_000 - 25 - 1000)
    await expectLeft(key, 10_000 - Math.ceil(chunks.join('').length / 4) - 4000)
    log.mockRestore()
  })

  it('refuses a large request whose rest is not JSON, and charges it all the same', async () => {
    const received = vi.fn<Reply>(usage(30))
    api.reply = received
    const key = await gateway.key('acme')
    const small = { ...ASKING, estimate: { maxBytes: 10 } }
    const body = inChunks('{"messages":[],"max_tokens":70', ',"x":NaN}')
    const response = await appWith(small)('/', { key, ...body })
    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject({ detail: expect.stringContaining('is not JSON at byte 36') })
    expect(received).not.toHaveBeenCalled()
    await expectLeft(key, 10_000 - 80)
  })

  it('reserves for a picture what it costs, not its text', async () => {
    const key = await gateway.key('acme')
    api.reply = json({ usage: { prompt_tokens: 1049, completion_tokens: 59 } })
    const url = `data:image/png;base64,${'A'.repeat(900_000)}`
    const content = [{ type: 'image_url', image_url: { url } }]
    const body = JSON.stringify({ max_tokens: 300, messages: [{ role: 'user', content }] })
    const left = await leftBy(appWith(ASKING), key, { method: 'POST', body, headers: JSON_TYPE })
    expect(left).toBeGreaterThan(10_000 - 3779 - 300 - 60)
    await expectLeft(key, 10_000 - 1108)
  })

  it("does not forward a body that its client has broken off, with the estimate 'llm', and counts nothing", async () => {
    const key = await gateway.key('acme')
    const app = appWith({ estimate: 'llm', actual: { usage: 'openai' } })
    const received = vi.fn<Reply>(usage(30))
    api.reply = received
    const body = new ReadableStream({ pull: controller => controller.error(new Error('gone')) })
    const response = await app('/', { key, method: 'POST', body, duplex: 'half' } as RequestInit)
    expect([response.status, leftIn(response)]).toEqual([499, 9000])
    expect(received).not.toHaveBeenCalled()
    await expectLeft(key, 10_000)
  })

  it('breaks off the request to the origin when its client breaks off a large body', async () => {
    const key = await gateway.key('acme')
    const app = appWith({ estimate: 'llm', actual: { usage: 'openai' } })
    const received = vi.fn<Reply>(usage(30))
    api.reply = received
    const chunks = ['{"a":"' + 'x'.repeat(300_000), 'x'].map(text => new TextEncoder().encode(text))
    const body = new ReadableStream({
      pull(controller) {
        const chunk = chunks.shift()
        if (chunk) controller.enqueue(chunk)
        else controller.error(new Error('gone'))
      },
    })
    const response = await app('/', { key, method: 'POST', body, duplex: 'half' } as RequestInit)
    expect(response.status).toBe(499)
    expect(received).not.toHaveBeenCalled()
  })

  it('reserves the whole limit for an estimate above it, or refuses it', async () => {
    const key = await gateway.key('acme')
    api.reply = usage(0)
    const refusing = appWith(
      { ...TOTAL, aboveLimit: 'refuse' },
      { hooks: { amounts: () => ({ tokens: 20_000 }) } },
    )
    const refused = await refusing('/', { key })
    expect(refused.status).toBe(429)
    expect(await refused.json()).toMatchObject({
      detail: expect.stringContaining(
        'This request costs 20000 tokens, which is more than the limit can ever admit.',
      ),
    })
    expect(await leftBy(appWith({ ...TOTAL, estimate: 20_000 }), key)).toBe(0)
    await expectLeft(key, 10_000)
  })

  it('counts beside rules of requests, whose cost does not apply to it, all or nothing', async () => {
    const key = await gateway.key('acme')
    const minute: RuleInput = {
      ...{ name: 'minute', by: 'consumer', limit: 2, period: '300d' },
      algorithm: 'fixed-window',
    }
    const app = appWith(TOTAL, { rules: [DAY, minute], hooks: { cost: () => 2 } })
    api.reply = usage(100)
    const first = await app('/', { key })
    expect(first.headers.get('RateLimit')).toMatch(/"day";r=8000;t=\d+, "minute";r=0/)
    await first.text()
    await expectLeft(key, 9900)
    expect((await app('/', { key })).status).toBe(429)
    await expectLeft(key, 9900)
  })
})

const leftIn = ({ headers }: Response) =>
  Number(/;r=(\d+)/.exec(headers.get('RateLimit') ?? '')?.[1] ?? Number.NaN)

const MESSAGE_END = 'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":20}}\n\n'

const MESSAGE_START =
  'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":100,"output_tokens":1}}}\n\n'

describe('a rule with countIf', () => {
  const gateway = useGateway()
  const api = useApi()

  const status =
    (code: number): Reply =>
    (_, response) =>
      response.writeHead(code).end()

  it('counts only requests with these statuses, so that the right password is always admitted', async () => {
    const app = gateway.app({ origin: api.url, ...OPEN, rules: [LOGINS] })
    const login = async (code: number) => {
      api.reply = status(code)
      return (await app('/login', { address: '192.0.2.1' })).status
    }
    for (let i = 0; i < 6; i++) expect(await login(200)).toBe(200)
    expect([await login(401), await login(403), await login(401)]).toEqual([401, 403, 401])
    expect(await login(200)).toBe(429)
  })

  it('reserves first, so that guesses at once do not exceed the limit', async () => {
    const app = gateway.app({ origin: api.url, ...OPEN, rules: [LOGINS] })
    const held: ServerResponse[] = []
    api.reply = (_, response) => void held.push(response)
    const guesses = Array.from({ length: 10 }, () => app('/login', { address: '192.0.2.1' }))
    await vi.waitUntil(() => held.length === 3, PATIENT)
    for (const response of held) response.writeHead(401).end()
    const statuses = (await Promise.all(guesses)).map(({ status }) => status)
    expect(statuses.toSorted()).toEqual([401, 401, 401, ...Array(7).fill(429)])
  })

  it('counts a request whose client leaves early, so that leaving early hides no guess', async () => {
    const app = gateway.app({
      origin: api.url,
      ...OPEN,
      onClientGone: 'abort',
      rules: [{ ...LOGINS, limit: 1 }],
    })
    let arrived = () => {}
    const isArrived = new Promise<void>(resolve => {
      arrived = resolve
    })
    api.reply = () => arrived()
    const client = new AbortController()
    const left = app('/login', { address: '192.0.2.1', signal: client.signal })
    await isArrived
    client.abort()
    expect((await left).status).toBe(499)
    api.reply = status(200)
    expect((await app('/login', { address: '192.0.2.1' })).status).toBe(429)
  })
})

/** An API whose replies each test plans. */
function useApi(): { url: string; reply: Reply } {
  const api = { url: '', reply: json({}) }
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', chunk => chunks.push(chunk))
    request.on('end', () => api.reply(request, response, Buffer.concat(chunks).toString()))
  })
  beforeAll(async () => {
    await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve))
    api.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  })
  afterAll(() => {
    server.closeAllConnections()
    server.close()
  })
  return api
}
