/** Units in flight over HTTP: a receipt holds them, and any isolate renews and releases them. */

import { setTimeout as sleep } from 'node:timers/promises'
import { beforeEach, expect, it } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { sized } from '../selection.ts'
import { type ApiCall, type ApiReply, apiOf, appWithApi, tokenWith } from '../support/api.ts'
import { describeOnCluster } from '../support/cluster.ts'
import { useGateway, useGatewayOn } from '../support/gateway.ts'
import { describeOnRedis } from '../support/redis.ts'

const TTL_MS = 15_000

const CONFIG: Partial<ConfigInput> = {
  limits: {
    jobs: [{ name: 'at-once', by: ['account'], algorithm: 'concurrency', limit: 2 }],
    mixed: [
      { name: 'all', algorithm: 'concurrency', limit: 3, ttl: '9s' },
      { name: 'each', by: ['account'], algorithm: 'concurrency', limit: 2 },
      { name: 'shadow', by: ['account'], algorithm: 'concurrency', limit: 1, mode: 'shadow' },
      { name: 'minute', by: ['account'], algorithm: 'fixed-window', limit: 4, period: '300d' },
    ],
    sms: [{ name: 'day', by: ['account'], algorithm: 'fixed-window', limit: 5, period: '300d' }],
  },
}
const ACCOUNT = { identity: { account: '42' } }
const REFUSED_RECEIPT = { status: 400, body: { errors: [{ pointer: '/receipt' }] } }
const OVER = { status: 422, body: { type: 'urn:sluice:problem:refused' } }

describeOnRedis('units in flight over HTTP', (_, kind) => {
  const gateway = useGateway(kind)
  let nowMs: number
  let token: string
  let api: ApiCall

  /** An isolate. Its limits by name are decided by the clock of the test. */
  const isolate = (config: Partial<ConfigInput> = CONFIG) =>
    apiOf(gateway, config, { limiter: { clock: { now: () => nowMs * 1e3, sleep: ms => sleep(ms) } } })

  beforeEach(async () => {
    nowMs = Date.UTC(2026, 0, 1)
    api = isolate()
    token = await tokenWith(gateway, ['limits:use'])
  })

  const hold = (more: object = {}, limit = 'jobs', by = api) =>
    by(`POST limits/${limit}`, { token, body: { ...ACCOUNT, hold: true, ...more } })
  const tell = (verb: string, { body: { receipt } }: ApiReply, by = api) =>
    by(`POST limits/${receipt.limit}/${verb}`, { token, body: { receipt } })
  const left = async (limit = 'jobs') => {
    const { body } = await api(`POST limits/${limit}/peek`, { token, body: ACCOUNT })
    return body.rules.map(({ remaining }: { remaining: number }) => remaining)
  }

  it('are given back if the client leaves while it waits', async () => {
    const held = [await hold(), await hold()]
    const leaving = new AbortController()
    const app = appWithApi(gateway, CONFIG, {
      limiter: {
        clock: {
          now: () => nowMs * 1e3,
          async sleep(ms) {
            nowMs += ms
            leaving.abort()
          },
        },
      },
    })
    const reply = await app('/_sluice/v1/limits/jobs', {
      ...{ method: 'POST', signal: leaving.signal },
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ ...ACCOUNT, hold: true, waitMs: 20_000 }),
    })
    expect(reply.status).toBe(499)
    for (const reply of held) await tell('release', reply)
    expect(await left()).toEqual([2])
  })

  it('are held until the release, each step in one trip', async () => {
    const first = await hold()
    expect(first.body).toMatchObject({ allowed: true, renewWithinMs: TTL_MS, rules: [{ inFlight: true }] })
    expect(first.body.receipt).toMatchObject({ held: { 'at-once': 1 } })
    // Sends the script.
    await tell('renew', first)
    gateway.store.count()
    const second = await hold()
    expect(gateway.store.count()).toBe(1)
    const refused = await hold({}, 'jobs', isolate())
    expect(refused.body).toMatchObject({ allowed: false, rules: [{ remaining: 0 }] })
    expect(refused.body).not.toHaveProperty('renewWithinMs')
    gateway.store.count()
    expect(await tell('renew', second)).toMatchObject({
      status: 200,
      body: { limit: 'jobs', renewWithinMs: TTL_MS },
    })
    expect(await tell('release', first)).toMatchObject({
      status: 200,
      body: { limit: 'jobs', renewWithinMs: 0 },
    })
    expect(gateway.store.count()).toBe(2)
    expect((await hold({}, 'jobs', isolate())).body.allowed).toBe(true)
  })

  it('are held for longer than their ttl by renewals through any isolate, and end without them', async () => {
    const kept = await hold()
    await hold()
    for (let i = 0; i < 4; i++) {
      nowMs += TTL_MS / 3
      expect((await tell('renew', kept, isolate())).status).toBe(200)
    }
    expect(await left()).toEqual([1])
    nowMs += TTL_MS
    expect(await left()).toEqual([2])
  })

  it('are not counted again by a renewal that comes too late, even if there is room', async () => {
    const late = await hold()
    nowMs += TTL_MS
    expect(await tell('renew', late)).toMatchObject(OVER)
    expect(await left()).toEqual([2])
    for (const _ of [1, 2]) expect((await hold()).body.allowed).toBe(true)
    expect(await tell('renew', late)).toMatchObject(OVER)
    expect((await hold()).body.allowed).toBe(false)
  })

  it('are released once, however often and late that is repeated, and never come back', async () => {
    const done = await hold({ cost: 2 })
    expect(await left()).toEqual([0])
    await tell('release', done)
    const [other] = await Promise.all([hold(), tell('release', done), tell('renew', done, isolate())])
    expect(await left()).toEqual([1])
    nowMs += TTL_MS - 1
    await tell('renew', other)
    for (const verb of ['release', 'renew', 'release']) await tell(verb, done)
    expect(await tell('renew', done)).toMatchObject(OVER)
    expect(await left()).toEqual([1])
  })

  it('are held under all rules of the limit that count them, and under none if one refuses', async () => {
    const first = await hold({}, 'mixed')
    expect(first.body).toMatchObject({
      ...{ renewWithinMs: 9000, receipt: { held: { all: 1, each: 1, shadow: 1 }, costs: { minute: 1 } } },
    })
    // The shadow does not count what it would have refused.
    const second = await hold({}, 'mixed')
    expect(second.body.receipt.held).toEqual({ all: 1, each: 1 })
    expect((await hold({}, 'mixed')).body).toMatchObject({ allowed: false })
    expect(await left('mixed')).toEqual([1, 0, 0, 2])
    for (const each of [first, second]) await tell('release', each)
    expect(await left('mixed')).toEqual([3, 2, 1, 2])
  })

  it('stay held under the rules that a later deployment still has', async () => {
    const [all, each, , minute] = CONFIG.limits!.mixed!
    const held = await hold({}, 'mixed')
    const added = { ...minute!, name: 'new', by: ['region'] }
    const next = isolate({ limits: { mixed: [added, { ...each!, name: 'renamed' }, all!] as never } })
    nowMs += 5000
    expect(await tell('renew', held, next)).toMatchObject({ status: 200, body: { renewWithinMs: 9000 } })
    nowMs += 5000
    expect(await left('mixed')).toEqual([2, 1, 0, 3])
    expect((await tell('release', held, next)).status).toBe(200)
    expect(await left('mixed')).toEqual([3, 1, 0, 3])
    const jobs = CONFIG.limits!.jobs!
    expect(await tell('renew', held, isolate({ limits: { mixed: [added] as never, jobs } }))).toMatchObject(
      OVER,
    )
    const forged = { ...held.body.receipt, held: { all: 2 } }
    expect(await tell('renew', { body: { receipt: forged } } as ApiReply, next)).toMatchObject(
      REFUSED_RECEIPT,
    )
  })

  it('are not held without hold, or by a limit that counts none', async () => {
    const { body } = await api('POST limits/jobs', { token, body: ACCOUNT })
    expect(body).not.toHaveProperty('renewWithinMs')
    expect(await tell('renew', await hold({}, 'sms'))).toMatchObject(REFUSED_RECEIPT)
    expect((await hold({ hold: 1 })).status).toBe(400)
    expect((await hold({ cost: 0 })).body).not.toHaveProperty('renewWithinMs')
  })

  it('are not held where no limit counts them: hold is accepted, and the reply says why the others are not', async () => {
    const { sms } = CONFIG.limits!
    const without = isolate({ limits: { sms: sms! } })
    for (const more of [{}, { waitMs: 10 }]) {
      const { body, status } = await hold(more, 'sms', without)
      expect([status, body.allowed, body.receipt.costs]).toEqual([200, true, { day: 1 }])
      for (const absent of [body.renewWithinMs, body.receipt.held]) expect(absent).toBeUndefined()
    }
    expect(await left('sms')).toEqual([3])
    const held = await hold()
    for (const verb of ['renew', 'release']) {
      const body = { detail: expect.stringContaining('concurrency') }
      expect(await tell(verb, held, without)).toMatchObject({ status: 404, body })
    }
  })

  it('are waited for', async () => {
    const [one, other] = [apiOf(gateway, CONFIG), apiOf(gateway, CONFIG)]
    const first = await hold({ cost: 2 }, 'jobs', one)
    const waiting = hold({ waitMs: 20_000 }, 'jobs', other)
    await tell('release', first, one)
    expect((await waiting).body).toMatchObject({ allowed: true, receipt: { held: { 'at-once': 1 } } })
    expect((await hold({ waitMs: 10, cost: 2 }, 'jobs', other)).body.allowed).toBe(false)
  })

  it('are those of a signed receipt of the same limit and environment, and of a token with the scope', async () => {
    const held = await hold()
    const { receipt } = held.body
    for (const forged of [
      { ...receipt, id: 'aaaaaaaaaaaa' },
      { ...receipt, held: { 'at-once': 2 } },
      { ...receipt, identity: { account: '43' } },
      (await api('POST limits/jobs', { token, body: ACCOUNT })).body.receipt,
    ])
      for (const verb of ['renew', 'release'])
        expect(await api(`POST limits/jobs/${verb}`, { token, body: { receipt: forged } })).toMatchObject(
          REFUSED_RECEIPT,
        )
    expect(await api('POST limits/mixed/release', { token, body: { receipt } })).toMatchObject(
      REFUSED_RECEIPT,
    )
    const other = await tokenWith(gateway, ['limits:use:sms'])
    expect((await api('POST limits/jobs/release', { token: other, body: { receipt } })).status).toBe(403)
    const prod = isolate({ ...CONFIG, environment: 'prod' })
    const ofProd = await tokenWith(gateway, ['limits:use'], { environment: 'prod' })
    expect(await prod('POST limits/jobs/release', { token: ofProd, body: { receipt } })).toMatchObject(
      REFUSED_RECEIPT,
    )
    expect(await left()).toEqual([1])
    const own = await tokenWith(gateway, ['limits:use:jobs'])
    expect((await api('POST limits/jobs/release', { token: own, body: { receipt } })).status).toBe(200)
    expect(await left()).toEqual([2])
  })

  it('that the store may have counted are released if its reply was lost, or its decision comes to nothing', async () => {
    await hold({ cost: 0 })
    let lost = 1
    gateway.store.fault = (_, response, passOn) =>
      lost-- > 0 ? passOn(() => void response.destroy()) : passOn()
    // As `onStoreFailure` says.
    expect((await hold({}, 'jobs')).body).toMatchObject({ allowed: true, degraded: expect.any(String) })
    await expect.poll(() => left()).toEqual([2])
  })

  it('survive lost replies to renewals', async () => {
    const held = await hold()
    gateway.store.fault = (_, response, passOn) => passOn(() => void response.destroy())
    nowMs += TTL_MS - 1
    expect(await tell('renew', held)).toMatchObject({ status: 503, body: { change: 'unknown' } })
    gateway.store.fault = undefined
    nowMs += TTL_MS - 1
    expect((await tell('renew', held, isolate())).status).toBe(200)
    expect(await left()).toEqual([1])
  })

  it('are never more than the limit, of many holders at once, and all of them get their turn', async () => {
    const holders = sized<number>(300, 60)
    const config: Partial<ConfigInput> = {
      limits: { jobs: [{ name: 'at-once', algorithm: 'concurrency', limit: 10, ttl: '60s' }] },
    }
    const isolates = Array.from({ length: 3 }, () => apiOf(gateway, config))
    let [now, most] = [0, 0]
    // The first ones wait for each other, however slow the machine is.
    const full = Promise.withResolvers<void>()
    const work = async (i: number) => {
      const by = isolates[i % 3]!
      for (;;) {
        const { body } = await by('POST limits/jobs', { token, body: { hold: true, waitMs: 10_000 } })
        if (!body.allowed) continue
        now += 1
        most = Math.max(most, now)
        if (now === 10) full.resolve()
        await full.promise
        await sleep(1 + (i % 7))
        now -= 1
        await by('POST limits/jobs/release', { token, body: { receipt: body.receipt } })
        return
      }
    }
    await Promise.all(Array.from({ length: holders }, (_, i) => work(i)))
    expect(most).toBe(10)
  }, 60_000)
})

describeOnCluster('units in flight over HTTP', start => {
  const gateway = useGatewayOn(start, true)

  it('are held in all slots, and in none if one refuses', async () => {
    const api = apiOf(gateway, { ...CONFIG, store: { cluster: true } })
    const token = await tokenWith(gateway, ['limits:use'])
    const hold = (account: string) =>
      api('POST limits/mixed', { token, body: { identity: { account }, hold: true } })
    const held = await Promise.all(['a', 'b', 'c'].map(hold))
    expect(held.map(({ body }) => body.allowed)).toEqual([true, true, true])
    expect((await hold('d')).body.allowed).toBe(false)
    const tell = (verb: string, { body: { receipt } }: ApiReply) =>
      api(`POST limits/mixed/${verb}`, { token, body: { receipt } })
    for (const each of held) expect((await tell('renew', each)).status).toBe(200)
    for (const each of held) expect((await tell('release', each)).status).toBe(200)
    const left = async (account: string) => {
      const { body } = await api('POST limits/mixed/peek', { token, body: { identity: { account } } })
      return body.rules.slice(0, 2).map(({ remaining }: { remaining: number }) => remaining)
    }
    for (const account of ['a', 'd']) await expect.poll(() => left(account)).toEqual([3, 2])
  })
})
