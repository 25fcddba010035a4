/**
 * Load shedding by worker utilization through the whole gateway on Node, by a clock that the tests move: a simulated
 * minute takes no time.
 */
import { describe, expect, it, vi } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { importKey } from '../../src/ops/keys.ts'
import { switchRule } from '../../src/ops/switches.ts'
import { readTopCallers } from '../../src/ops/top-callers.ts'
import { type App, type TestPlatform, useGateway } from '../support/gateway.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'

const SHEDDING: NonNullable<ConfigInput['shedding']> = {
  classes: [
    { name: 'critical', match: { methods: ['POST'] } },
    { name: 'reads' },
    { name: 'test', match: { path: '/test' } },
  ],
  workerUtilization: { signals: ['header'] },
}
const CONFIG = {
  rules: [{ name: 'hour', by: 'address', algorithm: 'fixed-window', limit: 100_000, period: '1h' }],
  shedding: SHEDDING,
  credentials: { accept: ['anonymous'] },
} satisfies Partial<ConfigInput>
/** Four times as fast, so that tests make fewer requests. */
const QUICK = { signals: ['header' as const], after: '7s' as const, within: '21s' as const }
const FAST = { ...CONFIG, shedding: { ...SHEDDING, workerUtilization: QUICK } }
const ADDRESSES = Array.from({ length: 12 }, (_, i) => `192.0.2.${i}`)
const SWITCH = { by: 'ops', at: new Date(0) }

describe('load shedding by worker utilization', () => {
  const gateway = useGateway()
  let fleets = 0

  /** Isolates of one fleet. In each second that passes, each of them has one request that the origin answers. */
  function fleetOf(config: Partial<ConfigInput> & typeof CONFIG, isolates = 2, more: TestPlatform = {}) {
    // Each fleet starts a day after the one before it: later than any report from the previous test.
    fleets += 1
    let now = 1_700_000_000_000 + fleets * 86_400_000
    const platform: TestPlatform = { clock: { now: () => now }, reportAt: () => now * 1000, ...more }
    const apps = Array.from({ length: isolates }, () => gateway.app(config, platform))
    return {
      apps,
      now: () => now,
      pass: (ms: number) => {
        now += ms
      },
      async seconds(count: number, utilization?: number) {
        const query = utilization === undefined ? '' : `?utilization=${utilization}`
        for (let i = 0; i < count; i++) {
          for (const app of apps)
            await (await app(`/${query}`, { method: 'POST', address: '192.0.2.250' })).text()
          now += 1000
        }
      },
    }
  }

  /** The callers whose requests are shed. */
  async function shedAt(app: App, path = '/', init: RequestInit = {}): Promise<string[]> {
    const shed = []
    for (const address of ADDRESSES) {
      const reply = await app(path, { ...init, address })
      await reply.text()
      if (reply.status === 503) shed.push(address)
    }
    return shed
  }

  it('sheds nothing for 28 s, then more and more of the least important class, then of the next, never the first', async () => {
    const { apps, seconds } = fleetOf(CONFIG, 1)
    const [app] = apps as [App]
    await seconds(28, 1)
    expect(await shedAt(app, '/test')).toEqual([])
    await seconds(24, 1)
    const some = await shedAt(app, '/test')
    expect(some.length).toBeGreaterThan(0)
    expect(some.length).toBeLessThan(ADDRESSES.length)
    expect(await shedAt(app)).toEqual([])
    await seconds(44, 1)
    expect(await shedAt(app, '/test')).toEqual(ADDRESSES)
    expect((await shedAt(app)).length).toBeLessThan(ADDRESSES.length)
    await seconds(54, 1)
    expect(await shedAt(app)).toEqual(ADDRESSES)
    expect(await shedAt(app, '/', { method: 'POST' })).toEqual([])
  })

  it('gives a caller the same verdict in every isolate at the same pressure, and keeps shed callers shed as pressure grows', async () => {
    const { apps, seconds } = fleetOf(FAST)
    await seconds(13, 1)
    const [one, other] = [await shedAt(apps[0]!, '/test'), await shedAt(apps[1]!, '/test')]
    expect(one.length).toBeGreaterThan(0)
    expect(other).toEqual(one)
    await seconds(3, 1)
    expect(await shedAt(apps[1]!, '/test')).toEqual(expect.arrayContaining(one))
  })

  it('admits everything again just as slowly when the origin has recovered', async () => {
    const { apps, seconds } = fleetOf(FAST)
    await seconds(18, 1)
    expect((await shedAt(apps[0]!, '/test')).length).toBeGreaterThan(6)
    await seconds(5, 0.8)
    expect((await shedAt(apps[0]!, '/test')).length).toBeGreaterThan(6)
    await seconds(9, 0)
    const fewer = await shedAt(apps[0]!, '/test')
    expect(fewer.length).toBeGreaterThan(0)
    expect(fewer.length).toBeLessThan(ADDRESSES.length)
    await seconds(9, 0)
    expect(await shedAt(apps[0]!, '/test')).toEqual([])
  })

  it('admits everything again without a signal', async () => {
    const { apps, seconds } = fleetOf(FAST)
    await seconds(18, 1)
    await seconds(22)
    expect(await shedAt(apps[0]!, '/test')).toEqual([])
  })

  it('replies with 503 without a trip to the store, with the time until the caller is admitted, and charges nothing', async () => {
    const fleet = fleetOf(FAST, 1)
    const [app] = fleet.apps as [App]
    await fleet.seconds(32, 1)
    gateway.store.count()
    const refused = await app('/', { address: ADDRESSES[0]! })
    expect(gateway.store.count()).toBe(0)
    expect(refused.status).toBe(503)
    const seconds = Number(refused.headers.get('Retry-After'))
    expect(refused.headers.get('RateLimit')).toBeNull()
    expect(await refused.json()).toEqual({
      type: 'https://iana.org/assignments/http-problem-types#temporary-reduced-capacity',
      title: 'Temporary Reduced Capacity',
      status: 503,
      detail: `The service is too busy for this request now. Nothing was charged. Try again in ${seconds} s.`,
    })
    // A measurement is used only after the end of its second, so one or two seconds later.
    await fleet.seconds(seconds - 1, 0)
    expect((await app('/', { address: ADDRESSES[0]! })).status).toBe(503)
    await fleet.seconds(3, 0)
    expect((await app('/', { address: ADDRESSES[0]! })).status).toBe(200)
  })

  it('removes the header of the origin, and ignores an invalid one', async () => {
    const { apps, seconds } = fleetOf(FAST, 1)
    const [app] = apps as [App]
    const reply = await app('/?utilization=1', { address: ADDRESSES[0]! })
    expect(reply.headers.has('x-utilization')).toBe(false)
    await seconds(15, 95)
    expect(await shedAt(app, '/test')).toEqual([])
  })

  it('removes the header from replies to preflights, which say nothing about the origin', async () => {
    const { apps } = fleetOf(FAST, 1)
    const headers = { origin: 'https://app.example.com', 'access-control-request-method': 'PUT' }
    const reply = await apps[0]!('/?utilization=1', { method: 'OPTIONS', headers })
    expect([reply.status, reply.headers.has('x-utilization')]).toEqual([200, false])
  })

  it('makes a trip for a key of an unknown consumer, because the config may allow the consumer without limits', async () => {
    await importKey(gateway.admin, { key: 'an-old-key-of-a-partner' }, { consumer: 'partner' })
    const credentials = { opaqueKeys: {}, accept: ['opaque-key', 'anonymous'] }
    const { apps, seconds } = fleetOf({
      ...FAST,
      credentials,
      allow: { consumers: ['partner'] },
    } as typeof FAST)
    await seconds(32, 1)
    const headers = { 'x-api-key': 'an-old-key-of-a-partner' }
    for (const app of apps) for (const _ of [1, 2]) expect((await app('/', { headers })).status).toBe(200)
    expect((await apps[0]!('/', { headers: { 'x-api-key': 'a-key-that-is-made-up' } })).status).toBe(401)
  })

  it('counts the requests in flight of the whole fleet, not only of one isolate, with any other rules', async () => {
    const rules = [
      { name: 'origin', by: 'global', algorithm: 'concurrency', limit: 10, adaptive: { initial: 10 } },
    ]
    const fleetUsage = { capacity: 1000 }
    const workerUtilization = { ...QUICK, signals: ['in-flight' as const] }
    const shedding = { ...SHEDDING, fleetUsage, workerUtilization }
    // Ends are not reported later, because the next test counts the requests to the store.
    const { apps, seconds } = fleetOf({ ...FAST, rules, shedding } as unknown as typeof FAST, 1, {
      timer: () => () => {},
    })
    const held = []
    for (let i = 0; i < 9; i++) held.push(await apps[0]!('/', { method: 'POST' }))
    await seconds(32)
    for (const reply of held) await reply.text()
    expect(await shedAt(apps[0]!, '/test')).toEqual([])
  })

  it('makes no extra HTTP request to the store', async () => {
    const { seconds } = fleetOf(FAST, 1)
    await seconds(1, 1)
    gateway.store.count()
    await seconds(10, 1)
    expect(gateway.store.count()).toBe(10)
  })

  it('sheds nothing in shadow mode, and reports the requests that it would have shed', async () => {
    const points: string[][] = []
    const analytics = { writeDataPoint: ({ blobs }: { blobs: string[] }) => void points.push(blobs) }
    const shadow = { ...QUICK, mode: 'shadow' as const }
    const shedding = { ...SHEDDING, workerUtilization: shadow }
    const { apps, seconds } = fleetOf({ ...FAST, shedding }, 1, { reporting: { analytics } })
    await seconds(32, 1)
    points.length = 0
    expect(await shedAt(apps[0]!)).toEqual([])
    // Outcome, and the shadow rules that would have refused.
    expect(new Set(points.map(blobs => `${blobs[0]} ${blobs[5]}`))).toEqual(
      new Set(['allowed worker-utilization-reads']),
    )
  })

  it('is switched by its name, even if every request is shed and none makes a trip', async () => {
    const { apps, seconds, pass } = fleetOf(FAST, 1)
    const [app] = apps as [App]
    await seconds(32, 1)
    expect(await shedAt(app)).toEqual(ADDRESSES)
    await switchRule(gateway.admin, 'worker-utilization', { ...SWITCH, mode: 'off' })
    pass(2000)
    // The first request reads the switches in the background.
    expect((await app('/', { address: ADDRESSES[0]! })).status).toBe(503)
    await vi.waitFor(
      async () => expect((await app('/', { address: ADDRESSES[0]! })).status).toBe(200),
      PATIENT_MS,
    )
    expect(await shedAt(app)).toEqual([])
  })

  it('names the callers that it sheds if the store has admitted them here before, and no others', async () => {
    const wakers: (() => void)[] = []
    const timer = (_: number, wake: () => void) => {
      wakers.push(wake)
      return () => {}
    }
    const atOnce = { name: 'at-once', by: 'consumer', algorithm: 'concurrency', limit: 1, mode: 'shadow' }
    const credentials = { accept: ['api-key', 'anonymous'] }
    const { apps, seconds, now } = fleetOf(
      { ...FAST, rules: [...FAST.rules, atOnce], credentials } as unknown as typeof FAST,
      1,
      { timer: () => () => {}, reporting: { timer } },
    )
    const [app] = apps as [App]
    const [acme, stranger] = [await gateway.key('acme'), mintApiKey('mallory')]
    const held = [await app('/', { key: acme }), await app('/', { key: acme })]
    await seconds(32, 1)
    for (const key of [acme, acme, stranger]) expect((await app('/', { key })).status).toBe(503)
    expect((await app('/', { address: ADDRESSES[0]! })).status).toBe(503)
    for (const wake of wakers.splice(0)) wake()
    await vi.waitFor(async () => {
      const { rules } = await readTopCallers(gateway.admin, new Date(now()), new Date(now()))
      const named = rules.map(({ rule, callers }) => [
        rule,
        callers.map(({ name, atMost }) => [name, atMost]),
      ])
      expect(Object.fromEntries(named)).toEqual({
        'worker-utilization-reads': expect.arrayContaining([
          ['acme', 2],
          ['-', 2],
        ]),
        'at-once': [['acme', 1]],
      })
    }, PATIENT)
    for (const reply of held) await reply.text()
  })

  it('never sheds callers that the config allows without limits, or requests on routes without limits', async () => {
    const routes = [{ name: 'free', match: { path: '/free' }, limits: false }]
    const { apps, seconds } = fleetOf(
      { ...FAST, allow: { addresses: [ADDRESSES[3]!] }, routes } as typeof CONFIG,
      1,
    )
    await seconds(32, 1)
    expect(await shedAt(apps[0]!)).toEqual(ADDRESSES.filter(address => address !== ADDRESSES[3]))
    expect(await shedAt(apps[0]!, '/free')).toEqual([])
  })
})
