/** `sluicegate/testing`: keys that the config under test accepts. */
import { createRequire } from 'node:module'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { defineConfig } from '../../src/config/define.ts'
import { startTestStore, type TestStore, type TestStoreOptions } from '../../src/node/testing.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { setPlan } from '../../src/ops/consumers.ts'
import { guard } from '../../src/set-ups/guard/index.ts'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'

/** Starts a store for the tests of a `describe`. Each test begins without data. */
function useTestStore(options?: TestStoreOptions): TestStore {
  // The first hook fills it in.
  const store = {} as TestStore
  beforeAll(async () => {
    Object.assign(store, await startTestStore(options))
  })
  beforeEach(() => store.clear())
  afterAll(() => store.close?.())
  return store
}

const config = defineConfig({
  environment: 'live',
  plans: ['basic', 'pro'],
  credentials: { apiKeys: { prefix: 'acme' } },
  rules: [
    {
      name: 'minute',
      by: 'consumer',
      algorithm: 'fixed-window',
      limit: 1,
      period: '1m',
      plans: { pro: { limit: 3 } },
    },
  ],
})

async function limitOf(store: TestStore, key: string): Promise<string | null> {
  const handler = guard(config, { env: store.env })((_: Request) => new Response('Hello'))
  const { status, headers } = await handler(new Request('http://x.test/', { headers: { 'x-api-key': key } }))
  return status === 200 ? headers.get('ratelimit-policy') : String(status)
}

describe('a store with the config', () => {
  const store = useTestStore({ config })

  it('creates keys with the environment and the prefix of the config, on its first plan', async () => {
    const key = await store.createKey('alice')
    expect(key).toMatch(/^acme_live_alice_/)
    expect(await limitOf(store, key)).toBe('"minute";q=1;w=60')
    expect(await limitOf(store, await store.createKey('bob', 'pro'))).toBe('"minute";q=3;w=60')
  })

  it('creates keys without a plan of their own unless one is given, so the plan of the consumer applies', async () => {
    const { UPSTASH_REDIS_REST_URL: url = '', UPSTASH_REDIS_REST_TOKEN: token = '' } = store.env
    const admin = createAdminStore({ url, token, environment: 'live', keyPrefix: 'acme' })
    const key = await store.createKey('alice')
    await setPlan(admin, 'alice', 'pro')
    expect(await limitOf(store, key)).toBe('"minute";q=3;w=60')
  })

  it('refuses a plan that the config does not have', async () => {
    await expect(store.createKey('alice', 'prro')).rejects.toThrow(
      "The config has no plan 'prro'. Did you mean 'pro'? Plans: basic, pro.",
    )
  })
})

it('a store with a config without plans has the default plan', async () => {
  const store = await startTestStore({ config: {} })
  await expect(store.createKey('alice', 'pro')).rejects.toThrow('Plans: free.').finally(store.close)
})

describe('a store without a config', () => {
  const store = useTestStore()

  it('signs keys for a config that checks signatures', async () => {
    const signing = defineConfig({ ...config, credentials: { apiKeys: { signature: 'require' } } })
    const handler = guard(signing, { env: store.env })((_: Request) => new Response('Hello'))
    const statusOf = async (key: string) =>
      (await handler(new Request('http://x.test/', { headers: { 'x-api-key': key } }))).status
    expect(await statusOf(await store.createKey('alice', 'pro', signing))).toBe(200)
    const unsigned = await store.createKey('alice', 'pro', { environment: 'live' })
    expect(await statusOf(unsigned)).toBe(401)
  })

  it('accepts a config for each key, and any plan', async () => {
    expect(await limitOf(store, await store.createKey('alice', 'pro', config))).toBe('"minute";q=3;w=60')
    expect(await store.createKey('alice', 'any')).toMatch(/^slk_alice_/)
  })
})

it('can be loaded by `require`, which refuses modules that await at their top', () => {
  const { startTestStore } = createRequire(import.meta.url)('../../src/node/testing.ts')
  expect(startTestStore).toBeTypeOf('function')
})

describe('with fake timers', () => {
  const store = useTestStore()
  const limited = defineConfig({
    refusals: { rememberFor: 0 },
    limits: { mails: [{ name: 'mails', algorithm: 'fixed-window', limit: 1, period: '1m' }] },
  })
  const limiter = () => createLimiter(limited, { env: store.env })
  beforeEach(() => onTestFinished(() => void vi.useRealTimers()))

  it('that fake only the date, the date is the time of the limits, as in docs/guard.md', async () => {
    vi.useFakeTimers({ toFake: ['Date'] })
    const { limit } = limiter()
    const allowed = [(await limit('mails')).allowed, (await limit('mails')).allowed]
    vi.setSystemTime(Date.now() + 60_000)
    expect([...allowed, (await limit('mails')).allowed]).toEqual([true, false, true])
  })

  it('that fake everything, the embedded Redis stands still, and the deadline of the store still ends a call', async () => {
    vi.useFakeTimers()
    expect(await limiter().limit('mails')).toMatchObject({ degraded: 'store-timeout' })
  })
})
