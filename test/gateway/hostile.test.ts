/** Headers and credentials that clients send to impersonate others. */
import { describe, expect, it } from 'vitest'
import type { ConfigInput, RouteInput, RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import { sha256 } from '../../src/sha256.ts'
import { credentialKey, pointerKey } from '../../src/store/keys.ts'
import { credentialOf } from '../support/engines.ts'
import { useGateway } from '../support/gateway.ts'
import { sign } from '../support/key-server.ts'

const gateway = useGateway()

const TEN: RuleInput = { name: 'ten', by: 'consumer', algorithm: 'fixed-window', limit: 10, period: '300d' }
const OPEN: RouteInput = { name: 'public', match: { path: '/public/*' }, accept: ['api-key', 'anonymous'] }
const SECRET = 'a secret of the tests, of 32 bytes and some more'
const OPAQUE = 'an-old-partner-key-4711'

const app = (config: Partial<ConfigInput> = {}) =>
  gateway.app({ rules: [TEN], routes: [OPEN], ...config }, { variables: { JWT_SECRET: SECRET } })
const received = () => gateway.origin.received.at(-1)!.headers

const internal = () =>
  jwt({ secret: 'JWT_SECRET', algorithms: ['HS256'], issuer: 'internal', audience: 'api' })
const token = (claims: Record<string, unknown> = {}) =>
  sign(
    { iss: 'internal', aud: 'api', sub: 'alice', exp: Math.floor(Date.now() / 1e3) + 300, ...claims },
    { kid: 'x', alg: 'HS256', privateKey: new TextEncoder().encode(SECRET) },
  )

describe('identity headers of a client', () => {
  const names = [
    'x-consumer-id',
    'X-CONSUMER-PLAN',
    'x_consumer_id',
    'x-consumer_id',
    'x.consumer.id',
    "x'consumer'id",
  ]
  const addresses = [
    ...['x-forwarded-for', 'x_forwarded_for', 'x-forwarded.for', 'x-forwarded-client-cert', 'forwarded'],
    ...['x-real-ip', 'x-client-ip', 'client-ip', 'true-client-ip', 'x-cluster-client-ip', 'fastly-client-ip'],
    ...['cf-connecting-ipv6', 'x-remote-ip', 'x-remote-addr', 'x-originating-ip', 'x-envoy-external-address'],
  ]
  const places = ['x-original-url', 'x_original_url', 'x-rewrite-url', 'x-original-host', 'x-forwarded-host']

  it.each([...names, ...addresses, ...places])('%s does not reach the origin', async name => {
    const ask = app()
    const key = await gateway.key('acme')
    for (const init of [{ key }, {}, { method: 'OPTIONS', key }]) {
      await ask('/public/x', { ...init, address: '192.0.2.1', headers: { [name]: 'forged' } })
      expect(JSON.stringify(received())).not.toContain('forged')
    }
    const preflight = {
      origin: 'https://a.example',
      'access-control-request-method': 'GET',
      [name]: 'forged',
    }
    await ask('/x', { method: 'OPTIONS', headers: preflight })
    expect(gateway.origin.received).toHaveLength(4)
    expect(JSON.stringify(received())).not.toContain('forged')
  })

  it('do not change the host that the origin gets, which is the host that was matched', async () => {
    const key = await gateway.key('acme')
    expect((await app()('/', { key, headers: { host: 'admin.test' } })).status).toBe(200)
    expect(received()['x-forwarded-host']).toBe('gateway.test')
  })

  it('are replaced by those of the gateway, even if a Connection header names them', async () => {
    const ask = app()
    const headers = {
      connection: 'x-consumer-id, x-forwarded-for, x-request-id, x-api-key',
      'x-consumer-id': 'admin',
    }
    const key = await gateway.key('acme')
    expect((await ask('/', { key, address: '192.0.2.1', headers })).status).toBe(200)
    expect(received()).toMatchObject({
      'x-consumer-id': 'acme',
      'x-forwarded-for': '192.0.2.1',
      'x-request-id': expect.stringMatching(/^[0-9a-f-]{36}$/),
    })
  })
})

describe('a credential', () => {
  const everything = (): Partial<ConfigInput> => ({
    credentials: {
      jwt: {
        internal: internal(),
        access: jwt({ access: 'https://team.cloudflareaccess.com', audience: 'tag' }),
      },
      opaqueKeys: { header: 'X-Partner-Key' },
      accept: ['api-key', 'internal', 'access', 'opaque-key', 'anonymous'],
    },
    routes: [],
  })
  const unknown = mintApiKey('acme')
  const long = 'x'.repeat(10_000)

  it.each<[string, Record<string, string>]>([
    ['a token of 10 kB', { authorization: `Bearer ${long}.${long}.${long}` }],
    [
      'two tokens in one header',
      { authorization: 'Bearer e30.eyJpc3MiOiJhIn0., Bearer e30.eyJpc3MiOiJhIn0.' },
    ],
    ['a key with a NUL', { 'x-api-key': `${unknown}%00` }],
    ['a key in quotes', { 'x-api-key': `"${unknown}"` }],
    ['two keys in one header', { 'x-api-key': `${unknown}, ${unknown}` }],
    ['a key of 10 kB', { 'x-api-key': `slk_acme_${long}` }],
    ['a bearer key of 10 kB', { authorization: `Bearer slk_acme_${long}` }],
    ['an empty key', { 'x-api-key': '' }],
    ['a key of spaces', { 'x-api-key': '   ' }],
    ['a text that is not a key, beside a token', { 'x-api-key': 'none', authorization: 'Bearer a.b.c' }],
    ['an opaque key of 10 kB', { 'x-partner-key': long }],
    ['an opaque key that is empty', { 'x-partner-key': '' }],
    ['two opaque keys', { 'x-partner-key': `${OPAQUE}, ${OPAQUE}` }],
    ['an opaque key in Latin-1', { 'x-partner-key': `${OPAQUE}\u00e9` }],
    ['an API key as an opaque key', { 'x-partner-key': unknown }],
    ['a malformed API key as an opaque key', { 'x-partner-key': 'slk_' }],
    ['an invalid token of Access', { 'cf-access-jwt-assertion': 'a.b.c' }],
    ['an empty token of Access', { 'cf-access-jwt-assertion': '' }],
    ['a token of Access of 10 kB', { 'cf-access-jwt-assertion': `${long}.${long}.${long}` }],
  ])('that is invalid is not treated as missing: %s', async (_, headers) => {
    const ask = app(everything())
    expect((await ask('/')).status).toBe(200)
    gateway.store.count()
    gateway.origin.received.length = 0
    expect((await ask('/', { headers })).status).toBe(401)
    expect([gateway.store.count(), gateway.origin.received.length]).toEqual([0, 0])
  })

  it('that is invalid is not replaced by another one after it', async () => {
    const ask = app(everything())
    const key = await gateway.key('acme')
    const [good, expired] = [await token(), await token({ exp: 1 })]
    for (const headers of [
      { 'x-api-key': unknown, authorization: `Bearer ${key}` },
      { 'x-api-key': unknown, authorization: `Bearer ${good}` },
      { 'x-api-key': 'slk_acme_typo', authorization: `Bearer ${good}`, 'x-partner-key': OPAQUE },
      { authorization: `Bearer ${expired}`, 'x-partner-key': OPAQUE },
      { authorization: `Bearer ${key}, Bearer ${key}` },
      { authorization: `Bearer ${good}, Bearer ${good}` },
    ]) {
      expect((await ask('/', { headers })).status, JSON.stringify(headers)).toBe(401)
    }
    expect(gateway.origin.received).toEqual([])
  })

  it('is removed from every header, whichever was checked', async () => {
    const digest = sha256(OPAQUE)
    await gateway.redis.connection.send(['SET', pointerKey(digest), 'partner'])
    await gateway.redis.connection.send(['SET', credentialKey('partner', digest), credentialOf()])
    const [key, good] = [await gateway.key('acme'), await token()]
    const ask = app(everything())
    for (const headers of [
      {
        'x-api-key': key,
        authorization: `Bearer ${good}`,
        'x-partner-key': OPAQUE,
        'cf-access-jwt-assertion': good,
      },
      { authorization: `Bearer ${good}`, 'x-partner-key': OPAQUE, 'cf-access-jwt-assertion': good },
      { 'x-partner-key': OPAQUE, 'cf-access-jwt-assertion': good },
      // These credentials are not checked, because of the form of the header. They are still removed.
      { authorization: key },
      { authorization: `Basic ${key}` },
      { authorization: `Basic dXNlcg==, Bearer ${key}` },
      { authorization: `Basic dXNlcg==, Bearer ${good}` },
    ]) {
      gateway.origin.received.length = 0
      expect((await ask('/', { headers })).status).toBe(200)
      const forwarded = JSON.stringify(gateway.origin.received)
      for (const secret of [key, good, OPAQUE]) expect(forwarded).not.toContain(secret)
    }
  })

  it('of a kind that a route does not accept is refused there', async () => {
    const key = await gateway.key('acme')
    const ask = app({
      ...everything(),
      routes: [
        { name: 'tokens', match: { path: '/tokens' }, accept: ['internal'] },
        { name: 'keys', match: { path: '/keys' }, accept: ['api-key'] },
        { name: 'nobody', match: { path: '/nobody' }, accept: ['anonymous'] },
      ],
    })
    const statuses = async (path: string) => [
      (await ask(path, { key })).status,
      (await ask(path, { headers: { 'x-api-key': key } })).status,
      (await ask(path, { key: await token() })).status,
    ]
    expect(await statuses('/tokens')).toEqual([401, 401, 200])
    expect(await statuses('/keys')).toEqual([200, 200, 401])
    // The route accepts neither. A token is treated as missing there; an API key is never treated as missing.
    expect(await statuses('/nobody')).toEqual([401, 401, 200])
    expect(received()).not.toHaveProperty('x-consumer-id')
    expect(received()).not.toHaveProperty('authorization')
  })

  it('is not requested if none fits both readings of a path: the reply asks for the plain path, and names what it must not contain', async () => {
    const ask = app({ routes: [OPEN, { name: 'admin', match: { path: '/admin/*' }, accept: ['anonymous'] }] })
    const both = app({
      routes: [
        { name: 'a', match: { path: '/a/*' }, accept: ['api-key'] },
        { name: 'b', match: { path: '/b/*' }, accept: ['anonymous'] },
      ],
    })
    expect((await ask('/public/..%2fadmin%2fx')).status).toBe(200)
    const response = await both('/a/..%2fb%2fx')
    expect([response.status, await response.json()]).toEqual([
      401,
      expect.objectContaining({ detail: expect.stringContaining('%2F, //, "..", ";" or a final slash') }),
    ])
  })

  it('of one environment is invalid in another, with any prefix', async () => {
    const keys = {
      live: mintApiKey('acme', 'slk_live_'),
      test: mintApiKey('acme', 'slk_test_'),
      none: mintApiKey('acme'),
    }
    // Each key is in the store of each environment, as if an operator had copied them.
    for (const key of Object.values(keys)) {
      const digest = sha256(key)
      for (const place of ['sluice:', 'sluice:live:', 'sluice:test:']) {
        await gateway.redis.connection.send(['SET', `${place}{c:acme}:key:${digest}`, credentialOf()])
      }
    }
    for (const own of ['live', 'test', 'none'] as const) {
      const ask = app(own === 'none' ? {} : { environment: own })
      for (const [name, key] of Object.entries(keys)) {
        const statuses = [
          (await ask('/', { key })).status,
          (await ask('/public/x', { headers: { 'x-api-key': key } })).status,
        ]
        expect([own, name, ...statuses]).toEqual([own, name, ...(name === own ? [200, 200] : [401, 401])])
      }
    }
    // The consumer test_acme is not the consumer acme of the environment test.
    const named = mintApiKey('test_acme')
    await gateway.redis.connection.send(['SET', credentialKey('test_acme', sha256(named)), credentialOf()])
    expect((await app()('/', { key: named })).status).toBe(200)
    expect(received()['x-consumer-id']).toBe('test_acme')
    expect((await app({ environment: 'test' })('/', { key: named })).status).toBe(401)
  })
})

/** Origins that build variables from headers (CGI, WSGI, Rack) read all of these as one of the first three. */
const METHOD_OVERRIDES = [
  ...['X-HTTP-Method-Override', 'X-HTTP-Method', 'X-Method-Override'],
  ...['x_http_method_override', 'x-http_method-override', 'X_Method_Override', 'x.http.method'],
]

it.each(METHOD_OVERRIDES)(
  'rules and routes for a method apply to a request that claims it with %s',
  async name => {
    const rules: ConfigInput['rules'] = [
      {
        name: 'deletes',
        by: 'consumer',
        algorithm: 'fixed-window',
        limit: 1,
        period: '300d',
        match: { methods: ['DELETE'] },
      },
    ]
    const key = await gateway.key('acme')
    const ask = app({ rules })
    const claimed = (value: string) => ask('/x', { method: 'POST', key, headers: { [name]: value } })
    expect((await claimed('PUT')).headers.get('ratelimit')).toBeNull()
    expect((await claimed('delete')).status).toBe(200)
    expect((await claimed('PUT, DELETE')).status).toBe(429)
  },
)

it.each(METHOD_OVERRIDES)(
  'a preflight, which is not authenticated, cannot change its method with %s',
  async name => {
    const preflight = { origin: 'https://a.example', 'access-control-request-method': 'GET' }
    await app()('/x', { method: 'OPTIONS', headers: { ...preflight, [name]: 'DELETE' } })
    expect(gateway.origin.received[0]!.method).toBe('OPTIONS')
    expect(received()).not.toHaveProperty(name.toLowerCase())
    // For an authenticated caller, the header is forwarded.
    await app()('/x', { method: 'POST', key: await gateway.key('acme'), headers: { [name]: 'DELETE' } })
    expect(received()).toHaveProperty(name.toLowerCase())
  },
)

describe('a blocked address', () => {
  it.each(['GET', 'OPTIONS', 'HEAD', 'PROPFIND'])(
    'is refused with %s, and with a preflight',
    async method => {
      const preflight = { origin: 'https://a.example', 'access-control-request-method': 'GET' }
      for (const cors of [undefined, { origins: '*' as const }]) {
        const ask = app({ block: { addresses: ['198.51.100.0/24'] }, ...(cors && { cors }) })
        for (const headers of [{}, preflight]) {
          for (const address of [
            '198.51.100.7',
            '::ffff:198.51.100.7',
            '::ffff:c633:6407',
            '0:0::FFFF:198.51.100.7',
          ]) {
            expect((await ask('/public/x', { method, headers, address })).status, address).toBe(403)
          }
        }
      }
      expect([gateway.store.count(), gateway.origin.received.length]).toEqual([0, 0])
    },
  )
})
