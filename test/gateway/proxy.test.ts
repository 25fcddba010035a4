import { describe, expect, it, vi } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { proxy, targetUrl } from '../../src/set-ups/gateway/proxy.ts'
import { configOf } from '../support/engines.ts'
import { UNBOUNDED_LOG } from '../support/log.ts'

it.each([
  ['http://gateway.test/a/b?c=%20d', 'https://api.example.com', 'https://api.example.com/a/b?c=%20d'],
  ['http://gateway.test/', 'https://api.example.com', 'https://api.example.com/'],
  ['http://gateway.test/a', 'https://api.example.com:8443/base/', 'https://api.example.com:8443/base/a'],
  ['http://gateway.test/a%2Fb//c', 'http://10.0.0.1/base', 'http://10.0.0.1/base/a%2Fb//c'],
  [
    'http://gateway.test//evil.example/x',
    'https://api.example.com',
    'https://api.example.com//evil.example/x',
  ],
  ['http://gateway.test/a?b', 'https://a.example?', 'https://a.example/a?b'],
  ['http://gateway.test/a?b', 'https://a.example/base/?', 'https://a.example/base/a?b'],
  ['http://gateway.test/a?b', 'https://a.example/base#', 'https://a.example/base/a?b'],
  ['http://gateway.test/a?b', 'route', 'http://gateway.test/a?b'],
])('a request for %s with origin %s is sent to %s', (url, origin, target) =>
  expect(targetUrl(url, origin)).toBe(target),
)

describe('the log of an origin that fails', () => {
  const failing = async (
    fetch: typeof globalThis.fetch,
    originDeadlineMs = 60_000,
    request = new Request('http://gateway.test/orders?token=secret'),
  ) => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    vi.stubGlobal('fetch', fetch)
    const rule: RuleInput = { name: 'a', by: 'address', algorithm: 'gcra', limit: 1, period: '1s' }
    const config = { ...configOf({ rules: [rule] }), originDeadlineMs }
    const address = '192.0.2.1'
    const { response } = await proxy(
      request,
      config,
      { requestId: 'the-id', route: 'orders', address },
      UNBOUNDED_LOG,
    )
    expect(log).toHaveBeenCalledTimes(1)
    return { status: response.status, line: JSON.parse(log.mock.calls[0]![0]) }
  }
  const line = (reason: string) => ({
    level: 'error',
    event: 'origin',
    reason,
    body: false,
    route: 'orders',
    request_id: 'the-id',
    skipped: 0,
  })

  it.each([
    // The messages of workerd, Node and Deno.
    [new Error('Network connection lost.'), 'Error: Network connection lost.'],
    [
      new TypeError('fetch failed', { cause: new Error('connect ECONNREFUSED 10.0.0.1:80') }),
      'Error: connect ECONNREFUSED 10.0.0.1:80',
    ],
    [
      new TypeError('error sending request for url (https://origin.test/orders?token=secret): refused'),
      'TypeError: error sending request for url … refused',
    ],
    [new TypeError('Invalid path /orders?token=secret'), 'TypeError: Invalid path …'],
    ['a string', 'a string'],
    [undefined, 'undefined'],
  ])('has the reason, route and request, and quotes no URL: %s', async (error, reason) => {
    const { status, line: logged } = await failing(() => Promise.reject(error))
    expect([status, logged]).toEqual([502, line(reason)])
  })

  it('says if the request has a body, because a client that breaks it off causes the same error', async () => {
    const upload = new Request('http://gateway.test/orders', { method: 'POST', body: 'a' })
    const { line: logged } = await failing(() => Promise.reject(new Error('lost')), 60_000, upload)
    expect(logged).toEqual({ ...line('Error: lost'), body: true })
  })

  it('has the reason timeout if the origin was too slow', async () => {
    const never: typeof fetch = (_, init) =>
      new Promise((_, reject) => init!.signal!.addEventListener('abort', () => reject(init!.signal!.reason)))
    const { status, line: logged } = await failing(never, 1)
    expect([status, logged]).toEqual([504, line('timeout')])
  })
})
