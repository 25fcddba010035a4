/** `npx sluicegate doctor --url` on a gateway that works, and on ones of which each lacks one thing: the report names it. */
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { checkedConfig } from '../../../src/config/check/check.ts'
import type { ConfigInput } from '../../../src/config/check/schema.ts'
import { runChecks } from '../../../src/node/doctor/checks.ts'
import { gatewayChecks } from '../../../src/node/doctor/gateway.ts'
import { examined, found } from '../../support/examinations.ts'
import { type App, useGateway } from '../../support/gateway.ts'
import { listen } from '../../support/listen.ts'

const DEMO = {
  credentials: { accept: ['anonymous'] },
  rules: [{ name: 'demo', by: 'address', algorithm: 'fixed-window', limit: 20, period: '1h' }],
} satisfies Partial<ConfigInput>

// A busy machine must not count as a slow store.
const CONFIG = checkedConfig({ origin: 'route', ...DEMO, store: { deadline: '5s' } })

const closing: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0)) await close()
})

async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener)
  await listen(server, 0)
  closing.push(() => new Promise(resolve => void server.close(() => resolve()).closeAllConnections()))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

interface Edge {
  /** Whether the address that the client names gets through. */
  isForgeable?: boolean
  /** Response headers that a proxy removes. */
  removed?: readonly string[]
  /** Changes response headers. */
  set?: Readonly<Record<string, string>>
}

/** An edge in front of the gateway: like Cloudflare's, it says who has connected. */
const serveApp = (app: App, { isForgeable = false, removed = [], set = {} }: Edge = {}) =>
  serve(async (incoming, outgoing) => {
    const headers = new Headers(Object.entries(incoming.headers) as [string, string][])
    if (!isForgeable || !headers.has('cf-connecting-ip')) headers.set('cf-connecting-ip', '192.0.2.9')
    const reply = await app(incoming.url!, { headers })
    for (const name of removed) reply.headers.delete(name)
    for (const [name, value] of Object.entries(set)) reply.headers.set(name, value)
    outgoing.writeHead(reply.status, Object.fromEntries(reply.headers)).end(await reply.text())
  })

async function examine(
  url: string,
  options: { path?: string; origin?: string; headers?: Record<string, string>; deadlineMs?: number } = {},
) {
  const gateway = { url, path: '/', headers: {}, config: CONFIG, ...options }
  return (await examined(examination => runChecks(gatewayChecks(gateway), examination, 'gateway'))).by
}

describe('a gateway', () => {
  const gateway = useGateway()

  it('that works has no fault: a burst of 40 gets what the limit of 20 has left, and no more', async () => {
    const by = await examine(await serveApp(gateway.app(DEMO)))
    expect(Object.values(by).filter(({ verdict }) => verdict !== 'ok')).toEqual([])
    expect(by.burst!.measured).toMatchObject({
      sent: 40,
      admitted: by.burst!.measured!.left_before,
      come_back: 0,
    })
    // 2 by the check of the fields, 4 by the forged addresses, 1 to see what is left.
    expect(by.burst!.measured!.left_before).toBe(20 - 7)
    expect(by.health).toMatchObject({ measured: { store_ms: expect.any(Number) } })
  })

  it('that admits more than its limit is found', async () => {
    const app = gateway.app(DEMO)
    let requests = 0
    const leaky: App = async (path, init) => {
      const reply = await app(path, init)
      requests += 1
      // After the first checks, every refusal of the burst is let through.
      return reply.status === 429 && requests > 9 ? new Response('ok') : reply
    }
    expect((await examine(await serveApp(leaky))).burst).toMatchObject(
      found('fault', 'Of 40 requests at once, 40 were admitted'),
    )
  })

  it('whose edge passes on a forged CF-Connecting-IP is found', async () => {
    const by = await examine(await serveApp(gateway.app(DEMO), { isForgeable: true }))
    expect(by['forged-address']).toMatchObject(found('fault', 'new budget by a forged address'))
    // It does not end the examination.
    expect(by.burst).toMatchObject(found('ok', 'Of 40 requests at once'))
  })

  it('that stops answering, which ends the examination', async () => {
    const app = gateway.app(DEMO)
    const hanging: App = (path, init) => (path === '/' ? new Promise(() => {}) : app(path, init))
    const by = await examine(await serveApp(hanging), { deadlineMs: 1000 })
    expect(by.fields).toMatchObject(
      found(
        'fault',
        'The gateway stopped answering: a request got no answer in time. Not checked: forged-address, burst.',
      ),
    )
    expect(Object.keys(by).at(-1)).toBe('fields')
  })

  it('that trusts X-Forwarded-For of everyone is found', async () => {
    const address: ConfigInput['address'] = { from: 'x-forwarded-for', trustedProxies: ['127.0.0.1'] }
    const app = gateway.app({ ...DEMO, address }, { peerOf: () => '127.0.0.1' })
    const by = await examine(await serveApp(app))
    expect(by['forged-address']).toMatchObject(found('fault', 'new budget by a forged address'))
  })

  it.each([
    [['ratelimit', 'ratelimit-policy'], 'fields', 'limit', 'no RateLimit'],
    [['ratelimit-policy'], 'fields', 'limit', 'no RateLimit-Policy'],
    [['x-request-id'], 'fields', 'limit', 'no X-Request-Id'],
    [['content-type'], 'problems', 'fault', 'do not arrive'],
    [['retry-after'], 'burst', 'fault', 'Retry-After'],
  ] as const)('behind a proxy that removes %s', async (removed, name, verdict, finding) => {
    const by = await examine(await serveApp(gateway.app(DEMO), { removed }))
    expect(by[name]).toMatchObject(found(verdict, finding))
  })

  it.each(['"demo";q=20;w=x', 'demo;q=20', '"other";q=20;w=3600', '"demo";w=3600', '"demo"; q=20; w=3600, '])(
    'with the invalid field %s',
    async policy => {
      const by = await examine(await serveApp(gateway.app(DEMO), { set: { 'ratelimit-policy': policy } }))
      expect(by.fields).toMatchObject(found('fault', 'is not valid'))
    },
  )

  it('behind a cache, which answers two requests alike', async () => {
    const app = gateway.app(DEMO)
    const cache = new Map<string, Response>()
    const cached: App = async (path, init) => {
      if (!cache.has(path)) cache.set(path, await app(path, init))
      return cache.get(path)!.clone()
    }
    expect((await examine(await serveApp(cached))).fields).toMatchObject(
      found('fault', 'A cache in front of the gateway answers → Turn off the cache'),
    )
  })

  it('that redirects, as a login page does', async () => {
    const url = await serve((_, outgoing) => void outgoing.writeHead(302, { location: '/login' }).end())
    expect((await examine(url)).health).toMatchObject(
      found('fault', 'The URL redirects (HTTP 302) → login page'),
    )
  })

  it('whose origin answers without an end', async () => {
    const app = gateway.app(DEMO)
    const url = await serve(async ({ url: path }, outgoing) => {
      const reply = await app(path!, { headers: { 'cf-connecting-ip': '192.0.2.9' } })
      outgoing.writeHead(reply.status, Object.fromEntries(reply.headers))
      if (!reply.ok || path !== '/') return void outgoing.end(await reply.text())
      outgoing.write('a'.repeat(100))
      await reply.body?.cancel()
    })
    expect((await examine(url)).burst).toMatchObject(found('ok', 'Of 40 requests at once'))
  })

  it('whose clock is 5 s off', async () => {
    const date = new Date(Date.now() - 5000).toUTCString()
    const by = await examine(await serveApp(gateway.app(DEMO), { set: { date } }))
    expect(by['gateway-clock']).toMatchObject(found('limit', 's behind'))
  })

  it('without its store', async () => {
    gateway.store.fault = (_, response) => void response.destroy()
    const by = await examine(await serveApp(gateway.app({ ...DEMO, store: { deadline: '100ms' } })))
    expect(by.health).toMatchObject(found('fault', 'does not reach its store'))
    expect(by.burst).toBeUndefined()
  })

  it('whose origin answers around it, and one whose origin refuses', async () => {
    const url = await serveApp(gateway.app(DEMO))
    expect((await examine(url, { origin: gateway.origin.url })).origin).toMatchObject(
      found('fault', 'has not passed the gateway (HTTP 200)'),
    )
    const closed = await serve((_, outgoing) => void outgoing.writeHead(403).end())
    expect((await examine(url, { origin: closed })).origin).toMatchObject(found('ok', 'refuses'))
    expect((await examine(url, { origin: 'http://127.0.0.1:1' })).origin).toMatchObject(
      found('ok', 'cannot be reached'),
    )
  })

  it('that needs a key says so, and works with one', async () => {
    const rules = [
      { name: 'demo', by: 'consumer', algorithm: 'fixed-window', limit: 20, period: '1h' },
    ] as const
    const url = await serveApp(gateway.app({ rules: [...rules] }))
    expect((await examine(url)).fields).toMatchObject(found('unknown', 'credential'))
    const by = await examine(url, { headers: { 'x-api-key': await gateway.key('acme') } })
    expect([by.fields!.verdict, by.burst!.verdict]).toEqual(['ok', 'ok'])
  })

  it('that is something else, such as a store', async () => {
    const store = await serve((_, outgoing) => void outgoing.writeHead(401).end('{"error":"WRONGPASS"}'))
    expect((await examine(store)).health).toMatchObject(found('fault', 'no Sluice at this URL'))
  })
})
