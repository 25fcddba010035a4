/** What one decision costs: HTTP requests to the store, and commands inside Redis. Counted, not believed. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RuleInput } from '../../src/config/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { startGateway, type TestGateway } from '../support/gateway.ts'
import { REDIS_KINDS } from '../support/redis.ts'

/** Three windows, for the consumer and for the address: six limits. */
const RULES = (['consumer', 'address'] as const).flatMap((by): RuleInput[] => [
  { name: `${by}-second`, by, algorithm: 'gcra', limit: 50, period: '1h' },
  { name: `${by}-minute`, by, algorithm: 'fixed-window', limit: 120, period: '1d' },
  { name: `${by}-hour`, by, algorithm: 'fixed-window', limit: 240, period: '7d' },
])

describe.each(REDIS_KINDS)('a decision, on the %s Redis', kind => {
  let gateway: TestGateway
  beforeAll(async () => {
    gateway = await startGateway(kind)
  })
  afterAll(() => gateway?.close())

  it('is one HTTP request to the store, cold or warm, allowed or refused', async () => {
    const key = await gateway.key('acme')
    // Once per life of a Redis the script itself has to be sent.
    expect((await gateway.app({ rules: RULES })('/', { key, address: '192.0.2.1' })).status).toBe(200)
    expect(gateway.store.count()).toBe(2)

    // Cold: an isolate that has seen nothing, a key and an address it has never met.
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

    // Not known to the store.
    expect((await app('/', { key: mintApiKey('acme') })).status).toBe(401)
    expect(gateway.store.count()).toBe(1)
  })

  it('is none at all where nothing has to be asked', async () => {
    const app = gateway.app({ rules: RULES })
    expect((await app('/')).status).toBe(401)
    expect((await app('/', { key: 'slk_acme_garbage' })).status).toBe(401)
    expect((await app('/', { key: mintApiKey('acme').slice(0, -1) })).status).toBe(401)
    expect((await app('/_sluice/nothing')).status).toBe(404)
    const preflight = { origin: 'https://app.example', 'access-control-request-method': 'GET' }
    expect((await app('/', { method: 'OPTIONS', headers: preflight })).status).toBe(200)
    expect(gateway.store.count()).toBe(0)
  })

  it.skipIf(kind === 'embedded')(
    'is five commands in Redis when allowed, three when refused (the embedded one keeps no statistics)',
    async () => {
      const app = gateway.app({ rules: RULES })
      const tight = gateway.app({ rules: RULES.map(rule => ({ ...rule, limit: 1 })) })
      const key = await gateway.key('counted')
      const allowed = await commandsOf(() => app('/', { key, address: '192.0.2.3' }))
      expect(allowed).toEqual({ evalsha: 1, time: 1, mget: 1, setex: 2 })
      const refused = await commandsOf(() => tight('/', { key, address: '192.0.2.3' }))
      expect(refused).toEqual({ evalsha: 1, time: 1, mget: 1 })
      const unknown = await commandsOf(() => app('/', { key: mintApiKey('counted') }))
      expect(unknown).toEqual({ evalsha: 1, time: 1, mget: 1 })
    },
  )

  async function commandsOf(work: () => Promise<Response>): Promise<Record<string, number>> {
    const { connection } = gateway.redis
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
