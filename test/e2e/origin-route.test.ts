/**
 * `origin: 'route'`: the shipped Worker in workerd, as on a route of a zone, with the origin of the zone behind it. As on Cloudflare, a
 * request that the Worker itself makes to its zone goes to the origin and not to the Worker again, and all other requests go to the
 * internet. That depends on the host of the URL only, so the Worker must fetch the URL that it got.
 */
import { createHash, randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { build } from 'esbuild'
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare, type RequestInit } from 'miniflare'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { unstable_readConfig } from 'wrangler'
import { loadConfig } from '../../src/node/cli/load-config.ts'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { bundleOptions } from '../../src/node/worker-bundle.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { startOrigin, type TestOrigin } from '../support/origin.ts'
import { ROOT } from '../support/pages.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'

const CONFIG = join(ROOT, 'test/support/origin-route.config.ts')
const TOKEN = 'a token for tests'
const HOST = 'api.zone.example'
const WRANGLER = unstable_readConfig({ config: join(ROOT, 'wrangler.toml') })

/** What Cloudflare does with a request that the Worker makes. The header shows the URL to the test. */
const CLOUDFLARE = `
  export default {
    fetch(request, env) {
      if (!new URL(request.url).hostname.endsWith('zone.example')) return fetch(request)
      const toOrigin = new Request(request)
      toOrigin.headers.set('x-fetched-url', request.url)
      return env.ORIGIN_OF_ZONE.fetch(toOrigin)
    }
  }`

let redis: TestRedis
let bridge: Bridge
let origin: TestOrigin
let miniflare: Miniflare
let key: string

beforeAll(async () => {
  redis = await startRedis()
  bridge = await startBridge({ redisUrl: redis.url, token: TOKEN, port: 0, deadlineMs: PATIENT_MS })
  origin = await startOrigin()
  const { outputFiles } = await build(bundleOptions(CONFIG, () => loadConfig(CONFIG)))
  const common = {
    modules: true,
    compatibilityDate: WRANGLER.compatibility_date!,
    compatibilityFlags: WRANGLER.compatibility_flags,
  }
  miniflare = new Miniflare(
    convertV4MiniflareOptions({
      workers: [
        {
          ...{ ...common, name: 'gateway', script: outputFiles![0]!.text, routes: [`${HOST}/*`] },
          bindings: { UPSTASH_REDIS_REST_URL: bridge.url, UPSTASH_REDIS_REST_TOKEN: TOKEN },
          outboundService: 'cloudflare',
        },
        {
          ...{ ...common, name: 'cloudflare', script: CLOUDFLARE },
          serviceBindings: { ORIGIN_OF_ZONE: { external: { address: new URL(origin.url).host, http: {} } } },
        },
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
  key = (await createKey(createAdminStore({ url: bridge.url, token: TOKEN }), { consumer: 'acme' })).key
  origin.received.length = 0
})

const ask = (path: string, init: RequestInit = {}, scheme = 'https') =>
  miniflare.dispatchFetch(`${scheme}://${HOST}${path}`, {
    redirect: 'manual',
    ...init,
    headers: { 'x-api-key': key, ...(init.headers as Record<string, string>) },
  })

describe("with origin: 'route', a request", () => {
  it.each(['https', 'http'])('goes to the origin of the zone once, with its own URL (%s)', async scheme => {
    const path = '/a%2Fb//c/?q=%20d&q=2&empty='
    const response = await ask(path, {}, scheme)
    expect(response.status).toBe(200)
    // The Worker has run once: a second run would have spent a second unit.
    expect(response.headers.get('ratelimit')).toMatch(/^"all";r=999;/)
    expect(origin.received).toEqual([expect.objectContaining({ method: 'GET', url: path })])
    expect(origin.received[0]!.headers).toMatchObject({
      host: HOST,
      'x-fetched-url': `${scheme}://${HOST}${path}`,
      'x-forwarded-host': HOST,
      'x-forwarded-proto': scheme,
    })
  })

  it.each(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND'])(
    'keeps its method: %s',
    async method => {
      expect((await ask('/x', { method })).status).toBe(200)
      expect(origin.received.map(({ method }) => method)).toEqual([method])
    },
  )

  it('keeps its headers, except the credential and those that the gateway sets', async () => {
    const kept = {
      accept: 'application/json;q=0.9',
      'accept-language': 'de',
      authorization: 'Basic dXNlcjpwYXNz',
      'content-type': 'application/x-thing',
      cookie: 'a=1; b=2',
      'if-none-match': '"etag"',
      origin: 'https://app.example',
      range: 'bytes=0-5',
      'user-agent': 'a test',
      'x-custom': 'kept',
    }
    const dropped = { 'x-consumer-id': 'root', 'x-forwarded-host': 'evil.example', 'x-real-ip': '192.0.2.9' }
    const address = { 'cf-connecting-ip': '198.51.100.7' }
    await ask('/x', { method: 'POST', body: 'x', headers: { ...kept, ...dropped, ...address } })
    const { headers } = origin.received[0]!
    expect(headers).toMatchObject({
      ...kept,
      'x-consumer-id': 'acme',
      'x-forwarded-for': '198.51.100.7',
      'x-forwarded-host': HOST,
    })
    for (const name of ['x-api-key', 'x-real-ip']) expect(headers).not.toHaveProperty(name)
  })

  it('keeps its body, byte for byte', async () => {
    const body = randomBytes(1_500_000)
    expect((await ask('/upload', { method: 'PUT', body })).status).toBe(200)
    expect(origin.received[0]).toMatchObject({
      bodyBytes: body.length,
      bodySha256: createHash('sha256').update(body).digest('hex'),
    })
  })

  it('streams its body: the beginning arrives before the end is sent', async () => {
    const before = origin.arrivedBytes()
    async function* body() {
      yield Buffer.from('first ')
      await vi.waitUntil(() => origin.arrivedBytes() === before + 6, PATIENT)
      yield Buffer.from('second')
    }
    const init = { method: 'POST', body: ReadableStream.from(body()), duplex: 'half' } as RequestInit
    expect((await ask('/upload', init)).status).toBe(200)
    expect(origin.received[0]!.bodyBytes).toBe(12)
  })

  it('gets a response that is streamed, too', async () => {
    // Otherwise Miniflare compresses the reply, and holds it back until it has enough.
    const response = await ask('/stream', { headers: { 'accept-encoding': 'identity' } })
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
    expect((await reader.read()).value).toBe('first ')
    await ask('/stream/go-on')
    expect((await reader.read()).value).toBe('second')
  })

  it('gets a redirection of the origin as it is', async () => {
    const response = await ask('/redirect')
    expect([response.status, response.headers.get('location')]).toEqual([302, 'https://elsewhere.example/'])
    expect(origin.received).toHaveLength(1)
  })

  it('opens a WebSocket to the origin', async () => {
    const response = await ask('/socket', { headers: { upgrade: 'websocket' } })
    expect([response.status, response.webSocket !== null]).toEqual([101, true])
    response.webSocket!.accept()
    response.webSocket!.close()
  })

  it('that is a preflight goes to the origin, uncounted', async () => {
    const headers = { origin: 'https://app.example', 'access-control-request-method': 'POST' }
    const response = await miniflare.dispatchFetch(`https://${HOST}/cors`, { method: 'OPTIONS', headers })
    expect([response.status, response.headers.get('ratelimit')]).toEqual([200, null])
    expect(origin.received).toHaveLength(1)
  })
})

describe("with origin: 'route', the origin of the zone gets nothing", () => {
  it('of a request above the limit', async () => {
    const statuses = []
    for (let i = 0; i < 4; i++) statuses.push((await ask('/few')).status)
    expect(statuses).toEqual([200, 200, 429, 429])
    expect(origin.received).toHaveLength(2)
  })

  it.each([
    ['without a key', 401, '/x', { 'x-api-key': '' }],
    ['with a key that does not exist', 401, '/x', { 'x-api-key': 'slk_acme_wrong' }],
    ['from a blocked address', 403, '/x', { 'cf-connecting-ip': '192.0.2.66' }],
    ["for the gateway's own paths", 404, '/_sluice/x', {}],
  ])('of a request %s: %i', async (_, status, path, headers) => {
    expect((await ask(path, { headers })).status).toBe(status)
    expect(origin.received).toEqual([])
  })
})

it.each(['wrangler.toml', 'template/wrangler.toml'])(
  '%s does not send requests to the own zone to the Worker again',
  file => {
    const { compatibility_flags } = unstable_readConfig({ config: join(ROOT, file) })
    expect(compatibility_flags).not.toContain('global_fetch_strictly_public')
  },
)
