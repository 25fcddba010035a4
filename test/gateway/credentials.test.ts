/** Credentials of a request: the order of methods, routes, environments, lists, and guessing. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import { sha256 } from '../../src/sha256.ts'
import { credentialKey, pointerKey } from '../../src/store/keys.ts'
import { formatConsumer } from '../../src/store/records.ts'
import { credentialOf } from '../support/engines.ts'
import { useGateway } from '../support/gateway.ts'
import { type KeyServer, type SigningKey, sign, signingKey, startKeyServer } from '../support/key-server.ts'

const gateway = useGateway()
let keys: KeyServer
let signer: SigningKey
beforeAll(async () => {
  signer = await signingKey('ES256', 'one')
  keys = await startKeyServer(signer.jwk)
})
afterAll(() => keys?.close())

const set = (key: string, text: string) => gateway.redis.connection.send(['SET', key, text])
const received = () => gateway.origin.received.at(-1)!.headers

const TEN: RuleInput = { name: 'ten', by: 'consumer', algorithm: 'fixed-window', limit: 10, period: '300d' }
const ISSUER = 'https://issuer.example.com/'
const SECRET = 'a secret of the tests, of 32 bytes and some more'

const auth0 = () =>
  jwt({
    jwks: keys.url,
    algorithms: ['ES256'],
    issuer: ISSUER,
    audience: 'api',
    claims: { plan: 'tier' },
    plans: { gold: 'pro' },
  })
const internal = () =>
  jwt({ secret: 'JWT_SECRET', algorithms: ['HS256'], issuer: 'internal', audience: 'api' })
const access = () => jwt({ access: 'https://team.cloudflareaccess.com', audience: 'tag' })

const token = (claims: Record<string, unknown> = {}) =>
  sign({ iss: ISSUER, aud: 'api', sub: 'auth0|7', exp: Date.now() / 1e3 + 300, ...claims }, signer)

const app = (config: Partial<ConfigInput> = {}) =>
  gateway.app({ plans: ['free', 'pro'], rules: [TEN], ...config }, { variables: { JWT_SECRET: SECRET } })

describe('a token', () => {
  const withTokens = () => app({ credentials: { jwt: { auth0: auth0(), internal: internal() } } })

  it('has a consumer of its own, and the plan that it claims', async () => {
    const ask = withTokens()
    const rules: RuleInput[] = [{ ...TEN, plans: { pro: { limit: 99 } } }]
    const response = await app({ rules, credentials: { jwt: { auth0: auth0() } } })('/', {
      key: await token({ tier: 'gold' }),
    })
    expect([response.status, response.headers.get('ratelimit')]).toEqual([
      200,
      expect.stringContaining('"ten";r=98;'),
    ])
    expect(received()).toMatchObject({ 'x-consumer-id': 'auth0~auth0%7C7', 'x-consumer-plan': 'pro' })
    expect(received()).not.toHaveProperty('authorization')
    // A tier that is not a plan is ignored, whatever it contains.
    const consumerAndPlan = async (tier: string) => {
      await ask('/', { key: await token({ tier }) })
      return [received()['x-consumer-id'], received()['x-consumer-plan']]
    }
    expect(await consumerAndPlan('free pro')).toEqual(['auth0~auth0%7C7', 'free'])
    await set('sluice:{c:auth0~auth0%7C7}:consumer', formatConsumer({ plan: 'pro', overrides: [] }))
    expect(await consumerAndPlan('nonsense')).toEqual(['auth0~auth0%7C7', 'pro'])
  })

  it('costs one HTTP request to the store, and the keys of the issuer are fetched once', async () => {
    const ask = withTokens()
    await ask('/', { key: await token() })
    gateway.store.count()
    const before = keys.fetches
    for (let i = 0; i < 3; i++) expect((await ask('/', { key: await token() })).status).toBe(200)
    expect([gateway.store.count(), keys.fetches - before]).toEqual([3, 0])
  })

  it('is verified with the keys of its own issuer, and no issuer can name a consumer of another issuer or of an API key', async () => {
    const ask = withTokens()
    const own = await sign(
      { iss: 'internal', aud: 'api', sub: 'auth0~7', exp: Date.now() / 1e3 + 300 },
      { kid: 'x', alg: 'HS256', privateKey: new TextEncoder().encode(SECRET) },
    )
    expect((await ask('/', { key: own })).status).toBe(200)
    expect(received()['x-consumer-id']).toBe('internal~auth0%7E7')
    await ask('/', { key: await token({ sub: 'acme' }) })
    expect(received()['x-consumer-id']).toBe('auth0~acme')
  })

  const INVALID = 'Bearer realm="sluice", error="invalid_token"'
  const UNVERIFIED =
    'The token is not accepted: its issuer, its key, its algorithm or its signature is wrong. Get a new one.'
  const LACKS_CLAIM = 'The token lacks a claim that this API needs, or the claim is not valid. Get a new one.'

  it.each([
    ['expired', { exp: 1 }, 'The token has expired. Get a new one.'],
    ['not-yet-valid', { nbf: 4e9 }, 'The token is not valid yet. Try again later.'],
    ['wrong-audience', { aud: 'other' }, 'The token is for another audience. Get one for this API.'],
    ['bad-claim', { nbf: 'now' }, LACKS_CLAIM],
    ['no-consumer', { sub: '' }, LACKS_CLAIM],
    ['wrong-issuer', { iss: 'who' }, UNVERIFIED],
    ['bad-signature', {}, UNVERIFIED],
  ])(
    'that is refused gets a 401, and the log has the reason %s, without a trip to the store',
    async (reason, claims, detail) => {
      const info = vi.spyOn(console, 'info').mockImplementation(() => {})
      const ask = app({
        credentials: { jwt: { auth0: auth0() }, accept: ['auth0', 'api-key', 'anonymous'] },
        log: {},
      })
      const text = await token(claims)
      const response = await ask('/', { key: reason === 'bad-signature' ? text.slice(0, -8) : text })
      const described = reason === 'expired' ? `${INVALID}, error_description="The token expired"` : INVALID
      expect([response.status, response.headers.get('www-authenticate')]).toEqual([401, described])
      expect(await response.json()).toMatchObject({ detail })
      expect(JSON.parse(info.mock.calls[0]![0])).toMatchObject({ event: 'refused', reason })
      expect(gateway.store.count()).toBe(0)
      info.mockRestore()
    },
  )

  it.each([
    [
      'of an issuer that the route does not accept',
      () => ({ jwt: { auth0: auth0(), internal: internal() }, accept: ['internal'] }),
    ],
    ['where only API keys are accepted', () => ({ accept: ['api-key'] })],
  ])('%s is not accepted, and not called malformed', async (_, credentials) => {
    const config = { credentials: credentials(), log: {} }
    const info = vi.spyOn(console, 'info').mockImplementation(() => {})
    const response = await app(config)('/', { key: await token() })
    expect(await response.json()).toMatchObject({ detail: expect.stringMatching(/^This kind of credential/) })
    expect(JSON.parse(info.mock.calls[0]![0])).toMatchObject({ event: 'refused', reason: 'not-accepted' })
    info.mockRestore()
  })

  it('whose issuer does not answer gets a 503 and a log line', async () => {
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const gone = jwt({ jwks: 'http://127.0.0.1:1/', algorithms: ['ES256'], issuer: ISSUER, audience: 'api' })
    const response = await app({ credentials: { jwt: { gone } }, log: {} })('/', { key: await token() })
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '5'])
    const [line] = warn.mock.calls.map(([text]) => JSON.parse(text))
    expect(line).toMatchObject({
      level: 'warn',
      event: 'issuer',
      request_id: response.headers.get('x-request-id'),
    })
    warn.mockRestore()
  })

  it('has a consumer that can be blocked like any other', async () => {
    const ask = withTokens()
    await set('sluice:{c:auth0~auth0%7C7}:consumer', formatConsumer({ blockedAt: new Date(), overrides: [] }))
    const response = await ask('/', { key: await token() })
    expect([response.status, await response.json()]).toMatchObject([
      403,
      { detail: 'This consumer is blocked. Contact the operator of the service.' },
    ])
    expect(gateway.origin.received).toEqual([])
  })

  it('in a header of its own is not forwarded, and neither are credentials that were not checked', async () => {
    const ask = app({
      credentials: { jwt: { access: access(), auth0: auth0() }, accept: ['api-key', 'access', 'auth0'] },
    })
    const key = await gateway.key('acme')
    const headers = {
      'x-api-key': key,
      'cf-access-jwt-assertion': 'a.b.c',
      authorization: `Bearer ${await token()}`,
    }
    expect((await ask('/', { headers })).status).toBe(200)
    for (const name of Object.keys(headers)) expect(received()).not.toHaveProperty(name)
    // An invalid token of Access is not treated as missing.
    expect((await ask('/', { headers: { 'cf-access-jwt-assertion': 'a.b.c' } })).status).toBe(401)
  })

  it('cannot be accepted with a secret that is too short: the gateway does not start, and the error does not show the secret', () => {
    const config = { rules: [TEN], credentials: { jwt: { internal: internal() } } }
    const start = () => gateway.app(config, { variables: { JWT_SECRET: 'pssst' } })
    expect(start).toThrow(
      expect.objectContaining({
        code: 'ERR_CONFIG_INVALID',
        message: expect.not.stringContaining('pssst'),
      }),
    )
  })
})

describe('an opaque key', () => {
  const OPAQUE = 'an-old-partner-key-4711'
  const imported = async (consumer = 'acme') => {
    const digest = sha256(OPAQUE)
    await set(pointerKey(digest), consumer)
    await set(credentialKey(consumer, digest), credentialOf('pro'))
    return digest
  }
  const ask = (config: Partial<ConfigInput> = {}) => app({ credentials: { opaqueKeys: {} }, ...config })

  it('has its consumer from the first request on, with one trip for each request', async () => {
    await imported()
    const warm = ask()
    for (const remaining of [9, 8, 7]) {
      const response = await warm('/', { key: OPAQUE })
      expect([response.status, response.headers.get('ratelimit')]).toEqual([
        200,
        expect.stringContaining(`r=${remaining};`),
      ])
      expect(received()).toMatchObject({ 'x-consumer-id': 'acme', 'x-consumer-plan': 'pro' })
      expect(received()).not.toHaveProperty('authorization')
    }
    // The first request uses the build of the script without `allow-key-locking`, and also has to send its text. The
    // build that the later requests use is already there.
    expect(gateway.store.count()).toBeLessThanOrEqual(5)
    const cold = ask()
    expect((await cold('/', { headers: { 'x-api-key': OPAQUE } })).status).toBe(200)
    expect(gateway.store.count()).toBe(1)
    await cold('/', { key: OPAQUE })
    expect(gateway.store.count()).toBe(1)
  })

  it('that was revoked or moved to another consumer is refused once by an isolate that remembers it, then looked up again', async () => {
    const digest = await imported()
    const warm = ask()
    expect((await warm('/', { key: OPAQUE })).status).toBe(200)
    await gateway.redis.connection.send(['DEL', credentialKey('acme', digest)])
    expect((await warm('/', { key: OPAQUE })).status).toBe(401)
    await imported('other')
    expect((await warm('/', { key: OPAQUE })).status).toBe(200)
    expect(received()['x-consumer-id']).toBe('other')
  })

  it('is not accepted without opaqueKeys in the config, and garbage costs no trip', async () => {
    await imported()
    expect((await app()('/', { key: OPAQUE })).status).toBe(401)
    gateway.store.count()
    for (const key of ['short', 'x'.repeat(600), 'has a space in the middle']) {
      expect((await ask()('/', { key })).status).toBe(401)
    }
    expect(gateway.store.count()).toBe(0)
  })

  it('can have a header of its own', async () => {
    await imported()
    const own = app({ credentials: { opaqueKeys: { header: 'X-Partner-Key' } } })
    expect((await own('/', { headers: { 'x-partner-key': OPAQUE } })).status).toBe(200)
    expect(received()).not.toHaveProperty('x-partner-key')
    expect((await own('/', { key: OPAQUE })).status).toBe(401)
  })
})

describe('routes', () => {
  const routes: ConfigInput['routes'] = [
    { name: 'public', match: { path: '/public/*' }, accept: ['api-key', 'anonymous'] },
    { name: 'admin', match: { path: '/public/admin/*' }, accept: ['auth0'] },
    { name: 'reports', match: { path: '/reports/*', methods: ['POST'] }, cost: 4 },
    { name: 'status', match: { path: '/status' }, accept: ['anonymous'], limits: false },
  ]
  const ask = () => app({ routes, credentials: { jwt: { auth0: auth0() } } })

  it('define which credentials are accepted; the most specific route applies', async () => {
    const key = await gateway.key('acme')
    const statuses = async (path: string) =>
      await Promise.all(
        [{}, { key }, { key: await token() }].map(async init => (await ask()(path, init)).status),
      )
    expect(await statuses('/public/x')).toEqual([200, 200, 200])
    expect(await statuses('/public/admin/x')).toEqual([401, 401, 200])
    expect(await statuses('/elsewhere')).toEqual([401, 200, 200])
  })

  it('define the cost of a request, or that it is not counted', async () => {
    const key = await gateway.key('acme')
    const left = async (path: string, method = 'GET') =>
      (await ask()(path, { key, method })).headers.get('ratelimit')?.split(';')[1]
    expect(await left('/reports/7')).toBe('r=9')
    expect(await left('/reports/7', 'POST')).toBe('r=5')
    expect(await left('/other')).toBe('r=4')
    // This isolate has already read the live switches.
    const informed = await gateway.informed({
      routes,
      plans: ['free', 'pro'],
      rules: [TEN],
      credentials: { jwt: { auth0: auth0() } },
    })
    gateway.store.count()
    const response = await informed('/status')
    expect([response.status, response.headers.get('ratelimit')]).toEqual([200, null])
    expect(gateway.store.count()).toBe(0)
  })

  it('of both readings apply to a path that can be read in two ways: with credentials that both accept, at the higher cost', async () => {
    const key = await gateway.key('acme')
    for (const path of ['/public/admin%2fx', '/public//admin/x', '/public/x%2f..%2fadmin%2fy']) {
      const statuses = [(await ask()(path, { key })).status, (await ask()(path)).status]
      expect(statuses, path).toEqual([401, 401])
    }
    const costly = await ask()('/reports%2f7', { key, method: 'POST' })
    expect(costly.headers.get('ratelimit')).toContain('r=6;')
  })

  it('can be a part of an identity, and a condition of a rule', async () => {
    const key = await gateway.key('acme')
    const rules: RuleInput[] = [
      { ...TEN, name: 'each', by: ['consumer', 'route'] },
      { ...TEN, name: 'reports', match: { routes: ['reports'] } },
    ]
    const ask = app({ rules, routes, credentials: { jwt: { auth0: auth0() } } })
    const limitsAt = async (path: string, method: string) =>
      (await ask(path, { key, method })).headers.get('ratelimit')
    expect(await limitsAt('/reports/x', 'POST')).toMatch(/^"each";r=6;t=\d+, "reports";r=6;/)
    expect(await limitsAt('/reports/x', 'GET')).toMatch(/^"each";r=9;t=\d+$/)
    expect(await limitsAt('/public/x', 'GET')).toMatch(/^"each";r=9;t=\d+$/)
    expect(await limitsAt('/elsewhere', 'GET')).toMatch(/^"each";r=8;t=\d+$/)
  })
})

describe('an environment', () => {
  const test = () => app({ environment: 'test' })
  const live = () => app({ environment: 'live' })

  it('refuses keys of another one, even in the same database', async () => {
    const key = mintApiKey('acme', 'slk_test_')
    await set(`sluice:test:{c:acme}:key:${sha256(key)}`, credentialOf())
    expect((await test()('/', { key })).status).toBe(200)
    gateway.store.count()
    expect((await live()('/', { key })).status).toBe(401)
    expect(gateway.store.count()).toBe(0)
    // Without an environment, this is a key of the unknown consumer test_acme.
    expect((await app()('/', { key })).status).toBe(401)
  })

  it('counts separately from another one', async () => {
    const left = async (environment: string) => {
      const key = mintApiKey('acme', `slk_${environment}_`)
      await set(`sluice:${environment}:{c:acme}:key:${sha256(key)}`, credentialOf())
      const response = await app({ environment })('/', { key })
      return response.headers.get('ratelimit')!.split(';')[1]
    }
    expect(await left('test')).toBe('r=9')
    expect(await left('live')).toBe('r=9')
    expect(await left('test')).toBe('r=8')
  })

  it('can have a prefix of its own', async () => {
    const key = mintApiKey('acme', 'acme_')
    await set(credentialKey('acme', sha256(key)), credentialOf())
    const own = app({ credentials: { apiKeys: { prefix: 'acme' } } })
    expect((await own('/', { key })).status).toBe(200)
    expect((await own('/', { key: await gateway.key('acme') })).status).toBe(401)
  })
})

describe('lists', () => {
  it('block addresses and countries before any trip', async () => {
    const ask = app({ block: { addresses: ['198.51.100.0/24', '2001:db8::/32'], countries: ['XX'] } })
    const key = await gateway.key('acme')
    gateway.store.count()
    for (const address of ['198.51.100.9', '::ffff:198.51.100.9', '2001:db8::1']) {
      const response = await ask('/', { key, address })
      expect([response.status, response.headers.get('www-authenticate')]).toEqual([403, null])
    }
    expect([gateway.store.count(), gateway.origin.received.length]).toEqual([0, 0])
    expect((await ask('/', { key, address: '192.0.2.1' })).status).toBe(200)
  })

  it('admit allowed addresses and consumers without limits, and still check credentials', async () => {
    const one: RuleInput[] = [{ ...TEN, limit: 1 }]
    const allow = { addresses: ['192.0.2.0/24'], consumers: ['acme'] }
    const ask = app({ rules: one, allow })
    const [acme, other] = [await gateway.key('acme'), await gateway.key('other')]
    const statuses = async (key: string, address: string) => [
      (await ask('/', { key, address })).status,
      (await ask('/', { key, address })).status,
    ]
    expect(await statuses(acme, '203.0.113.1')).toEqual([200, 200])
    expect(await statuses(other, '192.0.2.1')).toEqual([200, 200])
    expect(await statuses(other, '203.0.113.1')).toEqual([200, 429])
    expect(await statuses(mintApiKey('acme'), '192.0.2.1')).toEqual([401, 401])
  })

  it('block even callers that are allowed', async () => {
    const ask = app({ allow: { addresses: ['192.0.2.0/24'], consumers: ['acme'] } })
    const key = await gateway.key('acme')
    await set('sluice:{c:acme}:consumer', formatConsumer({ blockedAt: new Date(), overrides: [] }))
    for (const address of ['192.0.2.1', '203.0.113.1']) {
      expect((await ask('/', { key, address })).status).toBe(403)
    }
  })

  it('admit a consumer with an opaque key without limits once the consumer is known', async () => {
    const key = 'an-old-partner-key-4711'
    const digest = sha256(key)
    await set(pointerKey(digest), 'acme')
    await set(credentialKey('acme', digest), credentialOf())
    const ask = app({ credentials: { opaqueKeys: {} }, allow: { consumers: ['acme'] } })
    expect((await ask('/', { key })).headers.get('ratelimit')).toContain('"ten";r=9')
    expect((await ask('/', { key })).headers.get('ratelimit')).toBeNull()
  })
})

describe('guessing', () => {
  const GUESSES: RuleInput = {
    ...{
      name: 'guesses',
      by: 'address',
      on: 'auth-failure',
      algorithm: 'fixed-window',
      limit: 3,
      period: '300d',
    },
  }

  it('is limited by address for any credential, in the same trip that finds it invalid', async () => {
    const ask = app({ rules: [TEN, GUESSES] })
    const good = await gateway.key('acme')
    const [address, elsewhere] = ['192.0.2.1', '192.0.2.2']
    gateway.store.count()
    for (let i = 0; i < 3; i++)
      expect((await ask('/', { key: mintApiKey('acme'), address })).status).toBe(401)
    expect(gateway.store.count()).toBe(3)
    // The replies contain seconds, so both must come within one second of the clock.
    let guess: Response, right: Response, second: number
    const secondNow = () => Math.floor(Date.now() / 1000)
    do {
      second = secondNow()
      guess = await ask('/', { key: mintApiKey('acme'), address })
      right = await ask('/', { key: good, address })
      // The first refusal is remembered for the address, whatever credential comes next.
      expect(gateway.store.count()).toBeLessThanOrEqual(1)
    } while (secondNow() !== second)
    // The valid key gets the same reply as the guess.
    const comparable = async (response: Response) => {
      const headers = Object.fromEntries([...response.headers].filter(([name]) => name !== 'x-request-id'))
      return [response.status, headers, await response.json()]
    }
    const replyToGuess = await comparable(guess)
    expect(await comparable(right)).toEqual(replyToGuess)
    expect(replyToGuess[2]).toMatchObject({
      detail: expect.stringContaining(
        'Too many requests with invalid credentials: guesses (3 per 300 days).',
      ),
    })
    expect([guess.status, guess.headers.get('ratelimit')]).toEqual([
      429,
      expect.stringMatching(/^"guesses";r=0;/),
    ])
    // The consumer was not charged, and other addresses are not affected.
    const other = await ask('/', { key: good, address: elsewhere })
    expect([other.status, other.headers.get('ratelimit')]).toEqual([
      200,
      expect.stringMatching(/^"ten";r=9;t=\d+$/),
    ])
  })

  it('is limited on a route without limits', async () => {
    const routes = [{ name: 'free', match: { path: '/free' }, limits: false }]
    const ask = app({ rules: [TEN, { ...GUESSES, limit: 1 }], routes })
    expect((await ask('/free', { key: mintApiKey('acme') })).status).toBe(401)
    expect((await ask('/free', { key: mintApiKey('acme') })).status).toBe(429)
  })

  it('does not include missing keys and garbage', async () => {
    const ask = app({ rules: [TEN, { ...GUESSES, limit: 1 }] })
    for (const key of ['slk_acme_garbage', undefined]) {
      for (let i = 0; i < 3; i++) expect((await ask('/', key ? { key } : {})).status).toBe(401)
    }
    expect((await ask('/', { key: await gateway.key('acme') })).status).toBe(200)
  })
})

describe('a credential that is not accepted', () => {
  const opaque = { authorization: 'Bearer an-old-partner-key-4711' }

  it('is not forwarded: an opaque key beside an API key, and the cookie of Access', async () => {
    const key = await gateway.key('acme')
    const headers = { 'x-api-key': key, ...opaque, cookie: 'a=1; CF_Authorization=a.b.c; b=2' }
    await app({ credentials: { opaqueKeys: {} } })('/', { headers })
    expect(received()).not.toHaveProperty('authorization')
    await app({ credentials: { jwt: { access: access() } } })('/', { headers })
    expect(received().cookie).toBe('a=1; b=2')
    // As Headers join two lines of the header.
    for (const cookie of ['a=1, CF_Authorization=a.b.c; b=2', 'CF_Authorization=a.b.c, a=1; b=2']) {
      await app({ credentials: { jwt: { access: access() } } })('/', { headers: { ...headers, cookie } })
      expect(received().cookie).toBe('a=1; b=2')
    }
    // Without such credentials in the config, those of the origin are kept.
    await app()('/', { headers })
    expect(received()).toMatchObject({ ...opaque, cookie: headers.cookie })
  })

  it('is never treated as missing if its kind could be accepted', async () => {
    const gatewayAccepting = (accept: string[], opaqueKeys?: { header: string }) =>
      app({ credentials: { jwt: { auth0: auth0() }, accept, ...(opaqueKeys && { opaqueKeys }) } })
    const jwe = { authorization: 'Bearer a.b.c.d.e' }
    expect((await gatewayAccepting(['auth0', 'anonymous'])('/', { headers: jwe })).status).toBe(401)
    expect((await gatewayAccepting(['auth0', 'anonymous'])('/', { headers: opaque })).status).toBe(401)
    const bearers = app({ credentials: { opaqueKeys: {}, accept: ['api-key', 'anonymous'] } })
    expect((await bearers('/', { headers: opaque })).status).toBe(401)
    const partner = { header: 'x-partner-key' }
    const shown = { 'x-partner-key': 'an-old-partner-key-4711' }
    expect((await gatewayAccepting(['api-key', 'anonymous'], partner)('/', { headers: shown })).status).toBe(
      401,
    )
    expect((await gatewayAccepting(['api-key', 'anonymous'], partner)('/', { headers: opaque })).status).toBe(
      200,
    )
  })
})

describe('a method that the origin may treat as another one', () => {
  it('is limited as both, and admitted only if both are', async () => {
    const rules: RuleInput[] = [{ ...TEN, name: 'deletes', match: { methods: ['DELETE'] } }]
    const routes = [
      { name: 'open', match: { methods: ['POST'], path: '/x' }, accept: ['api-key', 'anonymous'] },
    ]
    const ask = app({ rules, routes })
    const [method, headers] = ['POST', { 'x-http-method-override': 'delete' }]
    const key = await gateway.key('acme')
    expect((await ask('/x', { method, headers, key })).headers.get('ratelimit')).toContain('deletes')
    expect([(await ask('/x', { method })).status, (await ask('/x', { method, headers })).status]).toEqual([
      200, 401,
    ])
  })

  it('matches routes for GET if it is HEAD', async () => {
    const routes = [{ name: 'open', match: { methods: ['GET'] }, accept: ['anonymous'] }]
    expect((await app({ routes })('/', { method: 'HEAD' })).status).toBe(200)
  })
})
