/** Addresses that other Workers pass on through service bindings: the gateway and its callers are separate Workers in workerd. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from 'miniflare'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { loadConfig } from '../../src/node/cli/load-config.ts'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { bundleOptions } from '../../src/node/worker-bundle.ts'
import { startOrigin, type TestOrigin } from '../support/origin.ts'
import { PATIENT_MS } from '../support/patience.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'

const CONFIG = fileURLToPath(new URL('../support/trusted-worker.config.ts', import.meta.url))
const TOML = readFileSync(new URL('../../wrangler.toml', import.meta.url), 'utf8')
const COMPATIBILITY = {
  compatibilityDate: /^compatibility_date\s*=\s*"([^"]+)"/m.exec(TOML)![1]!,
  compatibilityFlags: ['enable_request_signal'],
}
const TOKEN = 'a token for tests'

/** Calls the gateway for its own client, with a new request or with the unchanged request of the client. */
const CALLER = `
  const pathOf = request => 'https://gateway.example' + new URL(request.url).pathname
  export default {
    fetch(request, env) {
      const { headers } = request
      if (headers.get('x-as-it-is')) return env.GATEWAY.fetch(pathOf(request), request)
      const own = new Headers()
      const address = headers.get('x-client') ?? headers.get('cf-connecting-ip')
      if (address !== 'none') own.set('Sluice-Client-IP', address)
      return env.GATEWAY.fetch(pathOf(request), { method: request.method, headers: own })
    }
  }`

let redis: TestRedis
let bridge: Bridge
let origin: TestOrigin
let miniflare: Miniflare

beforeAll(async () => {
  redis = await startRedis()
  bridge = await startBridge({ redisUrl: redis.url, token: TOKEN, port: 0, deadlineMs: PATIENT_MS })
  origin = await startOrigin()
  const { outputFiles } = await build(bundleOptions(CONFIG, () => loadConfig(CONFIG)))
  const caller = (name: string, props?: Record<string, unknown>) => ({
    ...{ name, modules: true, script: CALLER, ...COMPATIBILITY, routes: [`${name}.example/*`] },
    serviceBindings: { GATEWAY: { name: 'gateway', ...(props && { props }) } },
  })
  miniflare = new Miniflare(
    convertV4MiniflareOptions({
      workers: [
        {
          ...{ name: 'gateway', modules: true, script: outputFiles![0]!.text, ...COMPATIBILITY },
          routes: ['gateway.example/*'],
          bindings: {
            UPSTASH_REDIS_REST_URL: bridge.url,
            UPSTASH_REDIS_REST_TOKEN: TOKEN,
            ORIGIN_URL: origin.url,
          },
        },
        caller('storefront', { caller: 'storefront' }),
        caller('other', { caller: 'other' }),
        caller('nameless'),
        caller('odd', { caller: ['storefront'] }),
      ],
      cf: false,
      log: new Log(LogLevel.NONE),
      handleStructuredLogs: () => {},
    }),
  )
  await miniflare.ready
})
afterAll(async () => {
  await miniflare?.dispose()
  await origin?.close()
  await bridge?.close()
  await redis?.close()
})
beforeEach(async () => {
  await redis.connection.send(['FLUSHALL'])
  origin.received.length = 0
})

/** Sends a request of a client of this Worker. @returns the address that the origin receives, and the counted addresses */
async function ask(worker: string, headers: Record<string, string>, method = 'GET') {
  const { status } = await miniflare.dispatchFetch(`https://${worker}.example/x`, { method, headers })
  expect([status, origin.received.length]).toEqual([200, 1])
  const keys = ((await redis.connection.send(['KEYS', 'sluice:{ip:*'])) as Buffer[]).map(String)
  const { headers: received } = origin.received[0]!
  expect(received).not.toHaveProperty('sluice-client-ip')
  return { forwarded: received['x-forwarded-for'], counted: keys.map(key => /\{ip:(.*)\}/.exec(key)![1]) }
}

describe('the address of a client', () => {
  it('is the one that a trusted Worker sends, and each client is counted separately', async () => {
    expect(await ask('storefront', { 'x-client': '192.0.2.7' })).toEqual({
      ...{ forwarded: '192.0.2.7', counted: ['192.0.2.7'] },
    })
    origin.received.length = 0
    const { counted } = await ask('storefront', { 'x-client': '2001:db8::7' })
    expect(counted.sort()).toEqual(['192.0.2.7', '2001:db8:0:0::/64'])
  })

  it('is unknown if the Worker sends none, or an invalid one', async () => {
    expect(await ask('storefront', { 'x-client': 'none' })).toEqual({
      forwarded: undefined,
      counted: ['unknown'],
    })
    origin.received.length = 0
    expect(await ask('storefront', { 'x-client': 'me, 192.0.2.7' })).toEqual({
      ...{ forwarded: undefined, counted: ['unknown'] },
    })
  })

  it.each(['other', 'nameless', 'odd'])(
    'is not the one that an untrusted Worker sends (%s)',
    async worker => {
      expect(await ask(worker, { 'x-client': '192.0.2.7' })).toEqual({
        forwarded: undefined,
        counted: ['unknown'],
      })
    },
  )

  it('is the one that Cloudflare sends, and not the one that a client from the internet sends', async () => {
    const headers = { 'cf-connecting-ip': '198.51.100.1', 'sluice-client-ip': '192.0.2.7' }
    expect(await ask('gateway', headers)).toEqual({ forwarded: '198.51.100.1', counted: ['198.51.100.1'] })
  })

  it('is not the one that a client from the internet sends, even if there is no other', async () => {
    const { forwarded, counted } = await ask('gateway', { 'sluice-client-ip': '192.0.2.7' })
    expect([forwarded, counted]).not.toContain('192.0.2.7')
    expect(counted).not.toContain('192.0.2.7')
  })

  it('is not the one that a client sends, if a trusted Worker forwards its request unchanged', async () => {
    const headers = {
      ...{ 'cf-connecting-ip': '198.51.100.1', 'sluice-client-ip': '192.0.2.7', 'x-as-it-is': 'yes' },
    }
    expect(await ask('storefront', headers)).toEqual({
      ...{ forwarded: '198.51.100.1', counted: ['198.51.100.1'] },
    })
  })
})
