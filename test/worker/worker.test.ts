/** The Worker's own entry inside workerd, with the config that comes with the project. */
import { exports } from 'cloudflare:workers'
import { parseList } from 'structured-headers'
import { afterEach, describe, expect, inject, it, vi } from 'vitest'

const fetchWorker = (path: string, init?: RequestInit) =>
  exports.default.fetch(`https://api.example.com${path}`, init)
const key = inject('apiKey')

afterEach(() => vi.restoreAllMocks())

describe('the Worker', () => {
  it('decides six limits for a good key, and forwards', async () => {
    const response = await decided('/hello', { headers: { authorization: `Bearer ${key}` } })
    expect(response.status).toBe(200)
    const policies = parseList(response.headers.get('ratelimit-policy')!).map(([name]) => name)
    expect(policies).toEqual([
      ...['consumer-second', 'consumer-minute', 'consumer-hour'],
      ...['address-second', 'address-minute', 'address-hour'],
    ])
    const { headers } = await response.json<{ headers: Record<string, string> }>()
    expect(headers).toMatchObject({
      'x-consumer-id': 'acme',
      'x-consumer-plan': 'pro',
      'x-forwarded-proto': 'https',
    })
    expect(headers).not.toHaveProperty('authorization')
  })

  it('hands a request body on', async () => {
    const body = new Uint8Array(40_000)
    const response = await decided('/upload', { method: 'POST', body, headers: { 'x-api-key': key } })
    expect(await response.json()).toMatchObject({ method: 'POST', path: '/upload', body_bytes: 40_000 })
  })

  it('admits no more than ten at once, and refuses the rest with a 429', async () => {
    const headers = { 'x-api-key': inject('burstKey'), 'cf-connecting-ip': '192.0.2.30' }
    const burst = await Promise.all(
      Array.from({ length: 30 }, async () => {
        const response = await decided('/', { headers })
        await response.body?.cancel()
        return response
      }),
    )
    const refused = burst.filter(({ status }) => status === 429)
    // No units come back meanwhile, because the store's clock stands still. A call whose reply was late may also have spent a unit.
    expect(burst.length - refused.length).toBeLessThanOrEqual(10)
    for (const { headers } of refused) {
      expect(headers.get('retry-after')).toBe('1')
      expect(headers.get('content-type')).toBe('application/problem+json')
    }
  })

  it('refuses a request without a key', async () => {
    expect((await fetchWorker('/')).status).toBe(401)
  })

  it('reports its health', async () => {
    const response = await fetchWorker('/_sluice/health')
    expect([response.status, await response.json()]).toEqual([
      200,
      expect.objectContaining({ live: true, ready: true }),
    ])
  })

  it('admits requests, and marks their replies, while the store is gone', async () => {
    await untilBreakerIsClosed()
    vi.spyOn(console, 'warn').mockImplementation(() => {})
    const real = globalThis.fetch
    vi.spyOn(globalThis, 'fetch').mockImplementation(async (input, init) => {
      if (String(input).startsWith(inject('restUrl'))) throw new TypeError('Network connection lost.')
      return real(input, init)
    })
    const response = await fetchWorker('/', { headers: { 'x-api-key': key } })
    expect([response.status, response.headers.get('sluice-degraded')]).toEqual([200, 'store-unreachable'])
    await response.body?.cancel()
  })

  it('does not wait for the store longer than its deadline', async () => {
    await untilBreakerIsClosed()
    vi.spyOn(console, 'warn').mockImplementation(() => {})
    const real = globalThis.fetch
    vi.spyOn(globalThis, 'fetch').mockImplementation((input, init) => {
      if (!String(input).startsWith(inject('restUrl'))) return real(input, init)
      return new Promise((_, reject) =>
        init!.signal!.addEventListener('abort', () => reject(init!.signal!.reason)),
      )
    })
    const response = await fetchWorker('/', { headers: { 'x-api-key': key } })
    expect([response.status, response.headers.get('sluice-degraded')]).toEqual([200, 'store-timeout'])
    await response.body?.cancel()
  })
})

/**
 * Repeats the request while the gateway decides without the store, which happens if the machine is too busy to meet the deadline. Other
 * tests are about such decisions.
 */
async function decided(path: string, init: RequestInit): Promise<Response> {
  const ask = async () => {
    const response = await fetchWorker(path, init)
    if (!response.headers.has('sluice-degraded')) return response
    await response.body?.cancel()
    return undefined
  }
  return (await vi.waitUntil(ask, { timeout: 50_000, interval: 50 }))!
}

/** Waits until the breaker is closed. A slow call of an earlier test may have opened it. */
async function untilBreakerIsClosed(): Promise<void> {
  const response = await decided('/', { headers: { 'x-api-key': key } })
  await response.body?.cancel()
}
