/** One list of requests for all edges: each edge replies with the same status, headers and bodies of refusals. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { type Bridge, startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { adminStore } from '../../src/ops/admin-store.ts'
import { blockConsumer } from '../../src/ops/consumers.ts'
import { createKey } from '../../src/ops/keys.ts'
import { ADDRESS_HEADER, EDGES, type Edge } from '../support/edges.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'

const TOKEN = 'a token for tests'

const CONFIG: ConfigInput = {
  plans: ['free', 'pro'],
  // Longer than in production, because test machines are busy.
  store: { deadline: '20s' },
  log: { perSecond: 0 },
  stats: { keep: false },
  routes: [
    { name: 'open', match: { path: '/open/*' }, accept: ['anonymous'] },
    { name: 'free', match: { path: '/free' }, accept: ['anonymous'], limits: false },
    { name: 'reports', match: { path: '/reports/*' }, cost: 2 },
  ],
  rules: [
    {
      name: 'hour',
      by: 'consumer',
      algorithm: 'fixed-window',
      limit: 4,
      period: '1d',
      plans: { pro: { limit: 6 } },
    },
    {
      name: 'even',
      by: 'consumer',
      algorithm: 'gcra',
      limit: 2,
      period: '1h',
      burst: 2,
      match: { methods: ['POST'] },
    },
    {
      name: 'address',
      by: 'address',
      algorithm: 'sliding-window',
      limit: 3,
      period: '1d',
      match: { authenticated: false },
    },
    { name: 'shadow', by: 'consumer', algorithm: 'fixed-window', limit: 1, period: '1d', mode: 'shadow' },
  ],
  block: { addresses: ['192.0.2.66'] },
  cors: { origins: ['https://app.example.com'] },
}

interface Asked {
  name: string
  path: string
  method?: string
  key?: 'acme' | 'pro' | 'blocked' | 'unknown' | 'malformed'
  address?: string
  headers?: Record<string, string>
}

const REQUESTS: Asked[] = [
  { name: 'without a credential', path: '/' },
  { name: 'with a malformed key', path: '/', key: 'malformed' },
  { name: 'with a key that is not there', path: '/', key: 'unknown' },
  { name: 'of a blocked consumer', path: '/', key: 'blocked' },
  { name: 'from a blocked address', path: '/', key: 'acme', address: '192.0.2.66' },
  { name: 'that is the first of a consumer', path: '/', key: 'acme' },
  { name: 'that costs 2', path: '/reports/7', key: 'acme' },
  { name: 'that would cost more than is left', path: '/reports/7', key: 'acme' },
  { name: 'that is the last', path: '/', key: 'acme' },
  { name: 'that is one too many', path: '/', key: 'acme' },
  { name: 'of a plan with more', path: '/', key: 'pro', method: 'POST' },
  { name: 'of the same', path: '/', key: 'pro', method: 'POST' },
  { name: 'that one of two limits refuses', path: '/', key: 'pro', method: 'POST' },
  { name: 'without a credential where none is needed', path: '/open/1', address: '192.0.2.7' },
  { name: 'of the same address', path: '/open/2', address: '192.0.2.7' },
  { name: 'of another address', path: '/open/2', address: '2001:db8::7' },
  { name: 'of the same network', path: '/open/2', address: '2001:db8::8' },
  { name: 'on a route without limits', path: '/free', address: '192.0.2.7' },
  {
    name: 'of a web page',
    path: '/',
    key: 'pro',
    headers: { origin: 'https://app.example.com' },
  },
  { name: 'with a path that has too many readings', path: `/%41${'x'.repeat(4096)}`, key: 'pro' },
  {
    name: 'of a browser, before one',
    path: '/',
    method: 'OPTIONS',
    headers: { origin: 'https://app.example.com', 'access-control-request-method': 'PUT' },
  },
]

/** The parts that must be equal. Time passes between two edges, so times are compared as seconds of the day. */
interface Reply {
  status: number
  headers: Record<string, string>
  /** The body of a refusal. */
  problem?: unknown
}

const COMPARED = [
  'ratelimit-policy',
  'ratelimit',
  'retry-after',
  'x-ratelimit-limit',
  'x-ratelimit-remaining',
  'www-authenticate',
  'sluice-degraded',
  'access-control-allow-origin',
  'access-control-expose-headers',
  'access-control-allow-methods',
  'access-control-max-age',
]

const withoutTime = (text: string) => text.replaceAll(/\bt=\d+/g, 't=…').replaceAll(/in \d+ s/g, 'in … s')

async function replyOf(response: Response): Promise<Reply> {
  const headers = Object.fromEntries(
    COMPARED.flatMap(name => {
      const value = response.headers.get(name)
      return value === null ? [] : [[name, name === 'retry-after' ? '…' : withoutTime(value)]]
    }),
  )
  const text = await response.text()
  if (response.status < 400) return { status: response.status, headers }
  if (response.status !== 420) expect(response.headers.get('content-type')).toBe('application/problem+json')
  return { status: response.status, headers, problem: JSON.parse(withoutTime(text)) }
}

let redis: TestRedis
let bridge: Bridge
beforeAll(async () => {
  redis = await startRedis('embedded')
  bridge = await startBridge({ redisUrl: redis.url, token: TOKEN, port: 0, deadlineMs: 20_000 })
})
afterAll(async () => {
  await bridge.close()
  await redis.close()
})

async function repliesOf(
  name: string,
  number: number,
  config = CONFIG,
  requests = REQUESTS,
): Promise<{ replies: [string, Reply][]; received: number }> {
  const environment = `edge${number}`
  const env = {
    UPSTASH_REDIS_REST_URL: bridge.url,
    UPSTASH_REDIS_REST_TOKEN: TOKEN,
    SLUICE_ENVIRONMENT: environment,
  }
  const admin = adminStore({ url: bridge.url, token: TOKEN, environment })
  const keys: Record<string, string> = {
    acme: (await createKey(admin, { consumer: 'acme', plan: 'free' })).key,
    pro: (await createKey(admin, { consumer: 'gold', plan: 'pro' })).key,
    blocked: (await createKey(admin, { consumer: 'bad', plan: 'free' })).key,
    malformed: 'slk_nonsense',
  }
  await blockConsumer(admin, 'bad', { by: 'test' })
  // A key that is not in the store.
  keys.unknown = (
    await createKey(adminStore({ url: bridge.url, token: TOKEN, environment: `${environment}x` }), {
      consumer: 'x',
      plan: 'free',
    })
  ).key.replace(`${environment}x`, environment)
  const edge: Edge = await EDGES[name]!(config, env)
  try {
    const replies: [string, Reply][] = []
    for (const { name: what, path, method, key, address = '192.0.2.1', headers } of requests) {
      const response = await edge.fetch(path, {
        method: method ?? 'GET',
        headers: {
          [ADDRESS_HEADER]: address,
          ...(key && { authorization: `Bearer ${keys[key]}` }),
          ...headers,
        },
      })
      replies.push([what, await replyOf(response)])
    }
    return { replies, received: edge.received() }
  } finally {
    await edge.close()
  }
}

describe('a request', () => {
  const [reference, ...others] = Object.keys(EDGES)

  it.each(others)('gets the same reply from the gateway and from: %s', async name => {
    const expected = await repliesOf(reference!, 0 + others.indexOf(name) * 2)
    const own = await repliesOf(name, 1 + others.indexOf(name) * 2)
    expect(own).toEqual(expected)
    // They also have the expected values.
    expect(expected.replies.map(([, { status }]) => status)).toEqual([
      ...[401, 401, 401, 403, 403, 200, 200, 429, 200, 429],
      ...[200, 200, 429, 200, 200, 200, 200, 200, 200, 414, 204],
    ])
    expect(expected.received).toBe(11)
  })

  it.each(others)('meets the same hooks at the gateway and at: %s', async name => {
    const hooks: NonNullable<ConfigInput['hooks']> = {
      identify: request => request.headers.get('x-session'),
      plan: () => 'pro',
      skip: request => new URL(request.url).pathname === '/healthz',
      cost: request => (new URL(request.url).searchParams.has('all') ? 3 : 1),
      refusal: ({ policies }) => Response.json({ slow: policies }, { status: 420 }),
    }
    const config: ConfigInput = {
      ...CONFIG,
      hooks,
      credentials: { accept: ['identify'] },
      headers: { xRateLimit: 'delta-seconds' },
    }
    const session = { headers: { 'x-session': 'user 7' } }
    const requests: Asked[] = [
      { name: 'of a session', path: '/', ...session },
      { name: 'that costs 3', path: '/?all', ...session },
      { name: 'that costs too much', path: '/?all', ...session },
      { name: 'that is not limited', path: '/healthz', ...session },
      { name: 'without a session', path: '/' },
    ]
    const number = 2 * (others.length + others.indexOf(name))
    const expected = await repliesOf(reference!, number, config, requests)
    const own = await repliesOf(name, number + 1, config, requests)
    expect(own).toEqual(expected)
    expect(expected.replies.map(([, { status }]) => status)).toEqual([200, 200, 420, 200, 420])
  })

  const { rules: _, routes, ...withoutRules } = CONFIG
  const limits: ConfigInput['limits'] = {
    mails: [{ name: 'day', algorithm: 'gcra', limit: 1, period: '1d' }],
  }
  it.each(others)('is authenticated without any rule, as at the gateway, at: %s', async name => {
    const requests = REQUESTS.filter(({ path }) => !path.startsWith('/reports'))
    const config = { ...withoutRules, limits, routes: routes!.filter(({ cost }) => !cost) }
    const number = 2 * (2 * others.length + others.indexOf(name))
    const expected = await repliesOf(reference!, number, config, requests)
    const own = await repliesOf(name, number + 1, config, requests)
    expect(own).toEqual(expected)
    expect(expected.replies.map(([, { status }]) => status)).toEqual([
      ...[401, 401, 401, 403, 403, 200, 200, 200],
      ...[200, 200, 200, 200, 200, 200, 200, 200, 200, 414, 204],
    ])
    for (const [, { headers }] of expected.replies) {
      expect(Object.keys(headers).filter(header => /ratelimit|retry-after|degraded/.test(header))).toEqual([])
    }
  })

  it.each(Object.keys(EDGES))(
    'without a credential does not wait for the store if no rule counts it: %s',
    async name => {
      const silent = createServer(() => {})
      await new Promise<void>(resolve => silent.listen(0, '127.0.0.1', resolve))
      const { port } = silent.address() as AddressInfo
      const env = { UPSTASH_REDIS_REST_URL: `http://127.0.0.1:${port}`, UPSTASH_REDIS_REST_TOKEN: TOKEN }
      const edge = await EDGES[name]!(
        { credentials: { accept: ['anonymous'] }, store: { deadline: '20s' } },
        env,
      )
      const reply = await edge.fetch('/')
      expect([reply.status, reply.headers.get('sluice-degraded'), edge.received()]).toEqual([200, null, 1])
      await edge.close()
      silent.closeAllConnections()
      silent.close()
    },
  )

  it.each(Object.keys(EDGES))(
    'with a key that cannot be checked is refused without any rule: %s',
    async name => {
      const { key } = await createKey(adminStore({ url: bridge.url, token: TOKEN }), {
        consumer: 'acme',
        plan: 'free',
      })
      const failing = createServer((_, res) => void res.writeHead(500).end())
      await new Promise<void>(resolve => failing.listen(0, '127.0.0.1', resolve))
      const { port } = failing.address() as AddressInfo
      const env = { UPSTASH_REDIS_REST_URL: `http://127.0.0.1:${port}`, UPSTASH_REDIS_REST_TOKEN: TOKEN }
      const edge = await EDGES[name]!({ log: { perSecond: 0 }, stats: { keep: false } }, env)
      const reply = await edge.fetch('/', { headers: { 'x-api-key': key } })
      expect([reply.status, reply.headers.has('sluice-degraded'), edge.received()]).toEqual([503, true, 0])
      await edge.close()
      failing.closeAllConnections()
      failing.close()
    },
  )
})
