/** `explain` shows how a request would be handled, without sending it. */
import { describe, expect, it, vi } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import { mintSignedKey } from '../../src/credentials/key-signature.ts'
import { type ExplainInput, explain } from '../../src/ops/explain.ts'
import { configOf } from '../support/engines.ts'

const numbers = { algorithm: 'fixed-window', limit: 10, period: '1m' } as const
const by = 'consumer'
const RULES: RuleInput[] = [
  { name: 'all', by, ...numbers },
  { name: 'address', by: 'address', ...numbers },
  { name: 'posts', by, ...numbers, match: { methods: ['POST'] } },
  { name: 'host', by, ...numbers, match: { host: 'api.*', path: '/x/*' } },
  { name: 'path', by, ...numbers, match: { path: '/reports/*' }, cost: 2 },
  { name: 'route', by: ['consumer', 'route'], ...numbers, match: { routes: ['reports'] } },
  { name: 'pro', by, ...numbers, match: { plans: ['pro'] } },
  { name: 'rows', by, ...numbers, plans: { pro: { limit: 99 }, gold: false } },
  { name: 'strangers', by: 'address', ...numbers, match: { authenticated: false } },
  { name: 'guesses', by: 'address', ...numbers, on: 'auth-failure' },
  { name: 'tried', by: ['country', 'header:x-tenant'], ...numbers, mode: 'shadow' },
  { name: 'off', by, ...numbers, mode: 'off' },
  { name: 'key', by: 'credential', ...numbers },
]
const INPUT: Partial<ConfigInput> & Pick<ConfigInput, 'rules'> = {
  plans: ['free', 'pro', 'gold'],
  rules: RULES,
  routes: [
    { name: 'reports', match: { path: '/reports/*' }, cost: 3 },
    { name: 'open', match: { path: '/open' }, accept: ['anonymous'] },
    { name: 'free', match: { path: '/free/*' }, limits: false },
    { name: 'partners', match: { path: '/partners' }, accept: ['opaque-key'] },
  ],
  credentials: { opaqueKeys: { header: 'x-partner-key' } },
  allow: { addresses: ['10.0.0.0/8'], consumers: ['boss'] },
  block: { addresses: ['192.0.2.66'], countries: ['XX'] },
}
const config = (input = INPUT) => ({ ...configOf(input), input: { rules: input.rules } })
const explainRequest = (path: string, request: Partial<ExplainInput> = {}) =>
  explain(config(), { method: 'GET', path, ...request })

/** The reason why a rule does not apply, by rule. Undefined if it applies. */
const reasons = ({ rules }: Awaited<ReturnType<typeof explainRequest>>) =>
  Object.fromEntries(rules.map(rule => [rule.name, rule.applies ? undefined : rule.because]))

it('accepts the country and the network in the form that Cloudflare reports', async () => {
  const input = { rules: [{ name: 'network', by: ['country', 'asn'], ...numbers } satisfies RuleInput] }
  const request = { method: 'GET', path: '/', country: 'DE', asn: '64496', consumer: 'acme' }
  const { rules } = await explain(config(input), request)
  expect(rules).toMatchObject([{ applies: true, key: 'sluice:{x:country=DE,asn=64496}:state' }])
  await expect(explain(config(input), { ...request, asn: 'x' })).rejects.toThrow(
    '--asn is not a number. Use a number such as 64496.',
  )
})

it('runs no hooks, lists them, and accepts the consumer that a hook would name', async () => {
  const identify = vi.fn(() => 'alice')
  const input = { rules: RULES.slice(0, 1), hooks: { identify, cost: () => 7 } }
  const request = { method: 'GET', path: '/', consumer: 'identify~alice' }
  const explanation = await explain(config(input), request)
  expect(explanation).toMatchObject({
    hooks: ['identify', 'cost'],
    caller: { method: 'identify', consumer: 'identify~alice', plan: 'free' },
    rules: [{ applies: true, cost: 1, key: 'sluice:{c:identify~alice}:state' }],
  })
  expect(identify).not.toHaveBeenCalled()
})

it('shows the key in which a rule counts requests in flight', async () => {
  const rules: RuleInput[] = [{ name: 'in-flight', by, algorithm: 'concurrency', limit: 3 }]
  const request = { method: 'GET', path: '/', consumer: 'acme' }
  const explanation = await explain(config({ rules }), request)
  expect(explanation.rules).toMatchObject([{ allows: '3 at once' }])
  expect(explanation.rules).toMatchObject([
    { key: expect.stringMatching(/^sluice:{c:acme}:state:held:\w+$/) },
  ])
})

it('says which windows start with their first request', async () => {
  const rules: RuleInput[] = [
    { name: 'first', by, ...numbers, start: 'first-request' },
    { name: 'clock', by, ...numbers, start: 'clock' },
  ]
  const { rules: explained } = await explain(config({ rules }), {
    method: 'GET',
    path: '/',
    consumer: 'acme',
  })
  expect(explained).toMatchObject([
    { allows: '10 per minute from the first request', start: 'first-request' },
    { allows: '10 per minute' },
  ])
  expect(explained[1]).not.toHaveProperty('start')
})

describe('a limit that follows the origin', () => {
  const adaptive = { min: 10 }
  const explainedWith = async (input: Partial<ConfigInput>) => {
    const { rules } = await explain(config({ rules: [], ...input }), {
      ...{ method: 'GET', path: '/', consumer: 'acme' },
    })
    return rules.map(rule => rule.applies && [rule.name, rule.allows, rule.limit, rule.adaptive])
  }
  const range = (min: number, initial: number, max: number) => ({
    method: 'gradient',
    min,
    initial,
    max,
    tolerance: 2,
  })

  it('has its range', async () => {
    const rule = { name: 'origin', by: 'global', algorithm: 'concurrency', limit: 1000 } as const
    expect(await explainedWith({ rules: [{ ...rule, adaptive }] })).toEqual([
      ['origin', '10 to 1000 at once, follows the origin', 1000, range(10, 20, 1000)],
    ])
    expect(await explainedWith({ rules: [rule] })).toEqual([['origin', '1000 at once', 1000, undefined]])
  })

  it('has a range for each class, if it is the capacity of the fleet', async () => {
    const classes = [{ name: 'critical', match: { methods: ['POST'] } }, { name: 'rest' }]
    const shedding = { classes, fleetUsage: { capacity: 400, adaptive } }
    expect(await explainedWith({ shedding })).toEqual([
      ['fleet-usage', '10 to 400 at once, follows the origin', 400, range(10, 20, 400)],
      ['fleet-usage-rest', '8 to 320 at once, follows the origin', 320, range(8, 16, 320)],
    ])
  })
})

describe('the class of a request', () => {
  const shedding = {
    classes: [{ name: 'critical', match: { methods: ['POST'] } }, { name: 'rest' }],
    workerUtilization: { signals: ['header' as const], header: 'x-utilization' },
  }
  it.each<[string, string, Partial<ExplainInput>, { name: string; shedBy: string | null }]>([
    ['has a rule that sheds it', '/', {}, { name: 'rest', shedBy: 'worker-utilization-rest' }],
    ['is never shed if it is the first', '/', { method: 'POST' }, { name: 'critical', shedBy: null }],
    ['is not shed on a route without limits', '/free/x', {}, { name: 'rest', shedBy: null }],
    ['is not shed for an allowed consumer', '/', { consumer: 'boss' }, { name: 'rest', shedBy: null }],
  ])('%s', async (_, path, more, expected) => {
    const request = { method: 'GET', path, consumer: 'acme', ...more }
    const explanation = await explain(config({ ...INPUT, shedding }), request)
    expect(explanation.trafficClass).toEqual(expected)
  })
})

describe('a request of a consumer', () => {
  it('has its route, the accepted credentials, and each rule that counts it', async () => {
    const request = {
      consumer: 'acme',
      address: '192.0.2.7',
      country: 'DE',
      headers: [['x-tenant', 'a b']] as const,
    }
    const explanation = await explainRequest('/reports/7?x=1', request)
    expect(explanation).toMatchObject({
      url: 'https://gateway.example/reports/7?x=1',
      route: { name: 'reports', cost: 3, limits: true },
      accept: ['api-key', 'opaque-key'],
      caller: { method: 'api-key', consumer: 'acme', address: '192.0.2.7', plan: 'free' },
    })
    expect(explanation).not.toHaveProperty('refusal')
    const applying = explanation.rules.filter(rule => rule.applies)
    expect(applying.map(({ name, key, cost, limit, mode }) => [name, key, cost, limit, mode])).toEqual([
      ['all', 'sluice:{c:acme}:state', 3, 10, 'enforce'],
      ['address', 'sluice:{ip:192.0.2.7}:state', 3, 10, 'enforce'],
      ['path', 'sluice:{c:acme}:state', 6, 10, 'enforce'],
      ['route', 'sluice:{c:acme}:state:route=reports', 3, 10, 'enforce'],
      ['rows', 'sluice:{c:acme}:state', 3, 10, 'enforce'],
      ['guesses', 'sluice:{ip:192.0.2.7}:state', 1, 10, 'enforce'],
      ['tried', 'sluice:{x:country=DE,header.x-tenant=a%20b}:state', 3, 10, 'shadow'],
      ['key', 'sluice:{c:acme}:state:credential=<sha256 of the key>', 3, 10, 'enforce'],
    ])
  })

  it('has the reason why each other rule does not apply', async () => {
    expect(reasons(await explainRequest('/elsewhere', { consumer: 'acme' }))).toEqual({
      posts: 'method: only POST',
      host: 'host: gateway.example does not match api.*',
      path: 'path: /elsewhere does not match /reports/*',
      route: 'route: only reports; the request has no route',
      pro: 'not for plan free, only for pro',
      strangers: 'only for callers without a credential',
      off: "mode: 'off'",
    })
    expect(
      reasons(await explainRequest('/elsewhere', { consumer: 'acme', host: 'api.example.com' })),
    ).toMatchObject({
      host: 'path: /elsewhere does not match /x/*',
    })
    const onPro = await explainRequest('/', { consumer: 'acme', plan: 'pro' })
    expect(onPro.rules.find(({ name }) => name === 'rows')).toMatchObject({ applies: true, limit: 99 })
    expect(reasons(await explainRequest('/', { consumer: 'acme', plan: 'gold' })).rows).toBe(
      'not for plan gold, only for free, pro',
    )
    expect(reasons(await explainRequest('/free/x', { consumer: 'acme' })).all).toBe(
      'the route free has limits: false',
    )
    expect(reasons(await explainRequest('/', { consumer: 'acme', address: '10.1.2.3' })).all).toMatch(
      /in allow\.addresses/,
    )
    const boss = reasons(await explainRequest('/', { consumer: 'boss' }))
    expect([boss.all, boss.guesses]).toEqual(['boss is in allow.consumers', undefined])
  })

  it('is counted under the keys of its environment', async () => {
    const live = config({ ...INPUT, environment: 'live' })
    const { rules } = await explain(live, { method: 'GET', path: '/', consumer: 'acme' })
    expect(rules[0]).toMatchObject({ key: 'sluice:live:{c:acme}:state' })
  })
})

describe('a request with a credential', () => {
  it('belongs to the consumer of the API key, if the route accepts API keys', async () => {
    const { caller } = await explainRequest('/', { key: mintApiKey('acme') })
    expect(caller).toMatchObject({ method: 'api-key', consumer: 'acme' })
    expect(await explainRequest('/partners', { key: mintApiKey('acme') })).toMatchObject({
      refusal: {
        status: 401,
        reason: 'this kind of credential is not accepted here; accepted here: opaque-key',
      },
    })
    expect((await explainRequest('/partners', { consumer: 'acme' })).caller.method).toBe('opaque-key')
  })

  it('that has no signature is refused if the config requires one, and a signed one is explained without the secret', async () => {
    const credentials = { ...INPUT.credentials, apiKeys: { signature: 'require' as const } }
    const explained = (key: string) =>
      explain(config({ ...INPUT, credentials }), { method: 'GET', path: '/', key })
    expect((await explained(mintApiKey('acme'))).refusal?.reason).toMatch(/^the key has no signature/)
    const key = await mintSignedKey({
      ...{ consumer: 'acme', start: 'slk_', environment: undefined, issuedAt: Date.now() },
      secret: { id: 'a1', text: 'unknown here' },
    })
    const { caller, refusal } = await explained(key)
    expect([caller.consumer, refusal]).toEqual(['acme', undefined])
  })

  it('that is an opaque key has no known consumer, because only the store knows whose key it is', async () => {
    const { caller, cost } = await explainRequest('/', { key: 'partner-key-of-before' })
    expect(caller).toMatchObject({ method: 'opaque-key', consumer: '?' })
    expect(cost.admitted!.commands).toContainEqual({ command: 'GET', least: 1, most: 1 })
  })

  it('that is malformed is refused without the store, and its text is not repeated', async () => {
    const key = `${mintApiKey('acme')}x`
    const explanation = await explainRequest('/', { key })
    expect(explanation).toMatchObject({
      refusal: { status: 401, reason: expect.stringContaining('malformed') },
      cost: { httpRequests: 0, admitted: { least: 0, most: 0 } },
    })
    expect(JSON.stringify(explanation)).not.toContain(key.slice(-20))
    for (const request of [{ key: 'line\nbreak' }, { token: 'secret-no-token' }, { method: 'bad method' }]) {
      const error = await explainRequest('/', request).catch(error => error)
      expect(error).toMatchObject({ kind: 'usage' })
      expect(error.message).not.toMatch(/line|secret/)
    }
  })

  it('that is a token is explained by its claims, without a check of its signature', async () => {
    const claims = { iss: 'https://issuer.example/', sub: 'user|1', tier: 'gold', aud: 'api', exp: 4e9 }
    const text = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url')
    const tokenOf = (more: object, alg = 'HS256') => `${text({ alg })}.${text({ ...claims, ...more })}.`
    const token = tokenOf({})
    expect((await explainRequest('/', { token })).refusal).toMatchObject({
      reason: expect.stringMatching(/^this kind of credential is not accepted here;/),
    })
    // The variable with the secret is not set, and not needed.
    const auth0 = jwt({
      ...{ secret: 'AUTH0_SECRET', algorithms: ['HS256'], issuer: claims.iss, audience: 'api' },
      ...{ claims: { consumer: 'sub', plan: 'tier' }, plans: { gold: 'pro' } },
    })
    const rules = [...RULES, { name: 'tier', by: ['claim:tier'], ...numbers } as RuleInput]
    const acceptingTokens = config({ ...INPUT, rules, credentials: { ...INPUT.credentials, jwt: { auth0 } } })
    const consumer = 'auth0~user|1'
    for (const request of [{ token }, { consumer, plan: 'pro' }]) {
      const explanation = await explain(acceptingTokens, { method: 'GET', path: '/', ...request })
      expect(explanation.caller).toMatchObject({ method: 'auth0', consumer: 'auth0~user%7C1', plan: 'pro' })
      expect(explanation.rules[0]).toMatchObject({ key: 'sluice:{c:auth0~user%7C1}:state' })
      expect(reasons(explanation).guesses).toBe(
        'counts only requests with a key: a token is verified without the store',
      )
    }
    const refusals: [object, string, alg?: string][] = [
      [{ exp: 1 }, 'the token has expired (exp)'],
      [
        { exp: undefined },
        'a time in the token (exp, nbf or iat) is missing or not valid, or its mode is neither live nor test',
      ],
      [{ aud: 'other' }, 'the token is for another audience (aud)'],
      [{ nbf: 4e9 - 1 }, 'the token is not valid yet (nbf)'],
      [{ sub: '' }, 'no claim of the token names a consumer'],
      [{ iss: 'other' }, 'the issuer (iss) of the token is not one that is accepted here'],
      [{}, 'the algorithm (alg) of the token is not one of its issuer in the config', 'none'],
    ]
    for (const [more, reason, alg] of refusals) {
      const bad = await explain(acceptingTokens, { method: 'GET', path: '/', token: tokenOf(more, alg) })
      expect(bad.refusal).toMatchObject({ status: 401, reason: expect.stringContaining(`${reason};`) })
    }
    const { rules: counted } = await explain(acceptingTokens, { method: 'GET', path: '/', token })
    expect(counted.at(-1)).toMatchObject({ key: 'sluice:{x:claim.auth0.tier=gold}:state' })
  })
})

describe('a request without a credential', () => {
  it('is accepted on routes that accept anonymous callers, and counted by the rules that can count it', async () => {
    const explanation = await explainRequest('/open', { address: '2001:db8::1' })
    expect(explanation.caller).toEqual({ method: 'anonymous', address: '2001:db8:0:0::/64' })
    expect(reasons(explanation)).toMatchObject({
      all: 'the caller has no consumer',
      address: undefined,
      pro: 'only for plan pro, and a caller without a credential has no plan',
      rows: 'the caller has no consumer',
      strangers: undefined,
      guesses: 'only for requests with a credential',
    })
  })

  it.each([
    ['/', {}, 401, 'no credential; accepted here: api-key, opaque-key'],
    ['/open', { address: '192.0.2.66' }, 403, "the client's address is in the block list of the config"],
    ['/open', { country: 'XX' }, 403, "the client's country is in the block list of the config"],
    ['/_sluice/x', { consumer: 'acme' }, 404, 'paths under /_sluice/ never reach the origin'],
  ])('at %s with %j is refused: %i', async (path, request, status, reason) => {
    const explanation = await explainRequest(path, request)
    expect(explanation.refusal).toEqual({ status, reason })
    expect(explanation.rules.every(({ applies }) => !applies)).toBe(true)
  })

  it('that is a preflight is not counted', async () => {
    const headers = [
      ['origin', 'https://app.example'],
      ['access-control-request-method', 'GET'],
    ] as const
    const explanation = await explainRequest('/', { method: 'OPTIONS', headers })
    expect(explanation).toMatchObject({ isPreflight: true, cost: { httpRequests: 0 } })
    expect(explanation).not.toHaveProperty('refusal')
  })

  it.each(['x-forwarded-for', 'forwarded', 'peer'] as const)(
    'has the given address if addresses are read from %s',
    async from => {
      const proxies = from === 'peer' ? {} : { trustedProxies: ['10.0.0.0/8'] }
      const settings = config({ ...INPUT, address: { from, ...proxies } })
      for (const [address, identity] of [
        ['192.0.2.9', '192.0.2.9'],
        ['2001:db8::9', '2001:db8:0:0::/64'],
      ] as const) {
        const { caller } = await explain(settings, { method: 'GET', path: '/open', address })
        expect(caller.address).toBe(identity)
      }
    },
  )
})
