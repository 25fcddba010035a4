/** Rules with `concurrency` as callers see them, through the whole gateway on Node. */
import { describe, expect, it, vi } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { type App, useGateway } from '../support/gateway.ts'
import { PATIENT } from '../support/patience.ts'

const RULE: RuleInput = { name: 'in-flight', by: 'consumer', algorithm: 'concurrency', limit: 2 }

describe('a `concurrency` rule', () => {
  const gateway = useGateway()

  it('admits another request once the body of a reply was read', async () => {
    const app = gateway.app({ rules: [RULE] })
    const key = await gateway.key('acme')
    const held = [await app('/', { key }), await app('/', { key })]
    expect(held.map(({ status }) => status)).toEqual([200, 200])
    expect((await app('/', { key })).status).toBe(429)
    await held[0]!.text()
    await vi.waitFor(async () => expect((await app('/', { key })).status).toBe(200), PATIENT)
    await held[1]!.body?.cancel()
  })

  it('reports in headers and body how many may be in flight, and when a unit is certainly free', async () => {
    const app = gateway.app({ rules: [RULE] })
    const key = await gateway.key('globex')
    const [one] = [await app('/', { key }), await app('/', { key })]
    expect(one!.headers.get('RateLimit-Policy')).toBe('"in-flight";q=2;qu="concurrent-requests"')
    expect(one!.headers.get('RateLimit')).toBe('"in-flight";r=1;t=15')
    const refused = await app('/', { key })
    expect(refused.headers.get('Retry-After')).toBe('15')
    expect(await refused.json()).toMatchObject({
      detail:
        'Limit reached: in-flight (2 at once). Nothing was charged. Try again when one of your requests has ended, or in 15 s.',
      'violated-policies': ['in-flight'],
    })
  })
})

describe('a request whose client leaves while the origin works', () => {
  const gateway = useGateway()
  /** Sends a request that the origin does not answer yet, and lets its client leave. Returns the status of its reply. */
  const leave = async (app: App, key: string) => {
    const client = new AbortController()
    const left = app('/held', { key, signal: client.signal })
    await vi.waitUntil(() => gateway.origin.received.some(({ url }) => url === '/held'), PATIENT)
    client.abort()
    return { left: left.then(({ status }) => status) }
  }

  it("frees its unit at once with onClientGone: 'abort', and is not logged as an error of the origin", async () => {
    const log = vi.spyOn(console, 'error')
    const app = gateway.app({ rules: [{ ...RULE, limit: 1 }], onClientGone: 'abort', originDeadline: '10m' })
    const key = await gateway.key('acme')
    expect(await (await leave(app, key)).left).toBe(499)
    await vi.waitFor(async () => expect((await app('/', { key })).status).toBe(200), PATIENT)
    expect(log).not.toHaveBeenCalled()
    log.mockRestore()
  })

  it('keeps its unit by default until the origin has answered', async () => {
    const app = gateway.app({ rules: [{ ...RULE, limit: 1 }], originDeadline: '10m' })
    const key = await gateway.key('globex')
    const { left } = await leave(app, key)
    expect((await app('/', { key })).status).toBe(429)
    await fetch(`${gateway.origin.url}/stream/go-on`)
    expect(await left).toBe(200)
  })
})

describe('a request whose client leaves during its delay', () => {
  const gateway = useGateway()

  it('is not sent to the origin, and frees its unit at once', async () => {
    const queue: RuleInput = {
      ...{ name: 'queue', by: 'consumer', algorithm: 'leaky-bucket', limit: 1, period: '1s', queue: 5 },
    }
    let sleeps = () => {}
    const isAsleep = new Promise<void>(resolve => {
      sleeps = resolve
    })
    const sleep = () => {
      sleeps()
      return new Promise<void>(() => {})
    }
    const rule = { ...RULE, limit: 1 }
    const app = gateway.app({ rules: [rule, queue] }, { sleep })
    const other = gateway.app({ rules: [rule] })
    const key = await gateway.key('acme')
    await (await app('/', { key })).text()
    const client = new AbortController()
    const left = app('/left', { key, signal: client.signal })
    await isAsleep
    expect((await other('/', { key })).status).toBe(429)
    client.abort()
    expect((await left).status).toBe(499)
    await vi.waitFor(async () => expect((await other('/', { key })).status).toBe(200), PATIENT)
    expect(gateway.origin.received.filter(({ url }) => url === '/left')).toEqual([])
  })
})
