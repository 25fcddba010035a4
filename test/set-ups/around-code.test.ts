/** The user's code inside a set-up: what it receives and returns, and what happens when it fails. */
import { createServer, request as send } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Hono } from 'hono'
import { cors } from 'hono/cors'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Timer } from '../../src/clock.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { ConfigError } from '../../src/config/config-error.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import { expressGuard, type Middleware } from '../../src/node/express.ts'
import { callerOf, createGuard, guard } from '../../src/set-ups/guard/guard.ts'
import { sluice } from '../../src/set-ups/hono/middleware.ts'
import { type FastStore, startFastStore } from '../support/fast-store.ts'
import { PATIENT } from '../support/patience.ts'

const CONFIG: ConfigInput = {
  store: { deadline: '20s' },
  log: { perSecond: 0 },
  stats: { keep: false },
  credentials: { accept: ['api-key', 'anonymous'] },
  rules: [
    { name: 'hour', by: 'address', algorithm: 'fixed-window', limit: 100, period: '1d' },
    { name: 'at-once', by: 'address', algorithm: 'concurrency', limit: 2, ttl: '60s' },
  ],
}

let store: FastStore
beforeAll(async () => {
  store = await startFastStore()
})
afterAll(() => store.close())
beforeEach(() => store.clear())

const request = (path = '/', init?: RequestInit) => new Request(`https://api.test${path}`, init)
/** The status of a request whose target is sent unchanged. */
const raw = (url: string, path: string, headers: Record<string, string>, method = 'GET') =>
  new Promise<number>((resolve, reject) => {
    const { hostname, port } = new URL(url)
    send({ hostname, port, path, method, headers }, reply => {
      reply.resume()
      resolve(reply.statusCode!)
    })
      .on('error', reject)
      .end()
  })

const settled = () => new Promise(resolve => setImmediate(resolve))

describe('a guard', () => {
  type Handler = (request: Request, ...platform: unknown[]) => Response | Promise<Response>
  // All tests share one guard, as in a module. A second guard would count like a second isolate, and learn of released units with a delay.
  let guardOfModule: ReturnType<typeof guard>
  const guarded = (handler: Handler) => guardOfModule(handler)
  beforeAll(() => {
    guardOfModule = guard(CONFIG, { env: store.env })
  })

  it('refuses a WebSocket that a concurrency rule counts, because nothing reports its end', async () => {
    let opened = 0
    const handler = (config: ConfigInput) =>
      guard(config, { env: store.env })((_: Request) => {
        opened += 1
        return new Response(null)
      })
    const headers = { connection: 'Upgrade', upgrade: 'WebSocket' }
    const counted = handler(CONFIG)
    const reply = await counted(request('/', { headers }))
    expect([reply.status, await reply.json()]).toMatchObject([
      501,
      { detail: expect.stringContaining('concurrency rule') },
    ])
    expect(opened).toBe(0)
    const { rules, ...others } = CONFIG
    const uncounted = handler({ ...others, rules: [rules![0]!] })
    expect((await uncounted(request('/', { headers }))).status).toBe(200)
    expect((await counted(request('/', { headers: { upgrade: 'h2c' } }))).status).toBe(200)
    expect(opened).toBe(2)
    await Promise.all([counted.close(), uncounted.close()])
  })

  it('passes on the request and the arguments of the platform, and reports the caller', async () => {
    const key = await store.createKey('acme')
    let seen: unknown[] = []
    const handler = guarded(async (request, ...platform) => {
      seen = [await request.text(), ...platform, callerOf(request)]
      return new Response('ok')
    })
    const [env, ctx] = [{ SOME: 'binding' }, { waitUntil() {} }]
    const reply = await handler(
      request('/', { method: 'POST', body: 'hello', headers: { 'x-api-key': key } }),
      env,
      ctx,
    )
    expect([reply.status, await reply.text()]).toEqual([200, 'ok'])
    const ALLOWED = {
      ...{ mode: 'enforce', allowed: true, retryAfterMs: 0 },
      resetAfterMs: expect.any(Number),
    }
    expect(seen).toEqual([
      'hello',
      env,
      ctx,
      {
        ...{ requestId: reply.headers.get('x-request-id'), consumer: 'acme', mode: 'live' },
        plan: 'free',
        limits: [
          { ...ALLOWED, name: 'at-once', limit: 2, remaining: 1 },
          { ...ALLOWED, name: 'hour', limit: 100, remaining: 99 },
        ],
      },
    ])
    expect(callerOf(request())).toBeUndefined()
  })

  it('keeps status, headers and body of any reply', async () => {
    for (const reply of [
      new Response(null, { status: 204 }),
      new Response(null, { status: 304, headers: { etag: '"a"' } }),
      new Response('made', { status: 201, headers: { 'set-cookie': 'a=b', location: '/x' } }),
      Response.redirect('https://elsewhere.test/', 302),
      Response.json({ error: 'x' }, { status: 500 }),
    ]) {
      const [status, headers, body] = [reply.status, [...reply.headers], await reply.clone().text()]
      const got = await guarded(() => reply)(request())
      expect([got.status, await got.text()]).toEqual([status, body])
      for (const [name, value] of headers) expect(got.headers.get(name)).toBe(value)
      expect(got.headers.get('ratelimit-policy')).toContain('"hour";q=100')
    }
  })

  it('releases the unit when the body ends or is cancelled, and when the handler throws', async () => {
    const streaming = guarded(
      () => new Response(new ReadableStream({ pull: c => c.enqueue(new Uint8Array(1)) })),
    )
    const throwing = guarded(() => {
      throw new Error('mine')
    })
    for (let i = 0; i < 3; i++) {
      await expect(throwing(request())).rejects.toThrow('mine')
      const held = [await streaming(request()), await streaming(request())]
      expect(held.map(({ status }) => status)).toEqual([200, 200])
      for (const reply of held) await reply.body!.cancel()
      await settled()
    }
    const held = [await streaming(request()), await streaming(request())]
    const refused = await streaming(request())
    expect([refused.status, refused.headers.get('ratelimit-policy')]).toEqual([
      429,
      '"hour";q=100;w=86400, "at-once";q=2;qu="concurrent-requests"',
    ])
    for (const reply of held) await reply.body!.cancel()
  })

  it('reports every mistake of the config at once when it is created, and a missing variable for each request', async () => {
    expect(() => guard({ ...CONFIG, plans: [], environment: 'Live' })).toThrow(ConfigError)
    expect(() => guard({ ...CONFIG, plans: [], environment: 'Live' })).toThrow(/environment: .*\n.*plans: /)
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const handler = vi.fn((_: Request) => new Response('ok'))
    const reply = await guard(CONFIG, { env: {} })(handler)(request())
    expect([reply.status, handler.mock.calls.length]).toEqual([503, 0])
    expect(log.mock.calls[0]![0]).toContain('UPSTASH_REDIS_REST_TOKEN: is missing')
    expect(await reply.json()).toMatchObject({
      detail:
        'Sluice is not configured. Missing or not valid: UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN. The log of this service says how to fix it.',
    })
  })

  it('logs a missing variable at most log.perSecond times a second', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const platform = { clock: { now: () => 1000 } }
    const guarded = createGuard({ ...CONFIG, log: { perSecond: 3 } }, { env: {} }, platform)
    for (let i = 0; i < 10; i++) expect((await guarded(request(), [], expect.fail)).status).toBe(503)
    const lines = log.mock.calls.map(([line]) => String(line)).filter(line => line.startsWith('{'))
    expect(lines.map(line => JSON.parse(line).event)).toEqual(Array(3).fill('misconfigured'))
  })

  it('names missing variables, also those of issuers, when it is created', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    guard(CONFIG, { env: {} })
    expect(log.mock.calls[0]![0]).toContain('UPSTASH_REDIS_REST_URL: is missing. For a Redis of your own')
    const internal = jwt({ secret: 'JWT_SECRET', algorithms: ['HS256'], issuer: 'internal', audience: 'api' })
    const env = { UPSTASH_REDIS_REST_URL: 'https://db.upstash.io', UPSTASH_REDIS_REST_TOKEN: 't' }
    guard({ ...CONFIG, credentials: { jwt: { internal } } }, { env })
    expect(log.mock.calls[1]![0]).toContain('JWT_SECRET: is missing')
    for (const name of Object.keys(env)) vi.stubEnv(name, undefined)
    guard(CONFIG)
    expect(log.mock.calls[2]![0]).toContain('UPSTASH_REDIS_REST_URL: is missing')
    for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value)
    guard(CONFIG)
    expect(log).toHaveBeenCalledTimes(3)
    vi.unstubAllEnvs()
    log.mockRestore()
  })

  it('on Workers does not miss variables before the first request, which brings them', () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    vi.stubGlobal('navigator', { userAgent: 'Cloudflare-Workers' })
    guard(CONFIG)
    vi.unstubAllGlobals()
    expect(log).not.toHaveBeenCalled()
    log.mockRestore()
  })

  it('logs once that addresses are unknown, if a rule depends on them', async () => {
    const lines = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const handler: Handler = () => new Response('ok')
    const ask = async (config: ConfigInput, ...args: unknown[]) => {
      const guarded: Handler = guard(config, { env: store.env })(handler)
      for (let i = 0; i < 3; i++) await guarded(request(), ...args)
      return lines.mock.calls.splice(0).map(([line]) => JSON.parse(line))
    }
    const rule = { name: 'hour', algorithm: 'fixed-window', limit: 100, period: '1d' } as const
    const config: ConfigInput = {
      ...{ stats: { keep: false }, credentials: { accept: ['anonymous'] } },
      rules: [{ ...rule, by: 'address' }],
    }
    expect(await ask(config)).toMatchObject([
      {
        level: 'warn',
        event: 'unknown-address',
        from: 'peer',
        detail: expect.stringMatching(/count as one\. Set address/),
      },
    ])
    expect(
      await ask({ ...config, address: { from: 'x-forwarded-for', trustedProxies: ['10.0.0.0/8'] } }),
    ).toMatchObject([{ event: 'unknown-address' }])
    expect(await ask({ ...config, rules: [{ ...rule, by: 'global' }] })).toEqual([])
    expect(await ask(config, { remoteAddr: { hostname: '192.0.2.1' } })).toEqual([])
    lines.mockRestore()
  })

  it('answers preflights without the handler, unless `passPreflights` is set', async () => {
    const headers = { origin: 'https://app.test', 'access-control-request-method': 'PUT' }
    const preflight = () => request('/', { method: 'OPTIONS', headers })
    const handler = vi.fn((_: Request) => new Response('secret'))
    const reply = await guarded(handler)(preflight())
    expect([reply.status, [...reply.headers], handler.mock.calls.length]).toEqual([204, [], 0])
    const options = { env: store.env, passPreflights: true }
    const passing = guard(CONFIG, options)(request => new Response(String(callerOf(request))))
    const passed = await passing(preflight())
    expect([await passed.text(), passed.headers.get('ratelimit')]).toEqual(['undefined', null])
  })

  it('answers preflights, and refuses other requests with a 503, if the function for the address throws', async () => {
    const address = () => {
      throw new Error('mine')
    }
    vi.spyOn(console, 'error').mockImplementation(() => {})
    const handler = guard(
      { ...CONFIG, onStoreFailure: 'closed' },
      { env: store.env, address },
    )((_: Request) => new Response('ok'))
    const headers = { origin: 'https://app.test', 'access-control-request-method': 'PUT' }
    expect((await handler(request('/', { method: 'OPTIONS', headers }))).status).toBe(204)
    expect((await handler(request())).status).toBe(503)
  })

  it('does not share the headers of a reply that the handler reuses', async () => {
    const none = new Response(null, { status: 204 })
    for (let i = 0; i < 3; i++) await guarded(() => none)(request())
    expect([...none.headers]).toEqual([])
  })

  it('returns unchanged what is not a reply: then a handler of Bun has handed the connection over', async () => {
    const handler = guarded(() => undefined as unknown as Response)
    expect(await handler(request())).toBeUndefined()
    expect((await guarded(() => new Response('ok'))(request())).headers.get('ratelimit')).toContain('r=98')
  })
})

describe('the Hono middleware', () => {
  function appWith(more: (app: Hono) => void): Hono {
    const app = new Hono()
    app.use(async (c, next) => {
      await next()
      c.header('x-outer', 'kept')
    })
    app.use(sluice(CONFIG, { env: store.env, address: () => '192.0.2.1' }))
    app.use(async (c, next) => {
      c.header('x-inner', 'kept')
      await next()
    })
    more(app)
    return app
  }

  it('keeps headers of other middleware, and sets its variables', async () => {
    const app = appWith(app =>
      app.get('/', c => c.json({ ...c.get('rateLimit'), address: c.get('sluice')?.address })),
    )
    const reply = await app.request('/')
    expect(reply.headers.get('x-outer')).toBe('kept')
    expect(reply.headers.get('x-inner')).toBe('kept')
    expect(reply.headers.get('ratelimit')).toMatch(/^"hour";r=99/)
    expect(await reply.json()).toMatchObject({ limit: 2, used: 1, remaining: 1, address: '192.0.2.1' })
  })

  it('annotates the reply of the error handler, and releases the unit', async () => {
    const app = appWith(app => {
      app.get('/', () => {
        throw new Error('mine')
      })
      app.onError((error, c) => c.text(error.message, 418))
    })
    for (let i = 0; i < 4; i++) {
      const reply = await app.request('/')
      expect([reply.status, await reply.text()]).toEqual([418, 'mine'])
      expect(reply.headers.get('ratelimit')).toContain('"hour"')
      await settled()
    }
  })

  it('counts every path that a route handles, if the rule has the pattern of docs/guard.md', async () => {
    const config: ConfigInput = {
      ...CONFIG,
      rules: [
        {
          ...{ name: 'admin', by: 'address', algorithm: 'fixed-window', limit: 100, period: '1d' },
          match: { path: '/admin{/*}?' },
        },
      ],
    }
    const app = new Hono()
    app.use(sluice(config, { env: store.env, address: () => '192.0.2.1' }))
    app.all('/admin/*', c => c.text('admin'))
    const paths = [
      '',
      '/',
      '/x',
      '//',
      '/%',
      '/%ff',
      '/..%2fx',
      '%2f',
      '/x/..',
      '?x',
      '/\\x',
      '%2fx',
      ';/x',
      '%00',
    ]
    const handled: string[] = []
    for (const path of ['/admin', '/%61dmin', '//admin', '/x/../admin'].flatMap(start =>
      paths.map(path => start + path),
    )) {
      const reply = await app.request(`http://api.test${path}`)
      if (reply.status !== 200) continue
      handled.push(path)
      expect(reply.headers.get('ratelimit'), path).toContain('"admin"')
    }
    expect(handled).toEqual(expect.arrayContaining(['/admin', '/admin/', '/%61dmin/x', '/x/../admin']))
  })
})

describe('the Hono middleware, with a refused or dropped reply', () => {
  const ONCE = { name: 'once', by: 'global', algorithm: 'fixed-window', limit: 1, period: '1d' } as const

  it('leaves the refusal in the context, from which other middleware takes it: hono/combine', async () => {
    const limits = sluice({ ...CONFIG, rules: [ONCE] }, { env: store.env })
    const statuses: number[] = []
    const app = new Hono()
    app.use(async (c: Parameters<typeof limits>[0], next) => {
      // `some` of Hono 4.6 to 4.12 drops what the middleware returns.
      await limits(c, next)
      statuses.push(c.finalized ? c.res.status : 0)
    })
    app.get('/', c => c.text('hello', 200, { 'x-app': '1' }))
    for (const status of [200, 429]) expect((await app.request('/')).status).toBe(status)
    expect(statuses).toEqual([200, 429])
  })

  it('keeps headers of earlier middleware, also those that decide which web pages may read the reply', async () => {
    const app = new Hono()
    app.use(cors({ origin: 'https://app.test', credentials: true }))
    app.use(async (c, next) => {
      c.header('x-before', 'kept')
      c.header('set-cookie', 'a=1', { append: true })
      await next()
    })
    app.use(sluice({ ...CONFIG, credentials: { accept: ['api-key'] } }, { env: store.env }))
    app.get('/', c => c.text('secret'))
    const reply = await app.request('/', { headers: { origin: 'https://app.test' } })
    expect([reply.status, ((await reply.json()) as { status: number }).status]).toEqual([401, 401])
    expect(Object.fromEntries(reply.headers)).toMatchObject({
      'access-control-allow-origin': 'https://app.test',
      'access-control-allow-credentials': 'true',
      ...{ 'x-before': 'kept', 'set-cookie': 'a=1' },
      'content-type': 'application/problem+json',
      'www-authenticate': expect.stringContaining('Bearer'),
    })
  })

  it('releases the unit of a reply that outer middleware has dropped unread, and of no other', async () => {
    let pass = () => {}
    const timer: Timer = (ms, run) => {
      // Not the timer of silent bodies, which takes minutes.
      if (ms > 10_000) return () => {}
      pass = run
      return () => {
        pass = () => {}
      }
    }
    const app = new Hono()
    app.use(async (c, next) => {
      await next()
      if (c.req.path === '/dropped') c.res = new Response('another')
    })
    app.use(sluice(CONFIG, { env: store.env, address: () => '192.0.2.4' }, { timer }))
    app.all('*', c =>
      c.body(new ReadableStream({ pull: controller => controller.enqueue(new Uint8Array(1)) })),
    )
    const read = await app.request('/')
    await read.body!.getReader().read()
    pass()
    expect((await app.request('/dropped')).status).toBe(200)
    const drop = pass
    expect((await app.request('/')).status).toBe(429)
    drop()
    await settled()
    expect((await app.request('/')).status).toBe(200)
  })

  it('releases the unit of a HEAD request, whose body Hono drops', async () => {
    const app = new Hono()
    app.use(sluice(CONFIG, { env: store.env, address: () => '192.0.2.2' }))
    app.get('/', c => c.text('hello'))
    for (let i = 0; i < 6; i++) {
      const reply = await app.request('/', { method: 'HEAD' })
      expect([reply.status, reply.headers.get('content-type')]).toEqual([200, 'text/plain;charset=UTF-8'])
    }
  })
})

describe('the Express middleware', () => {
  async function serving(
    app: (req: import('node:http').IncomingMessage, res: import('node:http').ServerResponse) => void,
    use: (url: string) => Promise<void>,
    config = CONFIG,
    middleware: Middleware = expressGuard(config, { env: store.env }),
  ): Promise<void> {
    const server = createServer((req, res) =>
      middleware(req, res, error => (error ? res.destroy() : app(req, res))),
    )
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    try {
      await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    } finally {
      server.closeAllConnections()
      await new Promise(resolve => server.close(resolve))
    }
  }

  it('leaves the body of the request to the app', async () => {
    await serving(
      async (req, res) => {
        const chunks: Buffer[] = []
        for await (const chunk of req) chunks.push(chunk as Buffer)
        res.end(Buffer.concat(chunks))
      },
      async url => {
        const reply = await fetch(url, { method: 'POST', body: 'hello' })
        expect(await reply.text()).toBe('hello')
        expect(reply.headers.get('ratelimit')).toMatch(/^"hour";r=99/)
      },
    )
  })

  it('adds to the lists of other middleware, each value once', async () => {
    const config: ConfigInput = { ...CONFIG, cors: { origins: ['https://app.test'] } }
    const limits = expressGuard(config, { env: store.env })
    const middleware: Middleware = (req, res, next) => {
      res.setHeader('vary', 'Accept-Encoding, ORIGIN')
      res.setHeader('access-control-expose-headers', 'X-Own')
      limits(req, res, next)
    }
    await serving(
      (_, res) => void res.end(),
      async url => {
        const { headers } = await fetch(url, { headers: { origin: 'https://app.test' } })
        expect(headers.get('vary')).toBe('Accept-Encoding, ORIGIN')
        const exposed = headers.get('access-control-expose-headers')!.toLowerCase().split(', ')
        expect(exposed).toEqual(expect.arrayContaining(['x-own', 'ratelimit', 'retry-after']))
        expect(new Set(exposed).size).toBe(exposed.length)
      },
      config,
      middleware,
    )
  })

  it.each([
    ['is admitted', CONFIG, [true]],
    ['is refused', { ...CONFIG, credentials: { accept: ['api-key'] } } satisfies ConfigInput, []],
  ] as const)(
    'leaves a reply alone that other middleware sends while the request %s',
    async (_, config, calls) => {
      const limits = expressGuard(config, { env: store.env })
      const errors: unknown[] = []
      const appCalls: boolean[] = []
      const middleware: Middleware = (req, res, next) => {
        res.end('early')
        limits(req, res, error => {
          if (error) errors.push(error)
          next(error)
        })
      }
      await serving(
        (_, res) => void appCalls.push(res.headersSent),
        async url => {
          for (let i = 1; i <= 3; i++) {
            expect(await (await fetch(url)).text()).toBe('early')
            // The reply has come before the decision. Without the wait, all three requests would be in flight at once.
            await vi.waitUntil(() => appCalls.length === i * calls.length, PATIENT)
          }
          await settled()
          expect([errors, appCalls.every(Boolean)]).toEqual([[], true])
        },
        config,
        middleware,
      )
    },
  )

  it('releases the unit when the response has ended, and when the client has left', async () => {
    let open = 0
    await serving(
      (_, res) => {
        open += 1
        res.once('close', () => {
          open -= 1
        })
        res.write('begun')
      },
      async url => {
        for (let i = 0; i < 3; i++) {
          const gone = new AbortController()
          const held = await Promise.all([1, 2].map(() => fetch(url, { signal: gone.signal })))
          expect(held.map(({ status }) => status)).toEqual([200, 200])
          gone.abort()
          await vi.waitFor(async () => {
            const one = new AbortController()
            const { status } = await fetch(url, { signal: one.signal })
            one.abort()
            expect(status).toBe(200)
          }, PATIENT)
          await vi.waitUntil(() => open === 0, PATIENT)
          await settled()
        }
      },
    )
  })

  it.each<[string, string, Record<string, string>, string?]>([
    ['a path in the host', '/reports/7', { host: 'x/free?' }],
    ['a fragment in the host', '/reports/7', { host: 'x/free#' }],
    ['user information in the host', '/reports/7', { host: 'a@x' }],
    ['dot segments, which the app does not resolve', '/reports/../free', {}],
    ['encoded dot segments', '/reports/%2e%2E/free', {}],
    ['backslashes', '/reports\\..\\free', {}],
    ['a fragment', '/reports/7#/../free', {}],
    ['a target that is not a path', 'reports/7', {}],
  ])('refuses a target that app and limits could read in two ways: %s', async (_, path, headers) => {
    const app = vi.fn((_: unknown, res: import('node:http').ServerResponse) => void res.end('secret'))
    await serving(app, async url => {
      expect([await raw(url, path, headers), app.mock.calls.length]).toEqual([400, 0])
    })
  })

  it('matches a target in absolute form by its path, as the app does', async () => {
    const config: ConfigInput = {
      ...CONFIG,
      credentials: { accept: ['api-key'] },
      routes: [{ name: 'free', match: { path: '/free' }, accept: ['anonymous'] }],
    }
    const app = (_: unknown, res: import('node:http').ServerResponse) => void res.end()
    await serving(
      app,
      async url => {
        expect(await raw(url, 'http://x/reports/7', {})).toBe(401)
        expect(await raw(url, 'http://x/free', {})).toBe(200)
        expect(await raw(url, 'http://x', {})).toBe(400)
      },
      config,
    )
  })

  it('refuses methods that a Request cannot have', async () => {
    await serving(
      (_, res) => void res.end(),
      async url => expect(await raw(url, '/', {}, 'TRACE')).toBe(501),
    )
  })

  it('replies with a 500 if `next` throws, and does not end the process', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const app = () => {
      throw new Error('mine')
    }
    await serving(app, async url => {
      for (let i = 0; i < 4; i++) expect((await fetch(url)).status).toBe(500)
      expect(log.mock.calls[0]).toEqual([new Error('mine')])
    })
  })

  it.each([
    ['203.0.113.7', '203.0.113.7'],
    ['203.0.113.7:5555', '203.0.113.7'],
    ['[2001:db8::7]:443', '2001:db8::7'],
    ['::ffff:203.0.113.7', '203.0.113.7'],
    ['203.0.113.7:5555, 198.51.100.9', undefined],
    ['unknown', undefined],
  ])('counts a caller by its address, without the port of its connection: %s', async (text, counted) => {
    await serving(
      (req, res) => void res.end(String(req.sluice?.address)),
      async url => expect(await (await fetch(url)).text()).toBe(String(counted)),
      CONFIG,
      expressGuard(CONFIG, { env: store.env, address: () => text }),
    )
  })

  it('replies with a 503 if the address cannot be read', async () => {
    const address = () => {
      throw new Error('no proxy')
    }
    await serving(
      (_, res) => void res.end(),
      async url => expect((await fetch(url)).status).toBe(503),
      CONFIG,
      expressGuard(CONFIG, { env: store.env, address }),
    )
  })

  it('releases the unit of a client that has left before the guard was reached', async () => {
    const app = vi.fn((_: unknown, res: import('node:http').ServerResponse) => void res.end('ok'))
    const left: Promise<unknown>[] = []
    const guarded = expressGuard(CONFIG, { env: store.env, address: () => '192.0.2.3' })
    const slowly: Middleware = (req, res, next) => {
      const closed = new Promise(resolve => res.once('close', resolve))
      if (req.url !== '/slow') return guarded(req, res, next)
      left.push(closed.then(() => new Promise<void>(resolve => guarded(req, res, () => resolve(next())))))
    }
    await serving(
      app,
      async url => {
        for (let i = 0; i < 4; i++) {
          const gone = new AbortController()
          const lost = fetch(`${url}/slow`, { signal: gone.signal }).catch(() => {})
          await vi.waitFor(() => expect(left).toHaveLength(i + 1), PATIENT)
          gone.abort()
          await lost
        }
        // Soon, and long before the ttl: each of them holds its unit while the store decides it.
        await expect.poll(async () => (await fetch(url)).text(), PATIENT).toBe('ok')
      },
      CONFIG,
      slowly,
    )
  })

  it("sends every cookie and byte of a hook's refusal", async () => {
    const refusal = () =>
      new Response(new Uint8Array([0xff, 0xfe, 0x80, 1]), {
        status: 420,
        headers: [
          ['set-cookie', 'a=1'],
          ['set-cookie', 'b=2'],
        ],
      })
    await serving(
      (_, res) => void res.end(),
      async url => {
        const reply = await fetch(url)
        expect(reply.headers.getSetCookie()).toEqual(['a=1', 'b=2'])
        expect([...new Uint8Array(await reply.arrayBuffer())]).toEqual([0xff, 0xfe, 0x80, 1])
      },
      { ...CONFIG, hooks: { refusal }, credentials: { accept: ['api-key'] } },
    )
  })
})
