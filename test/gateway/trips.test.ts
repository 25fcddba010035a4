/** The measured cost of one decision: HTTP requests to the store, and commands inside Redis. */
import { expect, it } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import { sha256 } from '../../src/sha256.ts'
import { consumerKey, credentialKey, pointerKey } from '../../src/store/keys.ts'
import { formatConsumer } from '../../src/store/records.ts'
import { credentialOf } from '../support/engines.ts'
import { type App, type TestGateway, useGateway } from '../support/gateway.ts'
import { sign } from '../support/key-server.ts'
import { describeOnRedis } from '../support/redis.ts'

/** Three windows, for the consumer and for the address: six limits. */
const RULES = (['consumer', 'address'] as const).flatMap((by): RuleInput[] => [
  { name: `${by}-second`, by, algorithm: 'gcra', limit: 50, period: '1h' },
  { name: `${by}-minute`, by, algorithm: 'fixed-window', limit: 120, period: '1d' },
  { name: `${by}-hour`, by, algorithm: 'fixed-window', limit: 240, period: '7d' },
])

describeOnRedis('a decision', (_, kind) => {
  const gateway = useGateway(kind)

  it('is one HTTP request to the store, cold or warm, allowed or refused', async () => {
    const key = await gateway.key('acme')
    // Each Redis needs the script once.
    expect(
      (await gateway.app({ rules: RULES }, { isCold: true })('/', { key, address: '192.0.2.1' })).status,
    ).toBe(200)
    expect(gateway.store.count()).toBe(2)

    // Cold: an isolate without any data, a new key and a new address.
    const other = await gateway.key('other')
    const app = gateway.app({ rules: RULES })
    expect((await app('/', { key: other, address: '192.0.2.2' })).status).toBe(200)
    expect(gateway.store.count()).toBe(1)

    // Warm.
    expect((await app('/', { key: other, address: '192.0.2.2' })).status).toBe(200)
    expect(gateway.store.count()).toBe(1)

    // Refused.
    const tight = gateway.app({ rules: RULES.map(rule => ({ ...rule, limit: 1 })) })
    expect((await tight('/', { key: other, address: '192.0.2.2' })).status).toBe(429)
    expect(gateway.store.count()).toBe(1)

    // Unknown to the store.
    expect((await app('/', { key: mintApiKey('acme') })).status).toBe(401)
    expect(gateway.store.count()).toBe(1)
  })

  it('makes no HTTP request if nothing has to be checked', async () => {
    const app = gateway.app({ rules: RULES })
    expect((await app('/')).status).toBe(401)
    expect((await app('/', { key: 'slk_acme_garbage' })).status).toBe(401)
    expect((await app('/', { key: mintApiKey('acme').slice(0, -1) })).status).toBe(401)
    expect((await app('/_sluice/nothing')).status).toBe(404)
    const preflight = { origin: 'https://app.example', 'access-control-request-method': 'GET' }
    expect((await app('/', { method: 'OPTIONS', headers: preflight })).status).toBe(200)
    expect(gateway.store.count()).toBe(0)
  })

  it('is one HTTP request with the fewest possible commands, for any caller (the embedded Redis counts no commands)', async () => {
    const set = (key: string, text: string) => gateway.redis.connection.send(['SET', key, text])
    const key = await gateway.key('counted')
    const revoked = await gateway.key('counted')
    await gateway.redis.connection.send(['DEL', credentialKey('counted', sha256(revoked))])
    const opaque = 'an-old-key-of-a-partner'
    await set(pointerKey(sha256(opaque)), 'counted')
    await set(credentialKey('counted', sha256(opaque)), credentialOf())
    const secret = 'a secret of the tests, of 32 bytes and some more'
    const claims = { iss: 'internal', aud: 'api', sub: 'alice', exp: Date.now() / 1e3 + 300 }
    const token = await sign(claims, { kid: 'x', alg: 'HS256', privateKey: new TextEncoder().encode(secret) })

    const guesses: RuleInput = { ...RULES[3]!, name: 'guesses', on: 'auth-failure' } as RuleInput
    const internal = jwt({ secret: 'SECRET', algorithms: ['HS256'], issuer: 'internal', audience: 'api' })
    const of = (rules: RuleInput[]): Parameters<TestGateway['app']> => [
      {
        rules,
        plans: ['free', 'pro'],
        credentials: {
          opaqueKeys: {},
          jwt: { internal },
          accept: ['api-key', 'internal', 'opaque-key', 'anonymous'],
        },
      },
      { variables: { SECRET: secret } },
    ]
    const isolate = () => gateway.app(of(RULES)[0], { ...of(RULES)[1], isCold: true })
    const warm = await gateway.informed(...of(RULES))
    const guarded = await gateway.informed(...of([...RULES, guesses]))
    const tight = await gateway.informed(...of(RULES.map(rule => ({ ...rule, limit: 1 }))))
    let addresses = 0
    const address = () => `198.51.100.${++addresses}`
    // Each script has to be sent once; opaque keys have a script of their own.
    await warm('/', { key, address: address() })
    await isolate()('/', { key: opaque, address: address() })

    const MGET = { evalsha: 1, time: 1, mget: 1 }
    // An isolate without a copy of the live switches, or with one older than a second, reads them in the same
    // request.
    const switches = 1
    const count = async (app: App, status: number, init: Parameters<App>[1]) => {
      gateway.store.count()
      const commands = await commandsOf(async () => {
        const response = await app('/', { address: address(), ...init })
        expect(response.status).toBe(status)
        return response
      })
      return [gateway.store.count(), ...(kind === 'embedded' ? [] : [commands])]
    }
    const is = (commands: Record<string, number>) => [1, ...(kind === 'embedded' ? [] : [commands])]

    expect(await count(warm, 200, { key }), 'API key, warm').toEqual(is({ ...MGET, setex: 2 }))
    expect(await count(isolate(), 200, { key }), 'API key, cold').toEqual(
      is({ ...MGET, get: switches, setex: 2 }),
    )
    await set(consumerKey('counted'), formatConsumer({ plan: 'pro', overrides: [] }))
    expect(await count(warm, 200, { key }), 'after a change of plan').toEqual(is({ ...MGET, setex: 2 }))
    expect(await count(warm, 401, { key: revoked }), 'API key, revoked').toEqual(is(MGET))
    expect(await count(warm, 401, { key: mintApiKey('nobody') }), 'API key, made up').toEqual(is(MGET))
    expect(await count(guarded, 401, { key: mintApiKey('nobody') }), 'a guess that is counted').toEqual(
      is({ ...MGET, setex: 1 }),
    )
    expect(await count(guarded, 200, { key }), 'a good key where guesses are counted').toEqual(
      is({ ...MGET, setex: 2 }),
    )
    expect(await count(tight, 200, { address: '192.0.2.9' }), 'anonymous').toEqual(is({ ...MGET, setex: 1 }))
    expect(await count(tight, 429, { key, address: '192.0.2.9' }), 'API key, refused').toEqual(is(MGET))
    const cold = gateway.app(of(RULES)[0], { ...of(RULES)[1], isCold: true, clock: { now: () => 0 } })
    expect(await count(cold, 200, { key: opaque }), 'opaque key, cold').toEqual(
      is({ ...MGET, get: 1 + switches, setex: 2 }),
    )
    expect(await count(cold, 200, { key: opaque }), 'opaque key, warm').toEqual(is({ ...MGET, setex: 2 }))
    expect(
      await count(warm, 401, { key: 'an opaque key, made up'.replaceAll(' ', '-') }),
      'opaque key, made up',
    ).toEqual(is({ ...MGET, get: 1 }))
    expect(await count(warm, 200, { key: token }), 'JWT').toEqual(is({ ...MGET, setex: 2 }))
    await set(consumerKey('counted'), formatConsumer({ blockedAt: new Date(), overrides: [] }))
    expect(await count(warm, 403, { key }), 'blocked').toEqual(is(MGET))
  })

  it('reads the live switches once a second, in the same request', async () => {
    let now = 5000
    const app = gateway.app({ rules: RULES }, { clock: { now: () => now } })
    const key = await gateway.key('switched')
    gateway.store.count()
    const gets: (number | undefined)[] = []
    for (now of [5000, 5000, 5999, 6000, 6001, 7100]) {
      const { get } = await commandsOf(() => app('/', { key, address: '192.0.2.10' }))
      gets.push(get)
      expect(gateway.store.count()).toBe(1)
    }
    if (kind !== 'embedded') expect(gets).toEqual([1, undefined, undefined, 1, undefined, 1])
  })

  async function commandsOf(work: () => Promise<Response>): Promise<Record<string, number>> {
    const { connection } = gateway.redis
    if (kind === 'embedded') return await work().then(() => ({}))
    await connection.send(['CONFIG', 'RESETSTAT'])
    await work()
    const info = String(await connection.send(['INFO', 'commandstats']))
    const calls = [...info.matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)].map(([, name, count]) => [
      name,
      Number(count),
    ])
    return Object.fromEntries(calls.filter(([name]) => !/^(config|info)/.test(String(name))))
  }
})
