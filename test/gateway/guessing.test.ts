/**
 * Guessed credentials: they are counted on every route, and after too many of them no reply reveals whether a guess
 * was right.
 */
import { expect, it, vi } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { createKey, importKey } from '../../src/ops/keys.ts'
import { sha256 } from '../../src/sha256.ts'
import { consumerKey, credentialKey, pointerKey } from '../../src/store/keys.ts'
import { formatConsumer } from '../../src/store/records.ts'
import { credentialOf } from '../support/engines.ts'
import { useGateway } from '../support/gateway.ts'

const gateway = useGateway()

const GUESSES: RuleInput = {
  ...{ name: 'guesses', by: 'address', on: 'auth-failure' },
  ...{ algorithm: 'fixed-window', limit: 2, period: '300d' },
}
const TEN: RuleInput = { name: 'ten', by: 'consumer', algorithm: 'fixed-window', limit: 10, period: '300d' }

const TEST = { consumer: 'acme', mode: 'test' } as const

const app = (config: Partial<ConfigInput> = {}) => gateway.app({ rules: [TEN, GUESSES], ...config })
const set = (key: string, text: string) => gateway.redis.connection.send(['SET', key, text])

const OPAQUE = 'an-old-partner-key-4711'
const importOpaque = async (consumer: string) => {
  const digest = sha256(OPAQUE)
  await set(pointerKey(digest), consumer)
  await set(credentialKey(consumer, digest), credentialOf())
}

it('a guess is counted on a route without limits', async () => {
  const ask = app({ routes: [{ name: 'free', match: { path: '/free/*' }, limits: false }] })
  const key = await gateway.key('acme')
  const statuses = []
  for (let i = 0; i < 3; i++) statuses.push((await ask('/free/x', { key: mintApiKey('acme') })).status)
  expect(statuses).toEqual([401, 401, 429])
  expect((await ask('/free/x', { key })).status).toBe(429)
  // At another address, where no guess was made, nothing is counted.
  const elsewhere = await ask('/free/x', { key, address: '192.0.2.9' })
  expect([elsewhere.status, elsewhere.headers.get('ratelimit')]).toEqual([200, null])
})

it.each(['GET', 'HEAD', 'POST', 'OPTIONS', 'DELETE', 'PROPFIND'])('a %s guess is counted', async method => {
  const ask = app()
  const statuses = []
  for (let i = 0; i < 3; i++) statuses.push((await ask('/', { method, key: mintApiKey('acme') })).status)
  expect(statuses).toEqual([401, 401, 429])
})

it('a guess is counted for any claimed consumer: allowed, blocked or unknown', async () => {
  await set(consumerKey('bad'), formatConsumer({ blockedAt: new Date(), overrides: [] }))
  const ask = app({ allow: { consumers: ['acme'] } })
  for (const [i, consumer] of ['acme', 'bad', 'nobody'].entries()) {
    const { status } = await ask('/', { key: mintApiKey(consumer) })
    expect([consumer, status]).toEqual([consumer, i < 2 ? 401 : 429])
  }
})

it('guesses of API keys and opaque keys are counted together, in any header', async () => {
  const ask = app({ credentials: { opaqueKeys: {} } })
  expect((await ask('/', { key: 'a-guess-of-an-opaque-key' })).status).toBe(401)
  expect((await ask('/', { headers: { 'x-api-key': 'another-guess-of-a-key' } })).status).toBe(401)
  expect((await ask('/', { headers: { 'x-api-key': mintApiKey('acme') } })).status).toBe(429)
})
/** All that a caller can see of a reply, except its id and the seconds, which change. */
const seen = async (response: Response) => {
  const headers = [...response.headers].filter(([name]) => name !== 'x-request-id')
  return [response.status, String(headers), await response.text()].join('\n').replace(/\d{5,}/g, '<seconds>')
}

it('after too many guesses, right and wrong ones get the same reply', async () => {
  const log = (['log', 'warn', 'error', 'info', 'debug'] as const).map(level => vi.spyOn(console, level))
  const ask = app({ credentials: { opaqueKeys: {} }, allow: { consumers: ['allowed'] } })
  const right = {
    good: await gateway.key('acme'),
    allowed: await gateway.key('allowed'),
    blocked: await gateway.key('blocked'),
    exhausted: await gateway.key('exhausted'),
    opaque: OPAQUE,
  }
  await importOpaque('partner')
  await set(consumerKey('blocked'), formatConsumer({ blockedAt: new Date(), overrides: [] }))
  for (let i = 0; i < 10; i++) await ask('/', { key: right.exhausted, address: '192.0.2.9' })
  for (let i = 0; i < 2; i++) await ask('/', { key: mintApiKey('acme') })
  gateway.origin.received.length = 0

  const wrong = await seen(await ask('/', { key: mintApiKey('acme') }))
  expect(wrong).toMatch(/^429/)
  for (const [name, key] of Object.entries(right)) {
    gateway.store.count()
    expect(await seen(await ask('/', { key })), name).toEqual(wrong)
    // One trip, and a second one if the store does not have the script of that kind of call.
    expect(gateway.store.count(), name).toBeLessThanOrEqual(2)
  }
  expect(gateway.origin.received).toEqual([])
  for (const spy of log) {
    expect(spy).not.toHaveBeenCalled()
    spy.mockRestore()
  }
  // Callers at another address are not affected.
  expect((await ask('/', { key: right.blocked, address: '192.0.2.9' })).status).toBe(403)
  const good = await ask('/', { key: right.good, address: '192.0.2.9' })
  expect(good.headers.get('ratelimit')).toMatch(/^"ten";r=9;/)
})

it.each(['an isolate that has seen no other request', 'an isolate that knows the keys'])(
  'after too many guesses, right and wrong ones take one trip each in %s',
  async which => {
    const config = { rules: [TEN, GUESSES], credentials: { opaqueKeys: {} } }
    const keys = {
      ...{ wrong: mintApiKey('acme'), 'wrong opaque': 'a-guess-of-an-opaque-key' },
      ...{ live: await gateway.key('acme'), test: (await createKey(gateway.admin, TEST)).key },
      ...{ 'live opaque': 'an-old-key-of-acme', 'test opaque': 'an-old-test-key-of-acme' },
    }
    await importKey(gateway.admin, { key: keys['live opaque'] }, { consumer: 'acme' })
    await importKey(gateway.admin, { key: keys['test opaque'] }, TEST)
    const address = '192.0.2.7'
    for (let i = 0; i < 2; i++) await app()('/', { key: mintApiKey('acme'), address })

    for (const [name, key] of Object.entries(keys)) {
      const ask = await gateway.informed(config)
      if (which.endsWith('keys')) await ask('/', { key, address: '192.0.2.9' })
      gateway.store.count()
      expect([name, (await ask('/', { key, address })).status, gateway.store.count()]).toEqual([name, 429, 1])
    }
  },
)

it('the refusal of another limit does not reveal how many guesses are left', async () => {
  const ask = app({ rules: [{ ...TEN, limit: 1 }, GUESSES] })
  const key = await gateway.key('acme')
  await ask('/', { key })
  const refused = await ask('/', { key })
  expect([refused.status, refused.headers.get('ratelimit')]).toEqual([
    429,
    expect.stringMatching(/^"ten";r=0;t=\d+$/),
  ])
  expect(refused.headers.get('ratelimit-policy')).not.toContain('guesses')
})
