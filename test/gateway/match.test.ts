/** The route of a request, the rules that apply to it, and the identities that they count, as docs/config.md describes them. */

import { describe, expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { By, MatchInput } from '../../src/config/check/rule-schema.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import type { Caller } from '../../src/set-ups/http/caller.ts'
import { demandRules } from '../../src/set-ups/http/demand-rules.ts'
import { createIdentifier } from '../../src/set-ups/http/identify.ts'
import { createMatch } from '../../src/set-ups/http/match.ts'
import { createMatchByRequest } from '../../src/set-ups/http/match-by-request.ts'

const match = (config: Parameters<typeof createMatch>[0], request: Request) =>
  createMatch(config, createMatchByRequest)(request)

const RULE = { name: 'a', by: 'address', algorithm: 'gcra', limit: 100, period: '1s' } as const

const configOf = (config: Partial<ConfigInput>) =>
  checkedConfig({ origin: 'route', plans: ['free', 'pro'], rules: [RULE], ...config })

const requestOf = (path: string, init?: RequestInit) => new Request(`https://api.example.com${path}`, init)

describe('a rule applies to a request', () => {
  it.each<[MatchInput, string, string, boolean]>([
    [{}, 'GET', '/', true],
    [{ path: '/reports/*' }, 'GET', '/reports/7', true],
    [{ path: '/reports/*' }, 'GET', '/Reports/7', true],
    [{ path: '/reports/*' }, 'GET', '/reports', false],
    [{ path: '/reports' }, 'GET', '/reports/', true],
    [{ path: '/reports/:id' }, 'GET', '/reports/7/rows', false],
    [{ path: '/(reports|exports)/*' }, 'GET', '/exports/7', true],
    [{ host: '*.example.com' }, 'GET', '/', true],
    [{ host: 'API.example.com' }, 'GET', '/', true],
    [{ host: 'example.com' }, 'GET', '/', false],
    [{ methods: ['GET'] }, 'HEAD', '/', true],
    [{ methods: ['HEAD'] }, 'GET', '/', false],
    [{ methods: ['POST', 'PUT'] }, 'PUT', '/', true],
    [{ methods: ['POST'], path: '/reports/*' }, 'GET', '/reports/7', false],
    [{ methods: ['POST'], path: '/reports/*' }, 'POST', '/reports/7', true],
    [{ host: 'example.com', path: '/reports/*' }, 'GET', '/reports/7', false],
  ])('if %j matches %s %s: %s', (place, method, path, isFor) => {
    const { rules } = match(configOf({ rules: [{ ...RULE, match: place }] }), requestOf(path, { method }))
    expect(rules).toHaveLength(isFor ? 1 : 0)
  })

  it('together with all others that apply', () => {
    const rules = ['/a/b', '/a/*', '/*'].map((path, i) => ({ ...RULE, name: `${i}`, match: { path } }))
    expect(match(configOf({ rules }), requestOf('/a/b')).rules).toHaveLength(3)
    expect(match(configOf({ rules: rules.slice(0, 2) }), requestOf('/b')).rules).toEqual([])
  })
})

describe('the route of a request', () => {
  it.each([
    ['/users/me', ['/users/:id', '/users/me'], '/users/me'],
    ['/users/7/posts', ['/users/*', '/users/:id/posts'], '/users/:id/posts'],
    ['/a/b', ['/*/b', '/a/*'], '/a/*'],
    ['/users/7', ['/users', '/users/:id/posts'], undefined],
  ])('for %s, out of %j, is %s', (path, paths, expected) => {
    const routes = paths.map((path, i) => ({ name: `${i}`, match: { path } }))
    const { route } = match(configOf({ routes }), requestOf(path))
    expect(route && paths[Number(route.name)]).toBe(expected)
  })

  const routes: ConfigInput['routes'] = [
    { name: 'open', match: { path: '/open/*' }, accept: ['api-key', 'anonymous'], cost: 2 },
    { name: 'free', match: { path: '/free/*' }, accept: ['anonymous'], limits: false },
    { name: 'costly', match: { path: '/costly' }, cost: 7 },
  ]

  /** For a path: the route, accepted credentials, the cost, and the number of rules. */
  it.each([
    ['/open/x', 'open', ['api-key', 'anonymous'], 2, 1],
    ['/free/x', 'free', ['anonymous'], 1, 0],
    ['/costly', 'costly', ['api-key'], 7, 1],
    ['/other', undefined, ['api-key'], 1, 1],
    // Both readings apply: credentials that both accept, the higher cost, and limits if one of them has limits.
    ['/open/..%2ffree/x', 'open', ['anonymous'], 2, 1],
    ['/free/..%2fcostly', 'free', [], 7, 1],
    ['/open%2fx', 'open', ['api-key'], 2, 1],
    ['//costly', 'costly', ['api-key'], 7, 1],
    ['/costly/', 'costly', ['api-key'], 7, 1],
  ] as const)('%s: %s, which accepts %j, at %i times the cost', (path, name, accept, cost, rules) => {
    const matched = match(configOf({ routes }), requestOf(path))
    expect([
      matched.route?.name,
      matched.settings.accept,
      matched.settings.cost,
      matched.rules.length,
    ]).toEqual([name, accept, cost, rules])
  })
})

const ANONYMOUS_CALLER: Caller = { address: '192.0.2.1', addressIdentity: '192.0.2.1' }
const WITH_KEY: Caller = {
  ...ANONYMOUS_CALLER,
  credential: {
    ...{ method: 'api-key', consumer: 'acme', digest: 'd1', header: 'x-api-key', isVerified: false },
    subject: { kind: 'key', consumerKey: 'c', credentialKey: 'k' },
  },
}
const withToken = (claims: Record<string, unknown>): Caller => ({
  ...ANONYMOUS_CALLER,
  credential: {
    ...{ method: 'auth0', consumer: 'auth0~7', digest: 'd2', header: 'authorization', isVerified: true },
    ...{ subject: { kind: 'token', consumerKey: 'c' }, claims },
  },
})

const TOKENS = {
  jwt: {
    auth0: jwt({ jwks: 'https://i.example.com/', algorithms: ['RS256'], issuer: 'i', audience: 'a' }),
  },
}

/** The rules that the store evaluates: name, key and cost. */
async function evaluatedRules(config: Partial<ConfigInput>, request: Request, caller: Caller) {
  const compiled = configOf({ credentials: TOKENS, ...config })
  const rules = demandRules(request, caller, match(compiled, request), compiled.allow)
  return rules.map(({ rule, key, cost }) => [rule.name, key.replace(/^sluice:/, ''), cost] as const)
}

describe('the identity', () => {
  const routes = [{ name: 'reports', match: { path: '/reports/*' } }]
  const keyOf = async (by: By | By[], caller: Caller, request = requestOf('/')) =>
    (await evaluatedRules({ rules: [{ ...RULE, by }], routes }, request, caller))[0]?.[1]

  it.each<[By | By[], Caller, string | undefined]>([
    ['consumer', WITH_KEY, '{c:acme}:state'],
    ['credential', WITH_KEY, '{c:acme}:state:credential=d1'],
    ['address', WITH_KEY, '{ip:192.0.2.1}:state'],
    [['consumer', 'address'], WITH_KEY, '{c:acme}:state:address=192.0.2.1'],
    ['method', WITH_KEY, '{x:method=GET}:state'],
    ['host', WITH_KEY, '{x:host=api.example.com}:state'],
    ['global', ANONYMOUS_CALLER, '{global}:state'],
    ['claim:org', withToken({ org: 'x' }), '{x:claim.auth0.org=x}:state'],
    // Without a credential there is no consumer, and without a token there are no claims.
    ['consumer', ANONYMOUS_CALLER, undefined],
    ['credential', ANONYMOUS_CALLER, undefined],
    [['consumer', 'route'], ANONYMOUS_CALLER, undefined],
    ['claim:org', ANONYMOUS_CALLER, undefined],
    ['claim:org', WITH_KEY, undefined],
    // If any other value is missing, all requests without that value are one identity.
    ['claim:org', withToken({}), '{x:claim.auth0.org}:state'],
    ['claim:org', withToken({ org: ['x'] }), '{x:claim.auth0.org}:state'],
    ['header:x-tenant', ANONYMOUS_CALLER, '{x:header.x-tenant}:state'],
    ['route', ANONYMOUS_CALLER, '{x:route}:state'],
    [['consumer', 'route'], WITH_KEY, '{c:acme}:state:route'],
    ['country', ANONYMOUS_CALLER, '{x:country}:state'],
    ['asn', ANONYMOUS_CALLER, '{x:asn}:state'],
  ])('by %j', async (by, caller, key) => expect(await keyOf(by, caller)).toBe(key))

  it('by values of the request', async () => {
    const request = requestOf('/reports/7', { method: 'HEAD', headers: { 'X-Tenant': 'a=b' } })
    expect(await keyOf(['header:x-tenant', 'method', 'route'], ANONYMOUS_CALLER, request)).toBe(
      '{x:header.x-tenant=a%3Db,method=HEAD,route=reports}:state',
    )
  })
})

describe('the evaluated rules', () => {
  const rules: ConfigInput['rules'] = [
    { ...RULE, name: 'everybody', cost: 3 },
    { ...RULE, name: 'callers', by: 'consumer' },
    { ...RULE, name: 'visitors', match: { authenticated: false } },
    { ...RULE, name: 'known', match: { authenticated: true } },
    { ...RULE, name: 'of-plans', match: { plans: ['free'] } },
    { ...RULE, name: 'own-numbers', plans: { pro: { limit: 7 } } },
    { ...RULE, name: 'failures', on: 'auth-failure' },
  ]
  const names = async (caller: Caller, config: Partial<ConfigInput> = {}) => [
    ...new Set((await evaluatedRules({ rules, ...config }, requestOf('/'), caller)).map(([name]) => name)),
  ]

  it.each([
    ['no credential', ANONYMOUS_CALLER, ['everybody', 'visitors', 'own-numbers']],
    ['a key', WITH_KEY, ['everybody', 'callers', 'known', 'of-plans', 'own-numbers', 'failures']],
    ['a token', withToken({}), ['everybody', 'callers', 'known', 'of-plans', 'own-numbers']],
  ])('with %s', async (_, caller, expected) => expect(await names(caller)).toEqual(expected))

  it('at an allowed address: none. For an allowed consumer: only those that count failed credentials', async () => {
    expect(await names(WITH_KEY, { allow: { addresses: ['192.0.2.0/24'] } })).toEqual([])
    expect(await names(WITH_KEY, { allow: { consumers: ['acme'] } })).toEqual(['failures'])
  })

  it('multiply their cost by that of the route, except those on auth-failure, which alone remain on a route without limits', async () => {
    const on = async (route: object) =>
      (
        await evaluatedRules(
          { rules, routes: [{ name: 'r', match: { path: '/' }, ...route }] },
          requestOf('/'),
          WITH_KEY,
        )
      ).flatMap(([name, _, cost]) => (/everybody|failures/.test(name) ? [cost] : []))
    expect(await on({})).toEqual([3, 1])
    expect(await on({ cost: 4 })).toEqual([12, 1])
    expect(await on({ limits: false })).toEqual([1])
  })
})

it('a blocked address is refused even if it is allowed, before its credential is checked', async () => {
  const lists = { addresses: ['192.0.2.0/24'] }
  const config = configOf({ allow: lists, block: lists })
  const request = requestOf('/', { headers: { 'cf-connecting-ip': '192.0.2.1', 'x-api-key': 'garbage' } })
  const { refusal } = await createIdentifier(config, ALL_PARTS).identify(request, match(config, request))
  expect(refusal).toEqual({ kind: 'forbidden', what: 'address' })
})
