/** `metrics()` of each set-up: an app serves the metrics where it likes. */
import { Hono } from 'hono'
import { afterAll, beforeAll, beforeEach, expect, it, vi } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { expressGuard } from '../../src/node/express.ts'
import { guard } from '../../src/set-ups/guard/guard.ts'
import { sluice } from '../../src/set-ups/hono/middleware.ts'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import { type FastStore, startFastStore } from '../support/fast-store.ts'

const CONFIG = {
  store: { deadline: '20s' },
  log: { perSecond: 0 },
  metrics: {},
  credentials: { accept: ['anonymous'] },
  rules: [{ name: 'minute', by: 'global', algorithm: 'fixed-window', limit: 1, period: '1d' }],
  limits: { jobs: [{ name: 'day', algorithm: 'fixed-window', limit: 1, period: '1d' }] },
} satisfies ConfigInput

let store: FastStore
beforeAll(async () => {
  store = await startFastStore()
})
afterAll(() => store.close())
beforeEach(() => store.clear())

it('shows the requests of a guard, also those of other processes', async () => {
  vi.spyOn(console, 'warn').mockImplementation(() => {})
  const first = guard(CONFIG, { env: store.env })((_: Request) => new Response())
  for (let i = 0; i < 3; i++) await first(new Request('https://api.test/'))
  await first.close()
  const second = guard(CONFIG, { env: store.env })((_: Request) => new Response())
  const text = await second.metrics()
  expect(text).toContain('sluice_store_up 1')
  expect(text).toMatch(/^gateway_rate_limit_decisions_total\{[^}]*outcome="allowed"[^}]*\} 1$/m)
  expect(text).toMatch(/^gateway_rate_limit_decisions_total\{[^}]*outcome="limited"[^}]*\} 2$/m)
})

it('shows the calls of a limiter', async () => {
  const limiter = createLimiter(CONFIG, { env: store.env })
  await limiter.limit('jobs')
  await limiter.limit('jobs')
  await limiter.close()
  const other = createLimiter(CONFIG, { env: store.env })
  expect(await other.metrics()).toMatch(/^gateway_rate_limit_calls_total\{[^}]*\} 1$/m)
})

it('is a method of the middleware for Hono and Express, too', async () => {
  const limit = sluice(CONFIG, { env: store.env })
  const app = new Hono().get('/metrics', async c => c.text(await limit.metrics()))
  expect(await (await app.request('/metrics')).text()).toContain('sluice_store_up 1')
  expect(await expressGuard(CONFIG, { env: store.env }).metrics()).toContain('sluice_store_up 1')
})

it('says what to do in a config without metrics', async () => {
  const { metrics: _, ...others } = CONFIG
  const message = 'The config has no metrics. Add metrics: {} to it.'
  await expect(createLimiter(others, { env: store.env }).metrics()).rejects.toThrow(message)
  const handler = guard(others, { env: store.env })((_: Request) => new Response())
  await expect(handler.metrics()).rejects.toThrow(message)
})

it('leaves a guard in a Worker its store, whose variables come with the first request', async () => {
  vi.stubGlobal('navigator', { userAgent: 'Cloudflare-Workers' })
  try {
    const config = { ...CONFIG, failOpen: 'unconfigured' } satisfies ConfigInput
    const handler = guard(config)((_: Request, __: object) => new Response())
    await expect(handler.metrics()).rejects.toThrow('pass env to the guard')
    const statuses: number[] = []
    for (let i = 0; i < 2; i++)
      statuses.push((await handler(new Request('https://api.test/'), store.env)).status)
    expect(statuses).toEqual([200, 429])
    expect(await handler.metrics()).toContain('sluice_store_up 1')
  } finally {
    vi.unstubAllGlobals()
  }
})
