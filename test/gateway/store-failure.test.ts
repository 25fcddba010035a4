/** A failing store: the request passes if the config allows it, and the log has the cause without a secret. */

import type { ServerResponse } from 'node:http'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { jwt } from '../../src/credentials/jwt.ts'
import { createApp } from '../../src/set-ups/gateway/app.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { createDeadlineClock } from '../support/deadline-clock.ts'
import { configOf } from '../support/engines.ts'
import { useGateway } from '../support/gateway.ts'
import { sign } from '../support/key-server.ts'

const DEADLINE_MS = 1000
/** The clock of the deadline stands still, except when a fault makes the deadline pass. */
const clock = createDeadlineClock()
const passDeadline = () => clock.pass(DEADLINE_MS)

const gateway = useGateway()
/** Called when the head of a reply of the store has arrived. */
let onHead = () => {}
/**
 * The signals of all requests to the origin, and of those to the store about the consumer `once`. Other tests of the process may still
 * probe their stores, and send them statistics.
 */
const signals = new Set<unknown>()
beforeEach(() => {
  onHead = () => {}
  signals.clear()
  const real = globalThis.fetch
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (input, init) => {
    const isToStore = String(input).startsWith(gateway.store.url)
    const isToOrigin = String(input).startsWith(gateway.origin.url)
    if (isToOrigin || String(init?.body).includes('{c:once}')) signals.add(init?.signal)
    const response = await real(input, init)
    if (isToStore) onHead()
    return response
  })
})
afterEach(() => {
  vi.restoreAllMocks()
})

const say = (status: number, body: string) => (_: unknown, response: ServerResponse) =>
  void response.writeHead(status, { 'content-type': 'application/json' }).end(body)

/** Replaces the reply of the script. The live switches are read in the same trip, and none are set. */
const answer = (result: string) => say(200, `[{"result":null},{"result":${result}}]`)

const FAULTS = {
  hangs: [passDeadline, 'store-timeout'],
  'sends headers and then hangs': [
    (_: unknown, response: ServerResponse) => {
      onHead = passDeadline
      response.writeHead(200).write('{')
    },
    'store-timeout',
  ],
  'closes the connection': [
    (_: unknown, response: ServerResponse) => void response.destroy(),
    'store-unreachable',
  ],
  'answers 401': [say(401, '{"error":"WRONGPASS invalid or missing auth token"}'), 'store-refused'],
  'answers 503': [say(503, '{"error":"ERR Redis cannot be reached"}'), 'store-unreachable'],
  'answers that it is loading': [
    say(400, '{"error":"LOADING Redis is loading the dataset in memory"}'),
    'store-refused',
  ],
  'has no scripts': [say(400, '{"error":"NOSCRIPT No matching script"}'), 'store-refused'],
  'answers with HTML': [say(200, '<html>Log in</html>'), 'store-unreachable'],
  'answers with an error in HTML': [say(502, '<html>Bad Gateway</html>'), 'store-unreachable'],
  'answers with half a reply': [say(200, '{"result":[1,'), 'store-unreachable'],
  'answers without a list': [answer('"OK"'), 'store-reply-invalid'],
  'answers without a list of results': [say(200, '{"result":"OK"}'), 'store-reply-invalid'],
  'answers fewer calls than were sent': [say(200, '[{"result":null}]'), 'store-reply-invalid'],
  'answers null': [answer('null'), 'store-reply-invalid'],
  'answers with too few fields': [answer('[1,"free",1,2]'), 'store-reply-invalid'],
  'answers with text instead of a number': [answer('[1,"free",1,"2",3,0]'), 'store-reply-invalid'],
  'answers with a fraction': [answer('[1,"free",1,2.5,3,0]'), 'store-reply-invalid'],
  'refuses although no rule does': [answer('[0,"free",1,0,0,0]'), 'store-reply-invalid'],
  'admits although a rule refuses': [answer('[1,"free",1,5,0,5]'), 'store-reply-invalid'],
  'answers with a number that no header can carry': [
    answer('[1,"free",1,9007199254740991,0,0]'),
    'store-reply-invalid',
  ],
  'answers with an unknown status': [answer('[7,"free",1,2,3,0]'), 'store-reply-invalid'],
} as const

describe('a store that', () => {
  const config = configOf({
    rules: [{ name: 'one', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1d' }],
    onStoreFailure: 'open',
    credentials: { onStoreFailure: 'unchecked' },
    // Each request must meet the fault itself.
    store: { breaker: false },
  })
  const ask = (key: string) => {
    const store = upstashStore(
      { url: gateway.store.url, token: 'secret-token', deadlineMs: DEADLINE_MS, keyLocking: true },
      clock,
    )
    // Time stands still. Otherwise a slow machine reads the switches once more, in a trip of their own.
    const platform = { clock: { now: () => 1.8e12 } }
    const app = createApp({ ...config, origin: gateway.origin.url }, store, ALL_PARTS, platform)
    return app.request('http://gateway.test/x', { headers: { 'x-api-key': key } })
  }

  it.each(Object.entries(FAULTS))('%s lets the request pass, marked', async (_, [fault, cause]) => {
    gateway.store.fault = fault
    gateway.origin.received.length = 0
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const key = mintApiKey('acme')

    const response = await ask(key)
    expect(response.status).toBe(200)
    expect(response.headers.get('sluice-degraded')).toBe(cause)
    expect(response.headers.has('ratelimit')).toBe(false)

    // The caller is not verified, and the origin gets the cause.
    const { headers } = gateway.origin.received[0]!
    expect(headers['sluice-degraded']).toBe(cause)
    expect(headers).not.toHaveProperty('x-consumer-id')
    expect(headers).not.toHaveProperty('x-api-key')

    const lines = warn.mock.calls.map(([line]) => String(line))
    expect(lines).toHaveLength(1)
    expect(JSON.parse(lines[0]!)).toMatchObject({
      event: 'degraded',
      cause,
      request_id: response.headers.get('x-request-id'),
    })
    for (const secret of [key, key.slice(-36), 'secret-token', 'sluice:{', 'acme'])
      expect(lines[0]).not.toContain(secret)
  })

  it('does not have the script: sending it again does not extend the deadline', async () => {
    vi.spyOn(console, 'warn').mockImplementation(() => {})
    let calls = 0
    gateway.store.fault = (request, response) => {
      calls += 1
      // The first delivery gets NOSCRIPT after half of the deadline, the second no reply.
      clock.pass(DEADLINE_MS / 2)
      if (calls === 1) say(200, '[{"result":null},{"error":"NOSCRIPT"}]')(request, response)
    }
    expect((await ask(mintApiKey('once'))).headers.get('sluice-degraded')).toBe('store-timeout')
    expect(calls).toBe(2)
    // One signal for both calls to the store, and one for the request to the origin.
    expect(signals.size).toBe(2)
  })

  it('fails is called once: a call that may have spent units is never repeated', async () => {
    vi.spyOn(console, 'warn').mockImplementation(() => {})
    for (const fault of [FAULTS['closes the connection'][0], FAULTS['answers 503'][0], FAULTS.hangs[0]]) {
      gateway.store.fault = fault
      gateway.store.count()
      await ask(mintApiKey('acme'))
      expect(gateway.store.count()).toBe(1)
    }
  })

  it('is down does not prevent the verification of tokens', async () => {
    vi.spyOn(console, 'warn').mockImplementation(() => {})
    gateway.store.fault = say(503, '{"error":"ERR Redis cannot be reached"}')
    const secret = 'a secret of the tests, of 32 bytes and some more'
    const internal = jwt({ secret: 'SECRET', algorithms: ['HS256'], issuer: 'internal', audience: 'api' })
    const app = gateway.app(
      {
        rules: [{ name: 'a', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }],
        credentials: { jwt: { internal } },
      },
      { variables: { SECRET: secret } },
    )
    const claims = { iss: 'internal', aud: 'api', sub: 'alice', exp: Date.now() / 1e3 + 300 }
    const key = await sign(claims, { kid: 'x', alg: 'HS256', privateKey: new TextEncoder().encode(secret) })
    expect((await app('/', { key })).status).toBe(200)
    const { headers } = gateway.origin.received.at(-1)!
    expect([headers['x-consumer-id'], headers['sluice-degraded']]).toEqual([
      'internal~alice',
      'store-unreachable',
    ])
    expect(headers).not.toHaveProperty('x-consumer-plan')
    expect((await app('/', { key: `${key}x` })).status).toBe(401)
  })

  it('is down is reported by the health check', async () => {
    gateway.store.fault = say(503, '{"error":"ERR Redis cannot be reached"}')
    const response = await gateway.app({
      rules: [{ name: 'a', by: 'consumer', algorithm: 'gcra', limit: 1, period: '1s' }],
    })('/_sluice/health')
    expect(response.status).toBe(503)
    expect(await response.json()).toEqual({
      live: true,
      ready: false,
      store: { ok: false, latencyMs: expect.any(Number), error: 'ERR_STORE_UNREACHABLE' },
    })
  })

  it('fails does not admit a malformed credential', async () => {
    gateway.store.fault = () => {}
    expect((await ask('garbage')).status).toBe(401)
  })
})
