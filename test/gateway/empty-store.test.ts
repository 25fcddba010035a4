/** The log says when the store has lost all keys, because each of them then gets a 401. */
import { afterEach, describe, expect, it, vi } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { revokeKey } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { useGateway } from '../support/gateway.ts'

const gateway = useGateway()
afterEach(() => vi.restoreAllMocks())

const RULE: RuleInput = { name: 'ten', by: 'consumer', algorithm: 'fixed-window', limit: 10, period: '1d' }

/** An app with a clock that the test moves, and the events that it logs. */
function observed() {
  const clock = { at: 0, now: () => clock.at }
  const events: string[] = []
  for (const level of ['info', 'warn'] as const) {
    vi.spyOn(console, level).mockImplementation(line => void events.push(JSON.parse(line).event))
  }
  const app = gateway.app({ rules: [RULE], log: {} }, { clock })
  const ask = async (key: string) => {
    clock.at += 2000
    return (await app('/', { key })).status
  }
  const logged = () => events.filter(event => event.startsWith('store'))
  return { ask, logged }
}

describe('a store that has lost all keys', () => {
  it('is reported once, when a key that it has admitted is unknown', async () => {
    const { ask, logged } = observed()
    const keys = [await gateway.key('acme'), await gateway.key('globex')]
    for (const key of keys) expect(await ask(key)).toBe(200)
    await gateway.redis.connection.send(['FLUSHALL'])
    for (const key of keys) expect(await ask(key)).toBe(401)
    await expect.poll(logged).toEqual(['store-empty'])
    for (const key of keys) expect(await ask(key)).toBe(401)
    expect(await ask(await gateway.key('acme'))).toBe(200)
    expect(logged()).toEqual(['store-empty'])
  })

  it('is reported after an outage, even if the isolate knows no key any more', async () => {
    const { ask, logged } = observed()
    gateway.store.fault = (_, response) => void response.destroy()
    for (let i = 0; i < 6; i++) expect(await ask(mintApiKey('acme'))).toBe(503)
    gateway.store.fault = undefined
    await expect.poll(() => ask(mintApiKey('acme')), { timeout: 10_000 }).toBe(401)
    await ask(mintApiKey('acme'))
    await expect.poll(logged).toEqual(['store-lost', 'store-back', 'store-empty'])
  })

  it('is not confused with a revoked key, nor with made-up keys, which cause no trip', async () => {
    const { ask, logged } = observed()
    await gateway.key('globex')
    const key = await gateway.key('acme')
    expect(await ask(key)).toBe(200)
    await revokeKey(gateway.admin, await findKey(gateway.admin, key))
    gateway.store.count()
    expect(await ask(key)).toBe(401)
    // The decision, and the check.
    let trips = 0
    await expect.poll(() => (trips += gateway.store.count())).toBe(2)
    expect(await ask(mintApiKey('acme'))).toBe(401)
    expect(gateway.store.count()).toBe(1)
    expect(logged()).toEqual([])
  })
})
