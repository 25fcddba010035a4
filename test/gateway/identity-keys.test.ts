/** The keys in the store after requests with hostile values in everything that rules can count by. */

import { describe, expect, it } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import { createApp } from '../../src/set-ups/gateway/app.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { sha256 } from '../../src/sha256.ts'
import { credentialKey } from '../../src/store/keys.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { configOf, credentialOf } from '../support/engines.ts'
import { useGateway } from '../support/gateway.ts'
import { sign } from '../support/key-server.ts'
import { STATE_KEY } from '../support/store-keys.ts'

const gateway = useGateway()

const SECRET = 'a secret of the tests, of 32 bytes and some more'
const LONG = 'x'.repeat(10_000)

/** Values for headers: bytes without control characters. */
const TEXTS = [
  ...[
    'a',
    'A',
    'a,b=c',
    'a%2Cb%3Dc',
    'a, b',
    '{a}',
    '}{',
    '{c:acme}',
    '{global}',
    ':',
    '*',
    '?',
    '~',
    '#',
    '%',
    '%00',
    '%%',
  ],
  ...[
    `#${'ab'.repeat(32)}`,
    'sluice:{c:acme}:state',
    '\u00e4',
    '\u00c3\u00a4',
    "'()!",
    '[a-z]',
    '\\',
    '"',
    LONG,
  ],
  ...[`${LONG}y`, '\u00ff'.repeat(200), '../..', 'a\tb', 'a b', 'a\u00a0b'],
]

/** Values for claims: any text. */
const UNICODE = [
  ...TEXTS,
  '\0',
  '\n',
  'a\u2028',
  '\ud800',
  '\ud801',
  '\udc00',
  '🚦',
  'ﬁ',
  'fi',
  '\u202egpj',
  '__proto__',
]

const store = () =>
  upstashStore({ url: gateway.store.url, token: 'a token for tests', deadlineMs: 5000, keyLocking: true })

/** Sends the requests, and returns all keys of counters in the store. Each must have the form of a key. */
async function keysOf(requests: readonly Request[], config: Partial<ConfigInput> & { rules: RuleInput[] }) {
  const app = createApp({ ...configOf(config), origin: gateway.origin.url }, store(), ALL_PARTS, {
    variables: { JWT_SECRET: SECRET },
  })
  for (const request of requests) {
    const response = await app.request(request)
    // The request was counted, whatever the origin replies.
    expect(response.headers.get('ratelimit')).toMatch(/^"/)
    await response.body?.cancel()
  }
  return await states()
}

async function states(): Promise<string[]> {
  const all = ((await gateway.redis.connection.send(['KEYS', '*'])) as Buffer[]).map(key =>
    key.toString('latin1'),
  )
  const found = all.filter(key => !/:(key:[0-9a-f]{64}|consumer|digests)$|:\{consumers\}:names$/.test(key))
  for (const key of found) {
    expect(key).toMatch(STATE_KEY)
    expect(key.length).toBeLessThan(1000)
  }
  return found
}

const rule = (by: RuleInput['by']): RuleInput => ({
  name: 'one',
  by,
  algorithm: 'sliding-window',
  limit: 1e6,
  period: '1h',
})
const OPEN: Partial<ConfigInput> = { credentials: { accept: ['anonymous'] } }
const to = (init: RequestInit = {}, url = 'http://gateway.test/x') => new Request(url, init)

describe('each different value has a key of its own, and all keys are plain text', () => {
  it.each([[['header:x-tenant']], [['address', 'header:x-tenant']]] as const)('by %j', async by => {
    const values = TEXTS.map(text => text.trim())
    const requests = values.map(text =>
      to({ headers: { 'x-tenant': text, 'cf-connecting-ip': '192.0.2.1' } }),
    )
    const keys = await keysOf([...requests, to()], { ...OPEN, rules: [rule([...by])] })
    expect(keys).toHaveLength(new Set(values).size + 1)
  })

  it('by claim, and by the consumer that a claim names', async () => {
    const tokens = await Promise.all(
      UNICODE.map(text => tokenOf({ sub: text, tenant: text, ['__proto__']: text })),
    )
    const requests = tokens.map(token => to({ headers: { authorization: `Bearer ${token}` } }))
    const internal = () => jwt({ secret: 'JWT_SECRET', algorithms: ['HS256'], issuer: 'i', audience: 'api' })
    // A token of 10 kB is not accepted.
    const short = requests.filter((_, i) => tokens[i]!.length < 8192)
    const config = { credentials: { jwt: { internal: internal() } } }
    const claims = await keysOf(short, { ...config, rules: [rule('claim:tenant')] })
    const texts = new Set(UNICODE.map(text => text).filter((_, i) => tokens[i]!.length < 8192))
    expect(claims).toHaveLength(texts.size)
    const consumers = await keysOf(short, { ...config, rules: [rule('consumer')] })
    expect(consumers).toHaveLength(2 * texts.size)
    const prototypes = await keysOf(short.slice(0, 3), { ...config, rules: [rule('claim:constructor')] })
    expect(prototypes).toContain('sluice:{x:claim.internal.constructor}:state')
    expect(prototypes).toHaveLength(2 * texts.size + 1)
  })

  it('by credential and consumer of a key', async () => {
    const consumers = ['a', 'a.b', 'a-b', 'A', 'x'.repeat(64), 'a_b', 'a__b']
    const keys = await Promise.all(consumers.flatMap(name => [name, name]).map(name => gateway.key(name)))
    const found = await keysOf(
      keys.map(key => to({ headers: { 'x-api-key': key } })),
      { rules: [rule('credential'), { ...rule('consumer'), name: 'two' }] },
    )
    expect(found).toHaveLength(keys.length + consumers.length)
  })

  it('by address', async () => {
    const addresses = [
      '192.0.2.1',
      '192.0.2.2',
      '2001:db8::1',
      '2001:db8:1::1',
      'fe80::1%eth0',
      '{ip:a}',
      LONG,
      '1.2.3',
      '',
    ]
    const found = await keysOf(
      addresses.map(address => to({ headers: { 'cf-connecting-ip': address } })),
      { ...OPEN, rules: [rule('address')] },
    )
    // All texts that are not addresses are one identity. The zone of the link-local address is dropped.
    expect(found.filter(key => key === 'sluice:{ip:unknown}:state')).toHaveLength(1)
    expect(found.length).toBeGreaterThanOrEqual(5)
    expect(found.length).toBeLessThanOrEqual(6)
  })

  it('by method, host and route', async () => {
    const methods = [
      'GET',
      'M*',
      "M'",
      'M~',
      'M%00',
      'M|',
      'x'.repeat(500),
      '__proto__',
      'get!',
      '#',
      `#${'ab'.repeat(32)}`,
    ]
    const hosts = [
      'a.test',
      'A.test.',
      '[::1]',
      '192.0.2.1',
      'xn--n3h.test',
      `${'a'.repeat(63)}.test`,
      'a_b.test',
    ]
    const routes = [{ name: 'r', match: { path: '/{:id}' } }]
    const requests = [
      ...methods.map(method => to({ method })),
      ...hosts.map(host => to({}, `http://${host}/x`)),
      to({}, 'http://gateway.test/x/y'),
    ]
    const found = await keysOf(requests, { ...OPEN, routes, rules: [rule(['method', 'host', 'route'])] })
    // The two spellings of one host are the same identity.
    expect(found).toHaveLength(requests.length - 1)
  })

  it('by country and network, as Cloudflare reports them', async () => {
    const reported = [
      {},
      { country: 'DE', asn: 1 },
      { country: 'T1', asn: 12 },
      { country: '{DE}', asn: '1,2' },
      { country: LONG },
    ]
    const requests = reported.map(cf => Object.assign(to(), { cf }))
    const found = await keysOf(requests, { ...OPEN, rules: [rule(['country', 'asn'])] })
    expect(found).toHaveLength(reported.length)
  })

  it('by the identity of a limit by name', async () => {
    const limits = {
      l: [
        {
          name: 'one',
          by: ['account', 'user'],
          algorithm: 'sliding-log' as const,
          limit: 9,
          period: '1h' as const,
        },
      ],
    }
    const limiter = createLimiterOnStore(configOf({ rules: [rule('global')], limits }), store())
    for (const text of UNICODE) {
      const decisions = [
        await limiter.limit('l', { account: text, user: 'a' }),
        await limiter.limit('l', { account: 'a', user: text }),
      ]
      for (const { allowed, degraded } of decisions) expect([allowed, degraded]).toEqual([true, undefined])
    }
    // Each identity has a state and a log. One identity was used twice.
    expect(await states()).toHaveLength(2 * (2 * new Set(UNICODE).size - 1))
  })
})

it('a foreign value under a key of the store is ignored', async () => {
  const key = mintApiKey('acme')
  const digest = sha256(key)
  const app = gateway.app({ rules: [rule('consumer')] })
  const send = (...command: string[]) => gateway.redis.connection.send(command)
  for (const text of [
    '',
    'nonsense',
    ' plan=free',
    'plan',
    'created=2026-01-01 plan=free',
    '{"plan":"free"}',
  ]) {
    await send('SET', credentialKey('acme', digest), text)
    expect([text, (await app('/', { key })).status]).toEqual([text, 401])
  }
  await send('DEL', credentialKey('acme', digest))
  await send('SADD', credentialKey('acme', digest), credentialOf())
  expect((await app('/', { key })).status).toBe(401)
})

async function tokenOf(claims: Record<string, unknown>): Promise<string> {
  // The claims are spread, which keeps a claim that is called __proto__.
  const exp = Math.floor(Date.now() / 1e3) + 300
  return await sign(
    { iss: 'i', aud: 'api', exp, ...claims },
    {
      kid: 'x',
      alg: 'HS256',
      privateKey: new TextEncoder().encode(SECRET),
    },
  )
}

describe('rules with the same identity', () => {
  const SAME: [RuleInput['by'], RuleInput['by']][] = [
    [
      ['consumer', 'route'],
      ['route', 'consumer'],
    ],
    [
      ['consumer', 'address'],
      ['address', 'consumer'],
    ],
    [['consumer', 'credential'], 'credential'],
    [
      ['address', 'method'],
      ['method', 'address'],
    ],
  ]

  it.each(SAME)(
    'share one state if their parts identify the same requests: by %j and by %j',
    async (one, another) => {
      const key = await gateway.key('acme')
      const rules = [rule(one), { ...rule(another), name: 'two', limit: 1 }]
      const keys = await keysOf([to({ headers: { 'x-api-key': key } })], { rules })
      expect(keys).toHaveLength(1)
      const app = gateway.app({ rules })
      expect((await app('/', { key })).headers.get('ratelimit')).toContain('"two";r=0')
      expect((await app('/', { key })).status).toBe(429)
    },
  )

  it('are not confused with rules whose parts are spelled alike', async () => {
    const internal = jwt({ secret: 'JWT_SECRET', algorithms: ['HS256'], issuer: 'i', audience: 'api' })
    const token = await tokenOf({ sub: 'acme', a: '1', 'a method': '2' })
    const rules = [rule(['claim:a', 'method']), { ...rule('claim:a method'), name: 'two' }]
    const request = to({ headers: { authorization: `Bearer ${token}` } })
    const found = await keysOf([request], { credentials: { jwt: { internal } }, rules })
    expect(found.sort()).toEqual([
      'sluice:{x:claim.internal.a%20method=2}:state',
      'sluice:{x:claim.internal.a=1,method=GET}:state',
    ])
  })
})
