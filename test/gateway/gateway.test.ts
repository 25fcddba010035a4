/** The gateway as callers and the origin see it: credentials, replies, forwarded headers. */

import { parseList, serializeList } from 'structured-headers'
import { describe, expect, it, vi } from 'vitest'
import type { RouteInput, RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { createSwitchBoard } from '../../src/switches/live.ts'
import { useGateway } from '../support/gateway.ts'

const gateway = useGateway()

/** A route that admits anonymous callers. */
const OPEN: RouteInput[] = [
  { name: 'public', match: { path: '/public/*' }, accept: ['api-key', 'anonymous'] },
]

/** Long periods, so that no test depends on its speed. */
const TWO: RuleInput = { name: 'two', by: 'consumer', algorithm: 'fixed-window', limit: 2, period: '300d' }
const PUBLIC: RuleInput = {
  name: 'public',
  by: 'address',
  algorithm: 'gcra',
  limit: 3,
  period: '300d',
  match: { path: '/public/*' },
}

describe('a credential', () => {
  it('is accepted as a bearer token or X-API-Key, and is not forwarded', async () => {
    const app = gateway.app({ rules: [TWO] })
    const key = await gateway.key('acme')
    expect((await app('/a', { headers: { authorization: `bearer ${key}` } })).status).toBe(200)
    expect((await app('/b', { headers: { 'x-api-key': key, authorization: 'Basic b3JpZ2lu' } })).status).toBe(
      200,
    )
    const [bearer, apiKey] = gateway.origin.received.map(({ headers }) => headers)
    expect(bearer).toMatchObject({ 'x-consumer-id': 'acme', 'x-consumer-plan': 'free' })
    expect(bearer).not.toHaveProperty('authorization')
    // Credentials for the origin are kept.
    expect(apiKey).toMatchObject({ 'x-consumer-id': 'acme', authorization: 'Basic b3JpZ2lu' })
    expect(apiKey).not.toHaveProperty('x-api-key')
  })

  it('is forwarded if the config says so', async () => {
    const app = gateway.app({ rules: [TWO], credentials: { forward: true } })
    const key = await gateway.key('acme')
    await app('/', { key })
    expect(gateway.origin.received[0]!.headers.authorization).toBe(`Bearer ${key}`)
  })

  it('is not forwarded from a header that was not checked, or with a request that looks like a preflight', async () => {
    const app = gateway.app({ rules: [TWO, PUBLIC], routes: OPEN })
    const [key, other] = [await gateway.key('acme'), await gateway.key('other')]
    await app('/', { headers: { 'x-api-key': key, authorization: `Bearer ${other}` } })
    const preflight = { origin: 'https://app.example', 'access-control-request-method': 'GET' }
    // An OPTIONS request with a credential is not a preflight, but an ordinary request.
    await app('/', { method: 'OPTIONS', key, headers: { ...preflight, 'x-api-key': key } })
    const twice = new Headers({ authorization: `Bearer ${key}` })
    twice.append('authorization', `Bearer ${other}`)
    expect((await app('/public/', { headers: twice })).status).toBe(401)
    expect(gateway.origin.received).toHaveLength(2)
    for (const { headers } of gateway.origin.received) {
      expect(headers).not.toHaveProperty('authorization')
      expect(headers).not.toHaveProperty('x-api-key')
    }
  })

  it('that is missing gets a 401 with instructions', async () => {
    const response = await gateway.app({ rules: [TWO] })('/')
    expect(response.status).toBe(401)
    expect(response.headers.get('www-authenticate')).toBe('Bearer realm="sluice"')
    expect(response.headers.get('content-type')).toBe('application/problem+json')
    expect(response.headers.get('cache-control')).toBe('no-store')
    expect(await response.json()).toEqual({
      type: 'about:blank',
      title: 'Unauthorized',
      status: 401,
      detail: 'Send an API key, as Authorization: Bearer <key> or as X-API-Key: <key>.',
    })
  })

  it('that is malformed or unknown gets the same 401, and nothing is spent', async () => {
    const app = gateway.app({ rules: [TWO, { ...TWO, name: 'address', by: 'address' }] })
    const answers = []
    for (const key of ['slk_acme_x', 'nonsense', mintApiKey('acme')]) {
      const response = await app('/', { key, address: '192.0.2.1' })
      expect(response.headers.get('www-authenticate')).toBe('Bearer realm="sluice", error="invalid_token"')
      answers.push([response.status, await response.text()])
    }
    expect(new Set(answers.map(String)).size).toBe(1)
    expect(answers[0]![0]).toBe(401)
    expect(await gateway.redis.connection.send(['DBSIZE'])).toBe(0)
    expect(gateway.origin.received).toEqual([])
  })

  it('that was removed stops working with the next request', async () => {
    const app = gateway.app({ rules: [TWO] })
    const key = await gateway.key('acme')
    expect((await app('/', { key })).status).toBe(200)
    await gateway.redis.connection.send(['FLUSHDB'])
    gateway.store.count()
    expect((await app('/', { key })).status).toBe(401)
    // The isolate also checks, in the background, whether the store has any key left.
    let trips = 0
    await expect.poll(() => (trips += gateway.store.count())).toBe(2)
  })

  it.each(['{acme}', 'acme:x', 'acme}', 'a*', '../x', 'a b', 'ä', '%7Bacme%7D'])(
    'cannot name a consumer %j',
    async name => {
      const response = await gateway.app({ rules: [TWO] })('/', {
        headers: { 'x-api-key': encodeURI(`slk_${name}_${'x'.repeat(36)}`) },
      })
      expect(response.status).toBe(401)
      expect(gateway.store.count()).toBe(0)
    },
  )
})

describe('an anonymous caller', () => {
  it('is admitted if the route accepts it, and counted by address', async () => {
    const app = gateway.app({ rules: [TWO, PUBLIC], routes: OPEN })
    const statuses = []
    for (let i = 0; i < 4; i++) statuses.push((await app('/public/a', { address: '192.0.2.7' })).status)
    expect(statuses).toEqual([200, 200, 200, 429])
    expect((await app('/public/a', { address: '192.0.2.8' })).status).toBe(200)
    expect((await app('/private', { address: '192.0.2.8' })).status).toBe(401)
  })

  it('is counted with its whole /64, or as IPv4 if mapped', async () => {
    const app = gateway.app({ rules: [PUBLIC], routes: OPEN })
    const remaining = async (address: string) => {
      const [item] = parseList((await app('/public/', { address })).headers.get('ratelimit')!)
      return item![1].get('r')
    }
    expect(await remaining('2001:db8:1:2::1')).toBe(2)
    expect(await remaining('2001:DB8:1:2:ffff:ffff:ffff:ffff')).toBe(1)
    expect(await remaining('2001:db8:1:3::1')).toBe(2)
    expect(await remaining('::ffff:192.0.2.9')).toBe(2)
    expect(await remaining('192.0.2.9')).toBe(1)
    expect(await remaining('not an address')).toBe(2)
    expect(await remaining('{ip:x}')).toBe(1)
  })

  it('with an invalid API key is refused', async () => {
    const app = gateway.app({ rules: [PUBLIC], routes: OPEN })
    expect((await app('/public/', { key: 'slk_acme_oops' })).status).toBe(401)
    expect((await app('/public/', { headers: { 'x-api-key': 'oops' } })).status).toBe(401)
  })

  it('can have a token for the origin, which is forwarded', async () => {
    const app = gateway.app({ rules: [PUBLIC], routes: OPEN })
    expect((await app('/public/', { key: 'eyJhbGciOi.x.y' })).status).toBe(200)
    expect(gateway.origin.received[0]!.headers.authorization).toBe('Bearer eyJhbGciOi.x.y')
    expect(gateway.origin.received[0]!.headers).not.toHaveProperty('x-consumer-id')
  })
})

describe('an admitted request', () => {
  it('reports the state of each limit', async () => {
    const app = gateway.app({
      rules: [TWO, { name: 'spread', by: 'address', algorithm: 'gcra', limit: 2, period: '300d', burst: 4 }],
    })
    const { headers } = await app('/', { key: await gateway.key('acme') })
    expect(headers.get('ratelimit-policy')).toBe(
      '"two";q=2;w=25920000, "spread";q=2;w=25920000;sluice-burst=4',
    )
    const [two, spread] = parseList(headers.get('ratelimit')!)
    expect([two![0], two![1].get('r'), spread![0], spread![1].get('r')]).toEqual(['two', 1, 'spread', 3])
    expect(spread![1].get('t')).toBe(12960000)
    expect(headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/)
    expect(headers.has('retry-after')).toBe(false)
    expect(headers.has('sluice-degraded')).toBe(false)
  })

  it('reports every kind of limit in structured fields (RFC 9651)', async () => {
    const app = gateway.app({
      rules: [
        { name: '1-queue_of', by: 'consumer', algorithm: 'leaky-bucket', limit: 5, period: '1m', queue: 3 },
        { name: 'fast', by: 'address', algorithm: 'gcra', limit: 1_000_000_000, period: '500ms' },
        { name: 'at-once', by: 'consumer', algorithm: 'concurrency', limit: 7 },
        { name: 'day', by: 'address', algorithm: 'fixed-window', limit: 9, period: 'day' },
      ],
    })
    const { headers } = await app('/', { key: await gateway.key('acme') })
    expect(headers.get('ratelimit-policy')).toBe(
      '"1-queue_of";q=5;w=60;sluice-burst=4, "fast";q=1000000000, "at-once";q=7;qu="concurrent-requests", "day";q=9;sluice-window="day"',
    )
    for (const name of ['ratelimit-policy', 'ratelimit']) {
      const text = headers.get(name)!
      expect(serializeList(parseList(text))).toBe(text)
    }
  })

  it('keeps the fields of the origin, before those of the gateway', async () => {
    const app = gateway.app({ rules: [{ ...TWO, limit: 9 }] })
    const key = await gateway.key('acme')
    const limited = await app('/limited', { key })
    expect(limited.headers.get('ratelimit-policy')).toBe('"origin";q=5;w=10, "two";q=9;w=25920000')
    expect(limited.headers.get('ratelimit')).toMatch(/^"origin";r=4;t=9, "two";r=8;t=\d+$/)
    // A field that cannot be parsed, such as that of an older draft, is kept.
    expect((await app('/garbled', { key })).headers.get('ratelimit')).toMatch(
      /^limit=5, remaining=4, "two";r=7;t=\d+$/,
    )
  })

  it('reports the caller to the origin, whatever the client claims', async () => {
    const app = gateway.app({ rules: [TWO] })
    const forged = {
      'x-consumer-id': 'admin',
      'x-consumer-plan': 'pro',
      'x-consumer-anything': 'x',
      'x-forwarded-for': '10.0.0.1',
      'x-forwarded-user': 'root',
      forwarded: 'for=10.0.0.1',
      'x-real-ip': '10.0.0.1',
      'x-request-id': 'mine',
      'sluice-degraded': 'no',
    }
    const response = await app('/path?q=1&q=2', {
      key: await gateway.key('acme'),
      address: '192.0.2.1',
      headers: forged,
    })
    const [{ headers, url }] = gateway.origin.received as [(typeof gateway.origin.received)[0]]
    expect(url).toBe('/path?q=1&q=2')
    const kept = Object.fromEntries(
      Object.entries(headers).filter(([name]) => /^(x-|forwarded|sluice)/.test(name)),
    )
    expect(kept).toEqual({
      'x-consumer-id': 'acme',
      'x-consumer-mode': 'live',
      'x-consumer-plan': 'free',
      'x-forwarded-for': '192.0.2.1',
      'x-forwarded-host': 'gateway.test',
      'x-forwarded-proto': 'http',
      'x-request-id': response.headers.get('x-request-id'),
    })
  })
})

describe('identity headers of a client', () => {
  it('never reach the origin, in any spelling, with or without a key', async () => {
    const app = gateway.app({ rules: [PUBLIC], routes: OPEN })
    const headers = {
      'x-consumer-id': 'admin',
      x_consumer_id: 'admin',
      'X_Forwarded-For': '10.0.0.1',
      'x-real-ip': '1.1.1.1',
    }
    expect((await app('/public/', { address: '192.0.2.1', headers })).status).toBe(200)
    const received = gateway.origin.received[0]!.headers
    for (const name of ['x-consumer-id', 'x_consumer_id', 'x_forwarded-for', 'x-real-ip']) {
      expect(received).not.toHaveProperty(name)
    }
    expect(received['x-forwarded-for']).toBe('192.0.2.1')
  })

  it('do not include a token for the origin that contains the key prefix', async () => {
    const app = gateway.app({ rules: [PUBLIC], routes: OPEN })
    await app('/public/', { key: 'eyJh.aslk_b.c' })
    expect(gateway.origin.received[0]!.headers.authorization).toBe('Bearer eyJh.aslk_b.c')
  })
})

describe('a refused request', () => {
  it('gets a 429 with the name of the limit and the time to wait', async () => {
    const app = gateway.app({ rules: [TWO, { ...TWO, name: 'wide', limit: 9 }] })
    const key = await gateway.key('acme')
    for (let i = 0; i < 2; i++) await app('/', { key })
    const response = await app('/', { key })
    expect(response.status).toBe(429)
    const retryAfter = Number(response.headers.get('retry-after'))
    expect(retryAfter).toBeGreaterThan(0)
    expect(response.headers.get('content-type')).toBe('application/problem+json')
    expect(response.headers.get('cache-control')).toBe('no-store')
    expect(response.headers.get('ratelimit')).toBe(`"two";r=0;t=${retryAfter}, "wide";r=7;t=${retryAfter}`)
    expect(await response.json()).toEqual({
      type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
      title: 'Quota Exceeded',
      status: 429,
      detail: `Limit reached: two (2 per 300 days). Nothing was charged. Try again in ${retryAfter} s.`,
      'violated-policies': ['two'],
    })
    expect(gateway.origin.received).toHaveLength(2)
  })

  it('of a calendar window has the name of the window, which has no fixed length', async () => {
    const app = gateway.app({
      rules: [{ name: 'quota', by: 'consumer', algorithm: 'fixed-window', limit: 1, period: 'month' }],
    })
    const key = await gateway.key('acme')
    expect((await app('/', { key })).headers.get('ratelimit-policy')).toBe(
      '"quota";q=1;sluice-window="month"',
    )
    const refused = await app('/', { key })
    expect(refused.status).toBe(429)
    expect(await refused.json()).toMatchObject({ detail: expect.stringContaining('quota (1 per month)') })
  })

  it('of a window from the first request ends a period after that request', async () => {
    const app = gateway.app({
      rules: [
        { ...TWO, start: 'first-request' },
        { ...TWO, name: 'clock' },
      ],
    })
    const key = await gateway.key('acme')
    const { headers } = await app('/', { key })
    expect(headers.get('ratelimit-policy')).toBe('"two";q=2;w=25920000, "clock";q=2;w=25920000')
    expect(headers.get('ratelimit')).toMatch(/^"two";r=1;t=25920000, "clock";r=1;t=\d+$/)
  })

  it('names every limit that refused, and no other', async () => {
    const app = gateway.app({
      rules: [
        { ...TWO, limit: 1 },
        { ...TWO, name: 'wide', limit: 9 },
        { ...TWO, name: 'one', limit: 1 },
      ],
    })
    const key = await gateway.key('acme')
    await app('/', { key })
    expect(await (await app('/', { key })).json()).toMatchObject({ 'violated-policies': ['two', 'one'] })
  })

  it('never has Retry-After: 0, and never less than the wait', async () => {
    const app = gateway.app({
      rules: [{ name: 'ms', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1500ms' }],
    })
    const key = await gateway.key('acme')
    const responses = await Promise.all(Array.from({ length: 4 }, () => app('/', { key })))
    const refused = responses.filter(({ status }) => status === 429)
    expect(refused).toHaveLength(3)
    for (const { headers } of refused) expect(['1', '2']).toContain(headers.get('retry-after'))
  })
})

describe('rules', () => {
  it('apply to the method, host, path and plan that they match', async () => {
    const app = gateway.app({
      plans: ['free', 'pro'],
      rules: [
        { ...TWO, name: 'all', limit: 100 },
        { ...TWO, name: 'writes', match: { methods: ['POST', 'PUT'] } },
        { ...TWO, name: 'reports', match: { path: '/reports/*' } },
        { ...TWO, name: 'host', match: { host: 'api.*' } },
        { ...TWO, name: 'pro', match: { plans: ['pro'] } },
      ],
    })
    const free = await gateway.key('acme')
    const pro = await gateway.key('acme', 'pro')
    const policies = async (path: string, init: object) => {
      const { headers } = await app(path, init)
      return parseList(headers.get('ratelimit-policy')!).map(([name]) => name)
    }
    expect(await policies('/', { key: free })).toEqual(['all'])
    expect(await policies('/', { key: free, method: 'POST' })).toEqual(['all', 'writes'])
    expect(await policies('/reports/x', { key: free })).toEqual(['all', 'reports'])
    expect(await policies('/', { key: pro })).toEqual(['all', 'pro'])
  })

  it.each([
    '/reports/x',
    '//reports/x',
    '/./reports/x',
    '/a/../reports/x',
    '/%72eports/x',
    '/reports%2fx',
    '/%2572eports/x',
    '/x/..%2freports/x',
  ])('cannot be avoided by spelling a path as %s', async path => {
    const app = gateway.app({ rules: [{ ...TWO, match: { path: '/reports/*' } }] })
    const { headers } = await app(path, { key: await gateway.key('acme') })
    expect(headers.get('ratelimit-policy')).toContain('two')
  })

  it('apply to a host', async () => {
    const app = gateway.app({ rules: [{ ...TWO, match: { host: 'gateway.*' } }] })
    expect((await app('/', { key: await gateway.key('acme') })).headers.get('ratelimit-policy')).toContain(
      '"two"',
    )
  })
})

describe('a path that can be read in two ways', () => {
  const AMBIGUOUS = [
    '/admin/7%2f..%2f..%2f..%2fpublic%2fx',
    '/admin/x%5c..%5c..%5cpublic%5cy',
    '/public/%2e%2e%2fadmin',
    '/public/..%2fadmin%ff',
  ]

  it.each(AMBIGUOUS)('is refused to callers without a key: %s', async path => {
    const app = gateway.app({ rules: [TWO, PUBLIC], routes: OPEN })
    expect((await app(path)).status).toBe(401)
    expect(gateway.origin.received).toEqual([])
  })

  it.each(['/reports/7%2f..%2f..%2fother', '/%72eports/x%ff', '/Reports/x', '/reports/x/'])(
    'is limited by rules for either reading: %s',
    async path => {
      const app = gateway.app({
        rules: [
          { ...TWO, match: { methods: ['GET'], path: '/reports/:id' } },
          { ...TWO, name: 'all' },
        ],
      })
      const key = await gateway.key('acme')
      for (const method of ['GET', 'HEAD']) {
        expect((await app(path, { key, method })).headers.get('ratelimit-policy'), method).toContain('"two"')
      }
    },
  )
})

describe('a long path', () => {
  const long = (end: string, length = 12_000) => `/${'x'.repeat(length - 1 - end.length)}${end}`

  it.each(['%2e', ';a', '//', '%2f..%2f_sluice'])(
    'that ends in %s and has too many readings is refused',
    async end => {
      const app = gateway.app({ rules: [TWO], credentials: { accept: ['api-key', 'anonymous'] } })
      for (const method of ['GET', 'POST', 'OPTIONS']) {
        const headers = { origin: 'https://a.example', 'access-control-request-method': 'GET' }
        const response = await app(long(end), { method, headers })
        expect([response.status, await response.json()]).toEqual([
          400,
          expect.objectContaining({
            title: 'Bad Request',
            detail: expect.stringMatching(/^The path can be read in too many ways\./),
          }),
        ])
      }
      expect(gateway.origin.received).toEqual([])
    },
  )

  it('is limited and forwarded like any other path if it has few readings', async () => {
    const app = gateway.app({ rules: [{ ...TWO, limit: 3, match: { path: '/x*' } }] })
    const key = await gateway.key('acme')
    const paths = [long('%C3%A9'), long(';a', 3000), long('%2e', 3000)]
    for (const path of paths) expect((await app(path, { key })).status).toBe(200)
    expect(gateway.origin.received.map(({ url }) => url)).toEqual(paths)
    for (const path of paths) expect((await app(path, { key })).status).toBe(429)
  })
})

describe('an origin that fails', () => {
  it('is logged with its route, and the request id that the caller gets', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const app = gateway.app({ rules: [TWO], routes: [{ name: 'broken', match: { path: '/drop' } }] })
    const { status, headers } = await app('/drop?secret', { key: await gateway.key('acme') })
    expect(status).toBe(502)
    expect(log.mock.calls.map(([line]) => JSON.parse(line))).toEqual([
      {
        level: 'error',
        event: 'origin',
        body: false,
        reason: expect.stringMatching(/other side closed|ECONNRESET/),
        route: 'broken',
        request_id: headers.get('x-request-id'),
        skipped: 0,
      },
    ])
  })

  it('has at most log.perSecond lines a second, and the next one has the number of the others', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    let now = 1000
    const app = gateway.app(
      { rules: [{ ...TWO, limit: 100 }], log: { perSecond: 5 } },
      {
        clock: { now: () => now, elapsed: () => performance.now() },
        board: createSwitchBoard({ now: () => 0 }),
      },
    )
    const key = await gateway.key('acme')
    for (let i = 0; i < 20; i++) expect((await app('/drop', { key })).status).toBe(502)
    now = 2000
    await app('/drop', { key })
    const skipped = log.mock.calls.map(([line]) => JSON.parse(line).skipped)
    expect(skipped).toEqual([0, 0, 0, 0, 0, 15])
  })
})

describe("the gateway's own paths", () => {
  it.each([
    '/_sluice',
    '/_sluice/',
    '/_sluice/x',
    '//_sluice/x',
    '/_SLUICE/x',
    '/%5fsluice/x',
    '/a/../_sluice/x',
    '/_sluice%2fx',
    '/%255fsluice/health',
    '/_sluice\\x',
    '/%5fsluice/health%ff',
  ])('%s never reaches the origin', async path => {
    const app = gateway.app({ rules: [TWO], credentials: { accept: ['api-key', 'anonymous'] } })
    for (const method of ['GET', 'POST', 'OPTIONS']) {
      const headers = { origin: 'https://a.example', 'access-control-request-method': 'GET' }
      expect((await app(path, { method, headers })).status).toBe(404)
    }
    expect(gateway.origin.received).toEqual([])
  })

  it('report whether the store answers, and ping it at most once a second', async () => {
    const app = gateway.app({ rules: [TWO] })
    gateway.store.count()
    const response = await app('/_sluice/health')
    expect(response.status).toBe(200)
    expect(await response.json()).toEqual({
      live: true,
      ready: true,
      store: { ok: true, latencyMs: expect.any(Number) },
    })
    await Promise.all([app('/_sluice/health'), app('/_sluice/health')])
    expect(gateway.store.count()).toBe(1)
  })
})

describe('a browser', () => {
  const ORIGIN = 'https://app.example'
  const preflight = {
    method: 'OPTIONS',
    headers: {
      origin: ORIGIN,
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'x-api-key',
    },
  }

  it('gets its preflights answered by the origin, neither authenticated nor counted', async () => {
    const app = gateway.app({ rules: [TWO] })
    for (let i = 0; i < 5; i++) expect((await app('/cors', preflight)).status).toBe(200)
    expect(gateway.origin.received.map(({ method }) => method)).toEqual(Array(5).fill('OPTIONS'))
    expect(await gateway.redis.connection.send(['DBSIZE'])).toBe(0)
  })

  it('gets its preflights answered by the gateway if the config has `cors`', async () => {
    const app = gateway.app({ rules: [TWO], cors: { origins: [ORIGIN], maxAge: '1h' } })
    const response = await app('/', preflight)
    expect(response.status).toBe(204)
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'access-control-allow-origin': ORIGIN,
      'access-control-allow-methods': 'POST',
      'access-control-allow-headers': 'x-api-key',
      'access-control-max-age': '3600',
    })
    const stranger = await app('/', {
      ...preflight,
      headers: { ...preflight.headers, origin: 'https://evil.example' },
    })
    expect(stranger.headers.has('access-control-allow-origin')).toBe(false)
    expect(gateway.origin.received).toEqual([])
  })

  it('may read the limits, also of a refusal', async () => {
    const app = gateway.app({ rules: [TWO] })
    const key = await gateway.key('acme')
    const ask = (path: string, init = {}) => app(path, { key, headers: { origin: ORIGIN }, ...init })
    const allowed = await ask('/cors')
    expect(allowed.headers.get('access-control-expose-headers')).toContain(
      'RateLimit, RateLimit-Policy, Retry-After',
    )
    // An origin that lets no script read its replies is not overruled.
    expect((await ask('/plain')).headers.has('access-control-allow-origin')).toBe(false)
    const refused = await ask('/cors')
    expect(refused.status).toBe(429)
    expect(refused.headers.get('access-control-allow-origin')).toBe('*')
    expect(refused.headers.get('access-control-expose-headers')).toContain('Retry-After')
  })

  it('may read a reply only as the config allows', async () => {
    const app = gateway.app({ rules: [TWO], cors: { origins: [ORIGIN] } })
    const key = await gateway.key('acme')
    const read = async (origin: string) =>
      (await app('/cors', { key, headers: { origin } })).headers.get('access-control-allow-origin')
    expect(await read(ORIGIN)).toBe(ORIGIN)
    expect(await read('https://evil.example')).toBeNull()
  })

  it('that sends OPTIONS without CORS headers, or with a body, is an ordinary caller', async () => {
    const app = gateway.app({ rules: [TWO] })
    expect((await app('/', { method: 'OPTIONS' })).status).toBe(401)
    expect((await app('/', { ...preflight, body: 'x' })).status).toBe(401)
    // The headers alone do not make a preflight.
    expect((await app('/', { headers: preflight.headers })).status).toBe(401)
    expect((await app('/', { ...preflight, headers: { ...preflight.headers, cookie: 'a=b' } })).status).toBe(
      401,
    )
  })
})
