/**
 * One caller makes thousands of calls at once, against a real Redis and with the usual deadline: its load never makes the store look late or
 * gone, so the breaker of the process stays closed and other callers are decided by the store.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { Agent } from 'node:http'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import { connectRedisStore } from '../../src/node/redis-store/redis-store.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createToken } from '../../src/ops/tokens.ts'
import { createLimiterOnStore } from '../../src/set-ups/limits/limiter-on-store.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { environmentWith, SLUICE } from '../support/command-line.ts'
import { type RedisProcess, startRedisProcess } from '../support/redis-process.ts'
import { send, startServer } from '../support/serve.ts'
import { hasRedisServer } from '../support/servers.ts'

const CALLS = 6000
const TOKEN = 'a token for tests'
const CONFIG = fileURLToPath(new URL('../support/calls-at-once.config.ts', import.meta.url))
const title = hasRedisServer ? '' : ' (no redis-server is installed)'

describe.skipIf(title)(`${CALLS} calls of one caller at once${title}`, { timeout: 120_000 }, () => {
  let redis: RedisProcess
  let bridge: ChildProcess
  let rest: string
  beforeAll(async () => {
    redis = await startRedisProcess()
    // Another process, as in production: here, it would be as busy as the caller.
    const args = [SLUICE, 'bridge', '--redis', redis.url, '--token', TOKEN, '--port', '0']
    bridge = spawn(process.execPath, args, { env: environmentWith({}), stdio: ['ignore', 'pipe', 'inherit'] })
    const [ready] = await once(bridge.stdout!, 'data')
    rest = /http:\S+/.exec(String(ready))![0]
  })
  afterAll(async () => {
    bridge?.kill('SIGKILL')
    await redis?.close()
  })

  const stores = {
    'over REST': async () => ({
      store: upstashStore({ url: rest, token: TOKEN, deadlineMs: 250, keyLocking: true }),
      close: async () => {},
    }),
    'over redis://': () => connectRedisStore({ url: redis.url, deadlineMs: 250 }),
  }
  it.each(Object.entries(stores))('are decided by the store, %s', async (_, open) => {
    const { store, close } = await open()
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const rule = { name: 'many', by: ['user'], algorithm: 'fixed-window', limit: 1e6, period: '1d' } as const
    const limiter = createLimiterOnStore(checkedConfig({ limits: { calls: [rule] } }), store)
    await limiter.limit('calls', { user: 'first' })
    const decisions = await Promise.all(
      Array.from({ length: CALLS }, () => limiter.limit('calls', { user: 'many' })),
    )
    const causes = new Map<string, number>()
    for (const { degraded = 'none' } of decisions) causes.set(degraded, (causes.get(degraded) ?? 0) + 1)
    const lines = warn.mock.calls.flat().join('\n')
    warn.mockRestore()
    await limiter.close?.()
    await close()
    expect(lines).not.toContain('store-lost')
    expect(Object.fromEntries(causes)).toEqual({ none: CALLS })
  })

  it('over the HTTP API of serve leave the calls of others to the store', async () => {
    const tokens = createAdminStore({ url: rest, token: TOKEN })
    const bearers: string[] = []
    for (const name of ['many', 'other'])
      bearers.push((await createToken(tokens, { name, scopes: ['limits:use'] })).token)
    const server = await startServer(
      { REDIS_URL: redis.url, ORIGIN_URL: 'http://127.0.0.1:9' },
      ['--workers', '1'],
      CONFIG,
    )
    const agent = new Agent({ keepAlive: true })
    const tally = () => ({}) as Record<string, number>
    const call = async (bearer: string, account: string, causes: Record<string, number>) => {
      const { status, body } = await send(`${server.url}/_sluice/v1/limits/sms`, {
        ...{ method: 'POST', agent, body: JSON.stringify({ identity: { account } }) },
        headers: { authorization: `Bearer ${bearer}`, 'content-type': 'application/json' },
      })
      const cause = status === 200 ? (JSON.parse(String(body)).degraded ?? 'none') : `status ${status}`
      causes[cause] = (causes[cause] ?? 0) + 1
    }
    try {
      const [many, other] = [tally(), tally()]
      await call(bearers[1]!, 'other', other)
      let isOver = false
      const flood = Promise.all(Array.from({ length: CALLS }, () => call(bearers[0]!, 'many', many))).finally(
        () => {
          isOver = true
        },
      )
      const innocent: Promise<void>[] = []
      while (!isOver) {
        innocent.push(call(bearers[1]!, 'other', other))
        await new Promise(resolve => setTimeout(resolve, 100))
      }
      await flood
      await Promise.all(innocent)
      expect(Object.keys(other)).toEqual(['none'])
      expect(innocent.length).toBeGreaterThan(1)
      expect(Object.keys(many)).not.toContain('store-timeout')
      expect(server.events().filter(({ event }) => event === 'store-lost')).toEqual([])
    } finally {
      agent.destroy()
      server.kill('SIGKILL')
      await server.exited
    }
  })
})
