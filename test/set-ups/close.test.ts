/** A process that ends returns its leased units to the store first. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Hono } from 'hono'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { expressGuard } from '../../src/node/express.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { peekCaller, peekLimit } from '../../src/ops/limits.ts'
import { readStats } from '../../src/ops/stats.ts'
import { guard } from '../../src/set-ups/guard/guard.ts'
import { sluice } from '../../src/set-ups/hono/middleware.ts'
import { createLimiter } from '../../src/set-ups/limits/create-limiter.ts'
import { type FastStore, startFastStore } from '../support/fast-store.ts'
import { listen } from '../support/listen.ts'
import { PATIENT_MS } from '../support/patience.ts'

const LIMIT = 100_000
const SETTINGS = { algorithm: 'fixed-window', limit: LIMIT, period: '300d', lease: { for: '10s' } } as const
const CONFIG: ConfigInput = {
  store: { deadline: '20s', breaker: false },
  stats: { keep: false },
  credentials: { accept: ['anonymous'] },
  rules: [{ name: 'calls', by: 'address', ...SETTINGS }],
  limits: { calls: [{ name: 'calls', ...SETTINGS }] },
}
const ADDRESS = '192.0.2.1'

let store: FastStore
beforeAll(async () => {
  store = await startFastStore()
})
afterAll(() => store.close())
beforeEach(() => store.clear())

const admin = () => {
  const { UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: token } = store.env
  return createAdminStore({ url, token })
}

/** The spent units of all calls, as the store reports them. */
async function spentByAddress(): Promise<number> {
  const { standings } = await peekCaller(admin(), checkedConfig({ origin: 'route', ...CONFIG }), {
    address: ADDRESS,
  })
  return LIMIT - standings[0]!.remaining
}

async function spentByName(): Promise<number> {
  const [standing] = await peekLimit(admin(), checkedConfig({ origin: 'route', ...CONFIG }), 'calls', {})
  return LIMIT - standing!.remaining
}

/**
 * Makes calls until more units are spent than calls were made.
 *
 * @returns the number of calls
 */
async function callUntilLeased(call: () => Promise<unknown>, spent: () => Promise<number>): Promise<number> {
  let calls = 0
  await vi.waitUntil(
    async () => {
      for (let i = 0; i < 10; i++) await call()
      calls += 10
      return (await spent()) > calls
    },
    { timeout: PATIENT_MS, interval: 1 },
  )
  return calls
}

it('close() of a guard sends its counters', async () => {
  const { stats: _, ...counted } = CONFIG
  const around = guard(counted, { env: store.env, address: () => ADDRESS })
  const guarded = around((_: Request) => new Response())
  await guarded(new Request('https://api.test/'))
  await guarded.close()
  const { requests } = await readStats(admin(), new Date())
  expect(requests).toEqual([{ outcome: 'allowed', cause: '-', route: '-', count: 1 }])
})

describe('close() gives back leased units', () => {
  it('of limits by name, and the store decides each later call', async () => {
    const limiter = createLimiter(CONFIG, { env: store.env })
    const call = async () => expect((await limiter.limit('calls')).allowed).toBe(true)
    const calls = await callUntilLeased(call, spentByName)
    await limiter.close()
    expect(await spentByName()).toBe(calls)
    for (let i = 1; i <= 20; i++) {
      await call()
      expect(await spentByName()).toBe(calls + i)
    }
    await limiter.close()
    expect(await spentByName()).toBe(calls + 20)
  })

  it('of a guard, and resolves if the guard has no leases', async () => {
    await guard(CONFIG, { env: store.env })((_: Request) => new Response()).close()
    const around = guard(CONFIG, { env: store.env, address: () => ADDRESS })
    const handler = around((_: Request) => new Response('ok'))
    const other = around((_: Request) => new Response('other'))
    const call = async () => expect(await (await handler(new Request('https://api.test/'))).text()).toBe('ok')
    const calls = await callUntilLeased(call, spentByAddress)
    // Both handlers of the guard share its leases, so closing one gives back all units.
    await other.close()
    expect(await spentByAddress()).toBe(calls)
  })

  it('of the Hono middleware', async () => {
    const limits = sluice(CONFIG, { env: store.env, address: () => ADDRESS })
    const app = new Hono().use(limits).get('/', c => c.text('ok'))
    const call = async () => expect((await app.request('/')).status).toBe(200)
    const calls = await callUntilLeased(call, spentByAddress)
    await limits.close()
    expect(await spentByAddress()).toBe(calls)
  })

  it('of the Express middleware', async () => {
    const limits = expressGuard(CONFIG, { env: store.env, address: () => ADDRESS })
    const server = createServer((req, res) => limits(req, res, () => res.end('ok')))
    await listen(server, 0)
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const call = async () => expect((await fetch(url)).status).toBe(200)
    const calls = await callUntilLeased(call, spentByAddress)
    await limits.close()
    expect(await spentByAddress()).toBe(calls)
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
  })
})
