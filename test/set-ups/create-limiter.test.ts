/** Limits by name from a config and variables: the keys that they count under, and the switches that they follow. */
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { switchRule } from '../../src/ops/switches.ts'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import { type FastStore, startFastStore } from '../support/fast-store.ts'
import { PATIENT } from '../support/patience.ts'

const CONFIG: ConfigInput = {
  environment: 'live',
  store: { deadline: '20s' },
  limits: { calls: [{ name: 'long', algorithm: 'fixed-window', limit: 1, period: '300d' }] },
}

let store: FastStore
beforeAll(async () => {
  store = await startFastStore()
})
afterAll(() => store.close())
beforeEach(() => store.clear())

const admin = (environment: string) =>
  createAdminStore({
    url: store.env.UPSTASH_REDIS_REST_URL,
    token: store.env.UPSTASH_REDIS_REST_TOKEN,
    environment,
  })
const counters = () => admin('live').run('KEYS', '*:state')

describe('createLimiter', () => {
  it('counts in the environment of the config, which the command line reads and resets', async () => {
    expect((await createLimiter(CONFIG, { env: store.env }).limit('calls')).allowed).toBe(true)
    expect(await counters()).toEqual(['sluice:live:{l:calls}:state'])
  })

  it('counts in SLUICE_ENVIRONMENT if it is set', async () => {
    await createLimiter(CONFIG, { env: { ...store.env, SLUICE_ENVIRONMENT: 'test' } }).limit('calls')
    expect(await counters()).toEqual(['sluice:test:{l:calls}:state'])
  })

  it('uses the variables of the process by default', async () => {
    for (const [name, value] of Object.entries(store.env)) vi.stubEnv(name, String(value))
    expect((await createLimiter(CONFIG).limit('calls')).allowed).toBe(true)
  })

  it('follows the live switches', async () => {
    await switchRule(admin('live'), 'calls/long', { mode: 'off', by: 'ops', at: new Date(0) })
    const limiter = createLimiter(CONFIG, { env: store.env })
    for (let i = 0; i < 3; i++) expect((await limiter.limit('calls')).allowed).toBe(true)
  })

  it('logs an outage once, with its cause, at the first call, when the breaker opens, and when the store is back', async () => {
    const lines: object[] = []
    for (const level of ['warn', 'info'] as const)
      vi.spyOn(console, level).mockImplementation(line => void lines.push(JSON.parse(line)))
    let isDown = true
    const fetch = globalThis.fetch
    vi.spyOn(globalThis, 'fetch').mockImplementation(async (...request) =>
      isDown ? Response.json({ error: 'WRONGPASS secret' }, { status: 401 }) : await fetch(...request),
    )
    const long = { name: 'long', algorithm: 'fixed-window', limit: 1000, period: '300d' } as const
    const limiter = createLimiter({ ...CONFIG, limits: { calls: [long] } }, { env: store.env })
    const cause = 'store-refused'
    const detail = 'The store answered WRONGPASS. Check UPSTASH_REDIS_REST_TOKEN.'
    const degraded = { level: 'warn', event: 'degraded', limit: 'calls', cause, detail, skipped: 0 }
    const lost = { level: 'warn', event: 'store-lost', cause, detail, skipped: 0 }
    await limiter.limit('calls')
    expect(lines).toEqual([degraded])
    for (let i = 0; i < 20; i++) expect((await limiter.limit('calls')).degraded).toBeDefined()
    expect(lines).toEqual([degraded, lost])
    isDown = false
    await expect.poll(async () => (await limiter.limit('calls')).degraded, PATIENT).toBeUndefined()
    const back = { level: 'info', event: 'store-back', after_ms: expect.any(Number), skipped: 0 }
    expect(lines).toEqual([degraded, lost, back])
    isDown = true
    await limiter.limit('calls')
    expect(lines).toEqual([degraded, lost, back, degraded])
    await limiter.close()
  })

  it('names the missing variables', () => {
    expect(() => createLimiter(CONFIG, { env: {} })).toThrow('UPSTASH_REDIS_REST_TOKEN: is missing')
  })
})
