/** GET usage: what a caller has left, for its own credential. */
import { beforeEach, describe, expect, it } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { blockConsumer, setPlan } from '../../src/ops/consumers.ts'
import { importKey } from '../../src/ops/keys.ts'
import { type ApiCall, apiOf, tokenWith } from '../support/api.ts'
import { useGateway } from '../support/gateway.ts'
import { describeOnRedis } from '../support/redis.ts'

const window = { algorithm: 'fixed-window', period: '300d' } as const
const RULES: RuleInput[] = [
  { name: 'all', by: 'consumer', ...window, limit: 100, plans: { pro: { limit: 1000 } } },
  { name: 'posts', by: 'consumer', ...window, limit: 10, match: { methods: ['POST'] } },
  { name: 'key', by: 'credential', ...window, limit: 50 },
  { name: 'units', by: 'consumer', ...window, limit: 5000, unit: 'tokens' },
  { name: 'per-route', by: ['consumer', 'route'], ...window, limit: 10 },
  { name: 'address', by: 'address', ...window, limit: 10 },
  { name: 'trial', by: 'consumer', ...window, limit: 3, mode: 'shadow' },
  { name: 'guesses', by: 'address', ...window, limit: 3, on: 'auth-failure' },
]
const CONFIG: Partial<ConfigInput> = {
  rules: RULES,
  plans: ['free', 'pro'],
  units: { tokens: { estimate: 100 } },
  credentials: { accept: ['api-key', 'opaque-key', 'anonymous'], opaqueKeys: {} },
}

describeOnRedis('GET usage', (_, kind) => {
  const gateway = useGateway(kind)
  let api: ApiCall
  const usage = (key: string | undefined, address?: string) =>
    api('GET usage', { ...(key && { token: key }), ...(address && { address }) })

  beforeEach(() => {
    api = apiOf(gateway, CONFIG)
  })

  it('shows what enforced rules by consumer or key have left, and nothing else', async () => {
    const key = await gateway.key('acme')
    const { status, headers, body } = await usage(key)
    expect(status).toBe(200)
    expect(headers.get('cache-control')).toBe('no-store')
    expect(body).toEqual({
      ...{ consumer: 'acme', mode: 'live', plan: 'free' },
      rules: [
        { ...rule('all', 100), countsAll: true },
        { ...rule('posts', 10), countsAll: false },
        { ...rule('key', 50), countsAll: true },
        { ...rule('units', 5000, 'tokens'), countsAll: true },
      ],
    })
  })

  it('spends nothing, in one trip', async () => {
    const key = await gateway.key('acme')
    const app = gateway.app({ ...CONFIG, rules: RULES })
    await app('/', { key })
    gateway.store.count()
    for (let i = 0; i < 3; i++) expect((await usage(key)).body.rules[0].remaining).toBe(99)
    expect(gateway.store.count()).toBe(3)
  })

  it('spends nothing, whatever hooks say about the cost', async () => {
    const hooks = { cost: () => 7, amounts: () => ({ tokens: 70 }) }
    const key = await gateway.key('acme')
    await gateway.app({ ...CONFIG, rules: RULES, hooks })('/', { key })
    api = apiOf(gateway, { ...CONFIG, hooks })
    for (let i = 0; i < 3; i++)
      expect((await usage(key)).body.rules).toMatchObject([
        { name: 'all', remaining: 93 },
        { name: 'posts', remaining: 10 },
        { name: 'key', remaining: 43 },
        { name: 'units', remaining: 4930 },
      ])
  })

  it('says so if it gets a service token, which is no guess of a key, and so does the API if it gets a key', async () => {
    const token = await tokenWith(gateway, ['keys:write'])
    for (let i = 0; i < 5; i++)
      expect(await usage(token, '1.2.3.4')).toMatchObject({
        status: 401,
        body: { detail: "This is a service token. GET usage needs the caller's own API key." },
      })
    const key = await gateway.key('acme')
    expect((await usage(key, '1.2.3.4')).status).toBe(200)
    expect(await api('GET keys', { token: key })).toMatchObject({
      status: 401,
      body: { detail: 'This is not a service token (slt_…). API keys are only for GET usage.' },
    })
  })

  it('shows the numbers of the plan, and an imported key', async () => {
    await setPlan(gateway.admin, 'acme', 'pro')
    await importKey(gateway.admin, { key: 'an-imported-key-of-acme' }, { consumer: 'acme', mode: 'test' })
    const { body } = await usage('an-imported-key-of-acme')
    expect(body).toMatchObject({
      consumer: 'acme',
      mode: 'test',
      plan: 'pro',
      rules: [{ limit: 1000, remaining: 1000 }, {}, {}, {}],
    })
  })

  it('needs a credential, and counts wrong ones as guesses', async () => {
    expect((await usage(undefined)).status).toBe(401)
    const replies = []
    for (let i = 0; i < 5; i++) replies.push((await usage(`an-unknown-opaque-key-${i}`, '192.0.2.7')).status)
    expect(replies).toEqual([401, 401, 401, 429, 429])
    const key = await gateway.key('acme')
    expect(await usage(key, '192.0.2.7')).toMatchObject({
      status: 429,
      body: { type: 'urn:sluice:problem:too-many-guesses', 'violated-policies': ['guesses'] },
    })
    expect((await usage(key, '192.0.2.8')).status).toBe(200)
  })

  it('is limited itself, for each credential', async () => {
    let now = Date.now()
    api = apiOf(gateway, CONFIG, { clock: { now: () => now } })
    const [key, other] = [await gateway.key('acme'), await gateway.key('other')]
    const statuses = []
    for (let i = 0; i < 21; i++) statuses.push((await usage(key)).status)
    expect(statuses).toEqual([...new Array<number>(20).fill(200), 429])
    gateway.store.count()
    const { headers, body } = await usage(key)
    expect([headers.get('retry-after'), body.type]).toEqual(['1', 'urn:sluice:problem:too-often'])
    expect(gateway.store.count()).toBe(0)
    expect((await usage(other)).status).toBe(200)
    now += 1000
    expect((await usage(key)).status).toBe(200)
    expect((await usage(key)).status).toBe(429)
    now -= 3_600_000
    expect((await usage(key)).status).toBe(429)
    now += 21_000
    expect((await usage(key)).status).toBe(200)
  })

  it('does not say what is left if the store does not', async () => {
    const key = await gateway.key('acme')
    expect((await usage(key)).status).toBe(200)
    gateway.store.fault = (_, reply) => reply.destroy()
    const { status, headers, body } = await usage(key)
    expect([status, headers.get('retry-after') !== null]).toEqual([503, true])
    expect(body).toMatchObject({ type: 'urn:sluice:problem:store-unavailable', change: 'none' })
  })

  it('refuses with the problems of the API, and the challenge of the gateway', async () => {
    const missing = await usage(undefined)
    expect(missing.body.type).toBe('urn:sluice:problem:unauthenticated')
    expect(missing.headers.get('www-authenticate')).toBe('Bearer realm="sluice"')
    const key = await gateway.key('acme')
    await blockConsumer(gateway.admin, 'acme')
    expect((await usage(key)).body).toMatchObject({ status: 403, type: 'urn:sluice:problem:blocked' })
  })
})

const rule = (name: string, limit: number, unit = 'requests') => ({
  ...{ name, unit, limit, allowance: `${limit}${unit === 'requests' ? '' : ` ${unit}`} per 300 days` },
  ...{ remaining: limit, resetAfterMs: 0 },
})

describe('GET usage', () => {
  const gateway = useGateway()

  it('is not served unless the API has it', async () => {
    const api = apiOf(gateway, { ...CONFIG, api: { routes: ['keys'] } })
    await expect(api('GET usage')).rejects.toThrow('replied 404')
  })
})
