/** Hooks of the config: their effect, and requests for which one of them fails. */
import { beforeEach, describe, expect, it, vi } from 'vitest'
import type { ConfigInput, HooksInput, RuleInput } from '../../src/config/check/schema.ts'
import type { HookContext, RefusalInfo } from '../../src/config/hooks.ts'
import { formatConsumer } from '../../src/store/records.ts'
import { useGateway } from '../support/gateway.ts'

const gateway = useGateway()

const TEN = { name: 'ten', by: 'consumer', algorithm: 'fixed-window', limit: 10, period: '300d' } as const
const TEN_BY_ADDRESS = { ...TEN, by: 'address' } as const
const ANYONE = { accept: ['identify', 'anonymous'] }

interface Problem {
  title: string
  detail: string
}

const byUser = (request: Request) => request.headers.get('x-user') ?? undefined
const as = (user: string) => ({ headers: { 'x-user': user } })
const received = () => gateway.origin.received.at(-1)?.headers ?? {}
const left = (response: Response) => Number(/r=(\d+)/.exec(response.headers.get('ratelimit') ?? '')?.[1])
const keys = async () => ((await gateway.redis.connection.send(['KEYS', '*'])) as Buffer[]).map(String).sort()

const app = (hooks: HooksInput, config: Partial<ConfigInput> = {}, env: Record<string, unknown> = {}) =>
  gateway.app({ plans: ['free', 'pro'], rules: [TEN], hooks, ...config }, { variables: env })

const errors = vi.fn<(line: string) => void>()
const warnings = vi.fn<(line: string) => void>()
beforeEach(() => {
  errors.mockReset()
  warnings.mockReset()
  vi.spyOn(console, 'error').mockImplementation(errors)
  vi.spyOn(console, 'warn').mockImplementation(warnings)
})

describe('identify', () => {
  it('names a consumer of its own kind, which is counted and reported to the origin', async () => {
    const ask = app({ identify: byUser })
    expect((await ask('/', as('alice'))).status).toBe(200)
    expect(received()).toMatchObject({ 'x-consumer-id': 'identify~alice', 'x-consumer-plan': 'free' })
    expect(left(await ask('/', as('alice')))).toBe(8)
    expect(left(await ask('/', as('bob')))).toBe(9)
    expect(await keys()).toEqual(['sluice:{c:identify~alice}:state', 'sluice:{c:identify~bob}:state'])
  })

  it('takes one HTTP request to the store', async () => {
    const ask = app({ identify: async request => byUser(request) })
    await ask('/', as('alice'))
    gateway.store.count()
    await ask('/', as('alice'))
    expect(gateway.store.count()).toBe(1)
  })

  it.each([
    ['a consumer of API keys', 'acme', 'identify~acme'],
    ['a consumer of tokens', 'auth0~7', 'identify~auth0%7E7'],
    ['a part of another store key', 'a}:state{c:acme}', 'identify~a%7D%3Astate%7Bc%3Aacme%7D'],
    ['a consumer that only the store knows', '?', 'identify~%3F'],
    ['text of any length', 'x'.repeat(500), expect.stringMatching(/^identify~#[0-9a-f]{64}$/)],
  ])('cannot name %s', async (_, name, consumer) => {
    const ask = app({ identify: () => name })
    await ask('/')
    expect(received()['x-consumer-id']).toEqual(consumer)
    expect(await keys()).toEqual([`sluice:{c:${received()['x-consumer-id']}}:state`])
  })

  it('is called only without a credential, and an invalid credential is refused', async () => {
    const identify = vi.fn(byUser)
    const ask = app({ identify })
    const key = await gateway.key('acme')
    await ask('/', { key, ...as('alice') })
    expect(received()['x-consumer-id']).toBe('acme')
    expect((await ask('/', { key: `${key}x`, ...as('alice') })).status).toBe(401)
    expect(identify).not.toHaveBeenCalled()
  })

  it('receives a bearer token that is not an API key, and so does the origin', async () => {
    const ask = app({
      identify: request => request.headers.get('authorization')?.replace('Bearer session-', ''),
    })
    expect((await ask('/', { key: 'session-7' })).status).toBe(200)
    expect(received()).toMatchObject({ 'x-consumer-id': 'identify~7', authorization: 'Bearer session-7' })
  })

  it('need not name a consumer: the caller is then anonymous if the config accepts that, else gets a 401 with instructions', async () => {
    const response = await app({ identify: () => null })('/')
    expect([response.status, ((await response.json()) as Problem).detail]).toEqual([
      401,
      expect.stringMatching(
        /^Send what identifies you to this service \(such as a session cookie\), or an API key/,
      ),
    ])
    const ask = app({ identify: () => undefined }, { rules: [TEN_BY_ADDRESS], credentials: ANYONE })
    expect((await ask('/')).status).toBe(200)
    expect(received()).not.toHaveProperty('x-consumer-id')
  })

  it('is called only on routes that accept it', async () => {
    const ask = app(
      { identify: byUser },
      {
        credentials: { accept: ['api-key'] },
        routes: [{ name: 'app', match: { path: '/app/*' }, accept: ['identify'] }],
      },
    )
    expect((await ask('/app/x', as('alice'))).status).toBe(200)
    expect((await ask('/api', as('alice'))).status).toBe(401)
    expect((await ask('/app/x', { key: await gateway.key('acme') })).status).toBe(401)
  })

  it('names a consumer that can be blocked, have overrides, and a plan', async () => {
    const ask = app({ identify: byUser }, { rules: [{ ...TEN, plans: { pro: { limit: 100 } } }] })
    const put = (consumer: Parameters<typeof formatConsumer>[0]) =>
      gateway.redis.connection.send(['SET', 'sluice:{c:identify~alice}:consumer', formatConsumer(consumer)])
    await put({ plan: 'pro', overrides: [] })
    expect(left(await ask('/', as('alice')))).toBe(99)
    await put({ plan: 'pro', overrides: [], blockedAt: new Date() })
    expect((await ask('/', as('alice'))).status).toBe(403)
  })
})

describe('a hook', () => {
  it('receives the request without its body, the environment, the route and the caller', async () => {
    const seen: { text: string; context: HookContext; url: string }[] = []
    const skip: HooksInput['skip'] = async (request, context) => {
      seen.push({ text: await request.text(), context, url: request.url })
      request.headers.set('x-added', 'by a hook')
      return false
    }
    const routes = [{ name: 'app', match: { path: '/app/*' } }]
    const ask = app({ skip }, { routes }, { COLOR: 'blue' })
    await ask('/app/1?q=2', {
      key: await gateway.key('acme'),
      method: 'POST',
      body: 'secret',
      address: '192.0.2.1',
    })
    expect(seen).toEqual([
      {
        text: '',
        url: 'http://gateway.test/app/1?q=2',
        context: {
          env: { COLOR: 'blue' },
          host: undefined,
          route: 'app',
          consumer: 'acme',
          mode: 'live',
          address: '192.0.2.1',
        },
      },
    ])
    expect(gateway.origin.received.at(-1)).toMatchObject({ bodyBytes: 6 })
    expect(received()).not.toHaveProperty('x-added')
  })
})

describe('skip', () => {
  it('admits a request without counting it, but not without a credential', async () => {
    const ask = app({ skip: request => request.url.endsWith('/free') })
    const key = await gateway.key('acme')
    for (let i = 0; i < 12; i++) expect((await ask('/free', { key })).status).toBe(200)
    expect(left(await ask('/', { key }))).toBe(9)
    expect((await ask('/free')).status).toBe(401)
  })

  it('still counts guesses', async () => {
    const guesses: RuleInput = { ...TEN, name: 'guesses', by: 'address', limit: 2, on: 'auth-failure' }
    const ask = app({ skip: () => true }, { rules: [TEN, guesses] })
    const key = await gateway.key('acme')
    await gateway.redis.connection.send(['FLUSHALL'])
    const statuses = []
    for (let i = 0; i < 3; i++) statuses.push((await ask('/', { key, address: '192.0.2.1' })).status)
    expect(statuses).toEqual([401, 401, 429])
  })
})

describe('cost', () => {
  it('replaces the cost of the route, and multiplies that of each rule', async () => {
    const contexts: number[] = []
    const ask = app(
      {
        cost: (request, { cost }) => {
          contexts.push(cost)
          return Number(request.headers.get('x-cost'))
        },
      },
      {
        rules: [{ ...TEN, cost: 2, limit: 100 }],
        routes: [{ name: 'dear', match: { path: '/dear' }, cost: 7 }],
      },
    )
    const key = await gateway.key('acme')
    const paying = async (cost: number, path = '/') =>
      left(await ask(path, { key, headers: { 'x-cost': String(cost) } }))
    expect([await paying(3), await paying(0), await paying(5, '/dear')]).toEqual([94, 94, 84])
    expect(contexts).toEqual([1, 1, 7])
  })

  it('above every limit is refused without a retry time, and charges nothing', async () => {
    const ask = app({ cost: () => 1e9 }, { rules: [{ ...TEN, cost: 1e9, limit: 1e9 }] })
    const response = await ask('/', { key: await gateway.key('acme') })
    expect([response.status, response.headers.get('retry-after')]).toEqual([429, null])
    expect(left(response)).toBe(1e9)
  })
})

describe('plan', () => {
  const rules: RuleInput[] = [{ ...TEN_BY_ADDRESS, plans: { pro: { limit: 100 } } }]
  const ofHeader: HooksInput['plan'] = request => request.headers.get('x-plan')

  it('applies to a caller that `identify` has named, and takes precedence over a stored plan', async () => {
    const ask = app(
      { identify: byUser, plan: ofHeader },
      { rules: [{ ...TEN, plans: { pro: { limit: 100 } } }] },
    )
    await gateway.redis.connection.send([
      ...['SET', 'sluice:{c:identify~alice}:consumer', formatConsumer({ plan: 'pro', overrides: [] })],
    ])
    const on = async (plan: string) =>
      left(await ask('/', { headers: { 'x-user': 'alice', 'x-plan': plan } }))
    expect(left(await ask('/', as('alice')))).toBe(99)
    expect(await on('free')).toBe(8)
    expect(received()['x-consumer-plan']).toBe('free')
    expect(await on('pro')).toBe(97)
  })

  it('applies to an anonymous caller, who is counted by rules without plans and rules of the plan', async () => {
    const ofPro: RuleInput = { ...TEN_BY_ADDRESS, name: 'pro', match: { plans: ['pro'] } }
    const ofFree: RuleInput = { ...TEN_BY_ADDRESS, name: 'free', match: { plans: ['free'] } }
    const ask = app(
      { plan: ofHeader },
      { rules: [...rules, ofPro, ofFree], credentials: { accept: ['anonymous'] } },
    )
    const limits = async (plan?: string) =>
      (await ask('/', { address: '192.0.2.1', ...(plan && { headers: { 'x-plan': plan } }) })).headers.get(
        'ratelimit',
      )
    expect(await limits('pro')).toMatch(/^"ten";r=99;t=\d+, "pro";r=9;t=\d+$/)
    expect(await limits('free')).toMatch(/^"ten";r=8;t=\d+, "free";r=9;t=\d+$/)
    expect(await limits()).toMatch(/^"ten";r=7;t=\d+$/)
    expect(received()).not.toHaveProperty('x-consumer-plan')
  })

  it('applies to anonymous callers while the store fails', async () => {
    const ask = app({ plan: () => 'pro' }, { rules, credentials: { accept: ['anonymous'] } })
    gateway.store.fault = (_, response) => void response.writeHead(500).end()
    const response = await ask('/', { address: '192.0.2.1' })
    expect([response.headers.has('sluice-degraded'), left(response)]).toEqual([true, 99])
  })

  it('is not called for a key or a token with a plan', async () => {
    const plan = vi.fn(() => 'pro')
    const ask = app({ plan })
    await ask('/', { key: await gateway.key('acme', 'free') })
    expect(received()['x-consumer-plan']).toBe('free')
    expect(plan).not.toHaveBeenCalled()
  })
})

describe('refusal', () => {
  const full = async (refusal: HooksInput['refusal'], config: Partial<ConfigInput> = {}) => {
    const ask = app({ refusal }, { rules: [{ ...TEN, limit: 1 }], ...config })
    const key = await gateway.key('acme')
    await ask('/', { key })
    return await ask('/', { key, headers: { origin: 'https://app.example.com' } })
  }

  it('replaces the body, and keeps status and headers', async () => {
    const response = await full(() => 'slow down')
    expect([response.status, await response.text()]).toEqual([429, 'slow down'])
    const { headers } = response
    expect(headers.get('content-type')).toMatch(/^text\/plain/)
    expect(headers.get('cache-control')).toBe('no-store')
    expect(Number(headers.get('retry-after'))).toBeGreaterThan(0)
    expect(headers.get('ratelimit')).toMatch(/^"ten";r=0;t=\d+$/)
    expect(headers.get('ratelimit-policy')).toMatch(/^"ten";q=1;w=25920000$/)
    expect(headers.get('x-request-id')).toBeTruthy()
    expect(headers.get('access-control-expose-headers')).toContain('RateLimit')
  })

  it('can return another reply, which gets the headers that it does not set itself', async () => {
    const response = await full(() => Response.redirect('https://example.com/pricing', 303))
    expect([response.status, response.headers.get('location')]).toEqual([303, 'https://example.com/pricing'])
    expect(response.headers.has('retry-after')).toBe(true)
    const own = await full(() =>
      Response.json({ error: 'quota' }, { status: 420, headers: { 'retry-after': '9' } }),
    )
    expect([own.status, own.headers.get('retry-after'), await own.json()]).toEqual([
      420,
      '9',
      { error: 'quota' },
    ])
    expect(own.headers.get('ratelimit')).toMatch(/^"ten"/)
  })

  it('receives the reason, and may read the reply that it would replace', async () => {
    const infos: RefusalInfo[] = []
    const response = await full(async (info, reply) => {
      infos.push(info)
      expect(((await reply.json()) as Problem).title).toBe('Quota Exceeded')
      return undefined
    })
    expect(((await response.json()) as Problem).title).toBe('Quota Exceeded')
    expect(infos).toMatchObject([
      { outcome: 'limited', policies: ['ten'], consumer: 'acme', retryAfterSeconds: expect.any(Number) },
    ])
    expect(infos[0]!.requestId).toBe(response.headers.get('x-request-id'))
  })

  it.each<[number, string, Partial<ConfigInput>, RequestInit & { key?: string }]>([
    [401, 'unauthenticated', {}, {}],
    [
      403,
      'forbidden',
      { block: { addresses: ['192.0.2.1'] } },
      { headers: { 'cf-connecting-ip': '192.0.2.1' } },
    ],
  ])('is called for a %i (%s), and its headers are kept', async (status, outcome, config, init) => {
    const ask = app({ refusal: info => info.outcome }, config)
    const response = await ask('/', init)
    expect([response.status, await response.text()]).toEqual([status, outcome])
    expect(response.headers.has('www-authenticate')).toBe(status === 401)
  })

  it('is called for a 503', async () => {
    const ask = app(
      { refusal: info => info.outcome },
      { rules: [{ ...TEN_BY_ADDRESS, onStoreFailure: 'closed' }], credentials: { accept: ['anonymous'] } },
    )
    gateway.store.fault = (_, response) => void response.writeHead(500).end()
    const response = await ask('/')
    expect([response.status, await response.text()]).toEqual([503, 'failed_closed'])
    expect(response.headers.get('retry-after')).toBe('1')
  })

  it('is skipped if the request cannot be copied', async () => {
    const refusal = vi.fn(() => 'no')
    vi.stubGlobal(
      'Request',
      class extends Request {
        constructor(input: string | Request, init?: RequestInit) {
          // Only the copy for a hook has a text as URL and a signal.
          if (typeof input === 'string' && init?.signal) throw new TypeError('not copied')
          super(input, init)
        }
      },
    )
    expect((await app({ refusal })('/')).status).toBe(401)
    expect(refusal).not.toHaveBeenCalled()
  })

  it.each<[string, HooksInput['refusal']]>([
    [
      'throws',
      () => {
        throw new TypeError('x')
      },
    ],
    [
      'rejects',
      async () => {
        throw new TypeError('x')
      },
    ],
    ['returns nonsense', () => ({ error: 'quota' }) as never],
    [
      'returns a reply whose body was read',
      async () => {
        const used = new Response('x')
        await used.text()
        return used
      },
    ],
    ['never returns', () => new Promise<never>(() => {})],
  ])('that %s keeps the reply of the gateway', async (_, refusal) => {
    const ask = app({ refusal, deadline: '20ms' })
    const response = await ask('/')
    expect([response.status, ((await response.json()) as Problem).title]).toEqual([401, 'Unauthorized'])
    expect((await ask('/')).status).toBe(401)
    expect(errors.mock.calls.map(([line]) => JSON.parse(line))).toMatchObject([
      { event: 'hook', hook: 'refusal' },
    ])
  })

  it('is not called for admitted requests, or for refusals of the origin', async () => {
    const refusal = vi.fn(() => 'no')
    const ask = app({ refusal })
    await ask('/error', { key: await gateway.key('acme') })
    expect(refusal).not.toHaveBeenCalled()
  })
})

class Broken extends Error {
  override readonly name = 'Broken'
}
const broken = (): never => {
  throw new Broken('alice@example.com')
}

/** Each hook, with each kind of failure. */
const FAILURES: [string, HooksInput][] = [
  ['skip that throws', { skip: broken }],
  ['skip that returns text', { skip: () => 'false' as never }],
  ['cost that throws', { cost: broken }],
  ['cost that rejects', { cost: async () => broken() }],
  ['cost that never returns', { cost: () => new Promise<never>(() => {}) }],
  ...[-1, 0.5, Number.NaN, 1e9 + 1, '5', undefined, Infinity].map((cost): [string, HooksInput] => [
    `cost that returns ${cost}`,
    { cost: () => cost as never },
  ]),
  ['plan that throws', { plan: broken }],
  ['plan that returns an unknown plan', { plan: () => 'gold' }],
  ['identify that throws', { identify: broken }],
  ['identify that returns a number', { identify: () => 7 as never }],
  ['identify that returns an empty text', { identify: () => '' }],
]

describe.each(FAILURES)('a hook %s', (_, hooks) => {
  const credentials = { accept: hooks.identify ? ANYONE.accept : ['anonymous'] }
  const asking = (onStoreFailure: RuleInput['onStoreFailure']) =>
    app(
      { ...hooks, deadline: '20ms' },
      {
        credentials,
        rules: [{ ...TEN_BY_ADDRESS, limit: 2, onStoreFailure } as RuleInput],
        log: { perSecond: 5 },
      },
    )

  it('refuses the request under `closed`', async () => {
    const response = await asking('closed')('/', { address: '192.0.2.1' })
    expect([response.status, response.headers.get('sluice-degraded')]).toEqual([503, 'internal'])
    expect(gateway.origin.received).toHaveLength(0)
  })

  it('lets the isolate count the request under `local`, and admits it under `open`', async () => {
    const statuses = async (ask: ReturnType<typeof asking>) => {
      const all = []
      for (let i = 0; i < 3; i++) {
        const response = await ask('/', { address: '192.0.2.1' })
        all.push([response.status, response.headers.get('sluice-degraded')])
      }
      return all
    }
    expect(await statuses(asking('local'))).toEqual([
      [200, 'internal'],
      [200, 'internal'],
      [429, 'internal'],
    ])
    expect(await statuses(asking('open'))).toEqual([
      [200, 'internal'],
      [200, 'internal'],
      [200, 'internal'],
    ])
  })

  it('is logged once with its place, and never with its message', async () => {
    const ask = asking('open')
    for (let i = 0; i < 3; i++) await ask('/')
    const [hook] = Object.keys(hooks)
    const lines = errors.mock.calls.map(([line]) => JSON.parse(line))
    expect(lines).toMatchObject([{ level: 'error', event: 'hook', hook }])
    const degraded = warnings.mock.calls
      .map(([line]) => JSON.parse(line))
      .filter(({ event }) => event !== 'unknown-address')
    expect(degraded).toHaveLength(3)
    expect(degraded[0]).toMatchObject({
      cause: 'internal',
      detail: expect.stringContaining(`The hook '${hook}' failed. It `),
    })
    if (hooks[hook as 'skip'] === broken) expect(lines[0].error).toMatch(/^Broken\n\s+at .*hooks\.test/)
    expect(JSON.stringify([lines, degraded])).not.toContain('alice')
  })
})

describe('identify that fails', () => {
  it('refuses every request if a credential is needed, with any `onStoreFailure`', async () => {
    for (const onStoreFailure of ['open', 'local', 'closed'] as const) {
      const ask = app({ identify: broken }, { rules: [{ ...TEN, onStoreFailure }] })
      const response = await ask('/')
      expect([response.status, response.headers.get('sluice-degraded')]).toEqual([503, 'internal'])
    }
    expect(gateway.origin.received).toHaveLength(0)
  })
})

it('a hook that fails cannot admit a credential that was never verified', async () => {
  const ask = app({ cost: broken }, { rules: [{ ...TEN, onStoreFailure: 'open' }] })
  const key = await gateway.key('acme')
  // After the failure the store is not asked, as in an outage, and this isolate has not verified the key before.
  expect((await ask('/', { key })).status).toBe(503)
})
