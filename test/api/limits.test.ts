/** Limits by name over HTTP. */
import { beforeEach, describe, expect, it } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { pauseLimit } from '../../src/ops/limits.ts'
import { type ApiCall, apiOf, tokenWith } from '../support/api.ts'
import { configOf } from '../support/engines.ts'
import { useGateway } from '../support/gateway.ts'
import { describeOnRedis } from '../support/redis.ts'

const CONFIG: Partial<ConfigInput> = {
  units: { tokens: { estimate: 100 } },
  limits: {
    sms: [{ name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 5, period: '1d' }],
    all: [{ name: 'hour', algorithm: 'fixed-window', limit: 2, period: '1h' }],
    llm: [{ name: 'minute', by: ['team'], algorithm: 'gcra', limit: 1000, period: '1m', unit: 'tokens' }],
    tenant: [
      {
        // A window, because what a bucket gets back meanwhile depends on the time that the test takes.
        ...{ name: 'quota', by: ['tenant'], algorithm: 'fixed-window', numbers: 'call' },
        max: { limit: 10_000, period: '1d' },
      },
    ],
    slow: [{ name: 'queue', algorithm: 'leaky-bucket', limit: 20, period: '1s', queue: 5 }],
  },
}

describeOnRedis('limits by name over HTTP', (_, kind) => {
  const gateway = useGateway(kind)
  let api: ApiCall
  let token: string
  const account = { identity: { account: '42' } }

  beforeEach(async () => {
    api = apiOf(gateway, CONFIG)
    token = await tokenWith(gateway, ['limits:use'])
  })

  it('are decided in one trip, with the check of the token', async () => {
    await api('POST limits/sms', { token, body: account })
    const other = apiOf(gateway, CONFIG)
    const second = await tokenWith(gateway, ['limits:use:sms'])
    gateway.store.count()
    const { status, body } = await other('POST limits/sms', { token: second, body: { ...account, cost: 3 } })
    expect(status).toBe(200)
    expect(body).toMatchObject({ success: true, allowed: true, limit: 'sms', retryAfterMs: 0 })
    expect(body.rules).toMatchObject([{ name: 'day', limit: 5, remaining: 1 }])
    expect(body.receipt).toMatchObject({ limit: 'sms', identity: { account: '42' }, costs: { day: 3 } })
    expect(gateway.store.count()).toBe(1)
  })

  it('refuse with status 200, and spend nothing then', async () => {
    const refused = await api('POST limits/sms', { token, body: { ...account, cost: 6 } })
    expect(refused).toMatchObject({ status: 200, body: { allowed: false, retryAfterMs: -1 } })
    const peeked = await api('POST limits/sms/peek', { token, body: account })
    expect(peeked.body).toMatchObject({ allowed: true, rules: [{ remaining: 5 }] })
  })

  it('give back what was spent, once, and only with a receipt that the API has signed', async () => {
    const { body } = await api('POST limits/sms', { token, body: { ...account, cost: 4 } })
    const refund = () => api('POST limits/sms/refund', { token, body: { receipt: body.receipt } })
    expect((await refund()).body.rules).toMatchObject([{ remaining: 5 }])
    await api('POST limits/sms', { token, body: { ...account, cost: 4 } })
    expect((await refund()).status).toBe(200)
    expect((await api('POST limits/sms/peek', { token, body: account })).body.rules[0].remaining).toBe(1)
    const forged = { ...body.receipt, id: crypto.randomUUID() }
    expect(await api('POST limits/sms/refund', { token, body: { receipt: forged } })).toMatchObject({
      status: 400,
      body: { errors: [{ pointer: '/receipt' }] },
    })
  })

  it('give back as many units as a refund says in all, through whichever isolate and however often', async () => {
    const { receipt } = (await api('POST limits/sms', { token, body: { ...account, cost: 5 } })).body
    const other = apiOf(gateway, CONFIG)
    const remaining: number[] = []
    for (const [isolate, cost] of [
      [api, 2],
      [api, 2],
      [other, 2],
      [other, 3],
      [api, 3],
      [api, 1],
      [other, undefined],
      [api, undefined],
    ] as const) {
      const body = { receipt, ...(cost && { cost }) }
      await isolate('POST limits/sms/refund', { token, body })
      const peeked = await api('POST limits/sms/peek', { token, body: account })
      remaining.push(peeked.body.rules[0].remaining)
    }
    expect(remaining).toEqual([2, 2, 2, 3, 3, 3, 5, 5])
  })

  it('take no receipt of another limit, which the token may not use', async () => {
    const only = await tokenWith(gateway, ['limits:use:all'])
    const { body } = await api('POST limits/sms', { token, body: account })
    const reply = await api('POST limits/all/refund', { token: only, body: { receipt: body.receipt } })
    expect(reply).toMatchObject({ status: 400, body: { errors: [{ pointer: '/receipt' }] } })
    expect((await api('POST limits/sms', { token: only, body: account })).status).toBe(403)
  })

  it('take no receipt of another environment, where units may cost nothing', async () => {
    const { body } = await api('POST limits/sms', { token, body: account })
    const other = apiOf(gateway, { ...CONFIG, environment: 'prod' })
    const own = await tokenWith(gateway, ['limits:use'], { environment: 'prod' })
    await other('POST limits/sms', { token: own, body: { ...account, cost: 4 } })
    const reply = await other('POST limits/sms/refund', { token: own, body: { receipt: body.receipt } })
    expect(reply).toMatchObject({ status: 400, body: { errors: [{ pointer: '/receipt' }] } })
    const peeked = await other('POST limits/sms/peek', { token: own, body: account })
    expect(peeked.body.rules).toMatchObject([{ remaining: 1 }])
  })

  it.each([
    ['objects', '{"a":'.repeat(10_000) + 1 + '}'.repeat(10_000)],
    ['lists', '['.repeat(30_000) + ']'.repeat(30_000)],
  ])('refuse a receipt of deep %s', async (_, deep) => {
    const text = `{"receipt":{"limit":"sms","signature":"x","a":${deep}}}`
    const reply = await api('POST limits/sms/refund', { token, text })
    expect(reply).toMatchObject({ status: 400, body: { errors: [{ pointer: '/receipt' }] } })
  })

  it('reserve and settle units', async () => {
    const team = { identity: { team: 'a' } }
    const { body } = await api('POST limits/llm/reserve', {
      token,
      body: { ...team, amounts: { tokens: 400 } },
    })
    expect(body).toMatchObject({ allowed: true, receipt: { reserved: { minute: 400 } } })
    const settle = () =>
      api('POST limits/llm/settle', { token, body: { receipt: body.receipt, amounts: { tokens: 50 } } })
    expect((await settle()).body).toMatchObject({ applied: true, rules: [{ limit: 1000 }] })
    expect((await settle()).body.applied).toBe(false)
  })

  it('are given back and settled as far as they exist, after a deployment that has removed, renamed and added rules', async () => {
    const [algorithm, limit, period] = ['fixed-window', 1000, '300d'] as const
    const day = { by: ['team'], algorithm, limit, period }
    const units = { tokens: { estimate: 100 }, usd: { estimate: 1 } }
    const limits = {
      llm: [
        { ...day, name: 'calls' },
        { ...day, name: 'users', by: ['team', 'user'] },
        { ...day, name: 'tokens', unit: 'tokens' },
        { ...day, name: 'usd', unit: 'usd' },
      ],
    } satisfies ConfigInput['limits']
    const before = apiOf(gateway, { units, limits })
    const [calls, , tokens, usd] = limits.llm
    const now = apiOf(gateway, {
      units,
      limits: {
        llm: [{ ...day, name: 'new', by: ['region'] }, calls!, { ...tokens!, name: 'renamed' }, usd!],
      },
    })
    const identity = { team: 'a', user: 'u' }
    const { body } = await before('POST limits/llm/reserve', {
      token,
      body: { identity, cost: 4, amounts: { tokens: 100, usd: 50 } },
    })
    const { receipt } = body
    expect(receipt).toMatchObject({ costs: { calls: 4, users: 4 }, reserved: { tokens: 100, usd: 50 } })
    const send = (verb: string, more: object) =>
      now(`POST limits/llm/${verb}`, { token, body: { receipt, ...more } })
    const cost = { calls: 1, users: 2 }
    expect((await send('refund', { cost })).body.rules).toMatchObject([{ name: 'calls', remaining: 997 }])
    const settled = await send('settle', { amounts: { tokens: 9, usd: 20 } })
    expect(settled.body).toMatchObject({ applied: true, rules: [{ name: 'usd', remaining: 980 }] })
    const peeked = await before('POST limits/llm/peek', { token, body: { identity } })
    expect(peeked.body.rules.map(({ remaining }: { remaining: number }) => remaining)).toEqual([
      997, 996, 900, 980,
    ])
    const wrong: [verb: string, more: object][] = [
      ['settle', { amounts: { usd: -1 } }],
      ['refund', { cost: { user: 1 } }],
      ['settle', { receipt: { ...receipt, reserved: { usd: 50 } }, amounts: {} }],
    ]
    for (const [verb, more] of wrong) expect((await send(verb, more)).status).toBe(400)
  })

  it('are reset with a scope of its own', async () => {
    await api('POST limits/sms', { token, body: { ...account, cost: 5 } })
    const denied = await api('POST limits/sms/reset', { token, body: account })
    expect(denied).toMatchObject({ status: 403, body: { scope: 'limits:reset' } })
    const resetting = await tokenWith(gateway, ['limits:reset'])
    const reset = await api('POST limits/sms/reset', { token: resetting, body: { ...account, rule: 'day' } })
    expect(reset).toMatchObject({ status: 200, body: { rules: [{ remaining: 5 }] } })
  })

  it('are paused and resumed by a token that may use them, which the audit trail names', async () => {
    const own = await tokenWith(gateway, ['limits:use:sms'], { name: 'worker' })
    const paused = await api('POST limits/sms/pause', { token: own, body: { ...account, retryAfter: '30' } })
    expect(paused).toMatchObject({ status: 200, body: { limit: 'sms', paused: true } })
    const { pausedUntil, retryAfterMs } = paused.body
    // Rounded up to whole milliseconds.
    expect([30_000, 30_001]).toContain(retryAfterMs)
    expect((await api('POST limits/sms', { token, body: account })).body).toMatchObject({
      ...{ allowed: false, pausedUntil },
    })
    const other = apiOf(gateway, CONFIG)
    const refused = (await other('POST limits/sms', { token, body: account })).body
    expect(refused).toMatchObject({ allowed: false, pausedUntil, rules: [{ allowed: true, remaining: 5 }] })
    expect(refused.retryAfterMs).toBeGreaterThan(25_000)
    expect(
      (await other('POST limits/sms/pause', { token, body: { ...account, forMs: 10 } })).body,
    ).toMatchObject({
      pausedUntil,
    })
    expect((await api('POST limits/sms/resume', { token: own, body: account })).body).toEqual({
      ...{ limit: 'sms', paused: false, retryAfterMs: 0 },
    })
    expect((await api('POST limits/sms', { token, body: account })).body.allowed).toBe(true)
    const soon = await api('POST limits/sms/pause', { token, body: { ...account, retryAfter: 'soon' } })
    expect(soon.body).toEqual({ limit: 'sms', paused: false, retryAfterMs: 0 })
    const auditor = await tokenWith(gateway, ['audit:read'])
    const { items } = (await api('GET audit?target=sms', { token: auditor })).body
    expect(items).toMatchObject([
      { action: 'limits.resume', target: 'sms/account=42', actor: { kind: 'token', name: 'worker' } },
      { action: 'limits.pause', actor: { name: 'worker' }, after: { forMs: 30_000 } },
    ])
  })

  it('are paused no longer than longestPause says, by the API and by an operator', async () => {
    const paused = await apiOf(gateway, { ...CONFIG, longestPause: '1h' })('POST limits/sms/pause', {
      ...{ token, body: { ...account, forMs: 1e9 } },
    })
    expect([3_600_000, 3_600_001]).toContain(paused.body.retryAfterMs)
    const config = configOf({ rules: [], ...CONFIG, longestPause: '2h' })
    const startedAt = Date.now()
    const until = await pauseLimit(gateway.admin, config, 'sms', { account: '43' }, 1e9)
    expect(Math.round((until!.getTime() - startedAt) / 600_000)).toBe(12)
  })

  it('wait for units if asked to', async () => {
    for (let i = 0; i < 4; i++) await api('POST limits/slow', { token, body: {} })
    const waited = await api('POST limits/slow', { token, body: { waitMs: 1000 } })
    expect(waited.body).toMatchObject({ allowed: true })
    expect(
      (await api('POST limits/sms', { token, body: { ...account, waitMs: 25_001 } })).body.errors,
    ).toEqual([{ pointer: '/waitMs', detail: 'Too high. The greatest value is 25000.' }])
  })

  it.each([
    ['POST limits/none', {}, 404, undefined],
    ['POST limits/sms', {}, 400, '/identity'],
    ['POST limits/sms', { identity: { account: '1', more: '2' } }, 400, '/identity'],
    ['POST limits/sms', { ...account, cost: -1 }, 400, '/cost'],
    ['POST limits/sms', { ...account, cost: { none: 1 } }, 400, ''],
    ['POST limits/sms', { ...account, costs: 1 }, 400, '/costs'],
    ['POST limits/sms/reserve', account, 400, ''],
    ['POST limits/sms/pause', account, 400, ''],
    ['POST limits/sms/pause', { ...account, forMs: 0 }, 400, '/forMs'],
    ['POST limits/sms/pause', { forMs: 1 }, 400, '/identity'],
    ['POST limits/none/pause', { forMs: 1 }, 404, undefined],
    ['POST limits/sms', [], 400, ''],
  ])('%s %j: %i', async (what, body, status, pointer) => {
    const reply = await api(what, { token, body })
    expect(reply.status).toBe(status)
    expect(reply.body.errors?.[0].pointer).toBe(pointer)
  })

  describe('with numbers at the call', () => {
    const numbers = { quota: { limit: 300, period: '1d' } }
    const body = { identity: { tenant: 't' }, numbers }
    const both = () => tokenWith(gateway, ['limits:use', 'limits:numbers'])

    it('count by them, give back by the receipt, and are reset with them', async () => {
      token = await both()
      const taken = await api('POST limits/tenant', { token, body: { ...body, cost: 20 } })
      expect(taken.body).toMatchObject({ allowed: true, rules: [{ limit: 300, remaining: 280 }] })
      expect(taken.body.receipt).toMatchObject({ numbers })
      const peek = async () => (await api('POST limits/tenant/peek', { token, body })).body.rules[0].remaining
      expect(await peek()).toBe(280)
      const { receipt } = taken.body
      const use = await tokenWith(gateway, ['limits:use:tenant'])
      await api('POST limits/tenant/refund', { token: use, body: { receipt, cost: 15 } })
      expect(await peek()).toBe(295)
      const forged = { ...receipt, numbers: { quota: { limit: 400, period: '1d' } } }
      expect((await api('POST limits/tenant/refund', { token, body: { receipt: forged } })).status).toBe(400)
      const reset = await tokenWith(gateway, ['limits:reset', 'limits:numbers'])
      expect((await api('POST limits/tenant/reset', { token: reset, body })).status).toBe(200)
      expect(await peek()).toBe(300)
    })

    it('need the scope limits:numbers in addition to that of the limit, and spend nothing without it', async () => {
      for (const path of ['', '/peek']) {
        const refused = await api(`POST limits/tenant${path}`, { token, body })
        expect(refused).toMatchObject({ status: 403, body: { scope: 'limits:numbers' } })
        const only = await tokenWith(gateway, ['limits:numbers'])
        expect((await api(`POST limits/tenant${path}`, { token: only, body })).status).toBe(403)
        const other = await tokenWith(gateway, ['limits:numbers', 'limits:use:sms'])
        expect((await api(`POST limits/tenant${path}`, { token: other, body })).status).toBe(403)
      }
      const reset = await tokenWith(gateway, ['limits:reset'])
      expect((await api('POST limits/tenant/reset', { token: reset, body })).status).toBe(403)
      const unknown = (await tokenWith(gateway, ['limits:use'])).slice(0, -7)
      expect((await api('POST limits/tenant', { token: unknown, body })).status).toBe(401)
      token = await both()
      const peeked = await api('POST limits/tenant/peek', { token, body })
      expect(peeked.body.rules[0].remaining).toBe(300)
    })

    it.each([
      [undefined, '/numbers'],
      [{ quota: { limit: 300, period: '1s' } }, '/numbers'],
      [{ quota: { limit: 10_001 } }, '/numbers'],
      [{ other: { limit: 3 } }, '/numbers'],
      [{ quota: { limit: 1.5 } }, '/numbers/quota/limit'],
      [{ quota: { limit: 3, rate: 3 } }, '/numbers/quota/rate'],
    ])('say what is wrong with %j', async (wrong, pointer) => {
      token = await both()
      for (const path of ['', '/peek']) {
        const reply = await api(`POST limits/tenant${path}`, { token, body: { ...body, numbers: wrong } })
        expect(reply.status).toBe(400)
        expect(reply.body.errors[0].pointer).toBe(pointer)
      }
      const reply = await api('POST limits/sms', { token, body: { ...account, numbers } })
      expect(reply.body.errors[0]).toMatchObject({
        pointer: '/numbers',
        detail: expect.stringMatching(/from the config/),
      })
    })
  })

  it('say nothing about a mistake to a caller without a token', async () => {
    expect((await api('POST limits/none', { body: {} })).status).toBe(401)
    const unknown = (await tokenWith(gateway, ['limits:use'])).slice(0, -7)
    expect((await api('POST limits/none', { token: unknown, text: '{' })).status).toBe(401)
    const other = await tokenWith(gateway, ['limits:use'])
    await gateway.redis.connection.send(['FLUSHALL'])
    expect((await api('POST limits/sms', { token: other, body: { nonsense: 1 } })).status).toBe(401)
    expect((await api('POST limits/sms', { token: other, body: account })).status).toBe(401)
  })

  describe('while the store does not answer', () => {
    it('reply 503, and say whether something may have been spent', async () => {
      gateway.store.fault = (_, response) => void response.destroy()
      const reply = await api('POST limits/sms', { token, body: account })
      expect(reply).toMatchObject({ status: 503, headers: expect.anything() })
      expect(reply.body.change).toMatch(/none|unknown/)
      expect(reply.headers.get('retry-after')).toBe('1')
    })
  })
})
