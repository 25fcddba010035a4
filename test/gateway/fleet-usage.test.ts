/** Load shedding by fleet usage: requests in flight of all isolates, by class, through the whole gateway on Node. */
import { describe, expect, it, vi } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { prometheusText } from '../../src/metrics/prometheus.ts'
import { readTotals } from '../../src/ops/stats.ts'
import { switchRule } from '../../src/ops/switches.ts'
import { type App, type TestPlatform, useGateway } from '../support/gateway.ts'
import { PATIENT } from '../support/patience.ts'

const RULES: RuleInput[] = [
  { name: 'hour', by: 'address', algorithm: 'fixed-window', limit: 1000, period: '1h' },
]
const SHEDDING: NonNullable<ConfigInput['shedding']> = {
  classes: [
    { name: 'critical', match: { methods: ['POST'] } },
    { name: 'reads' },
    { name: 'test', match: { plans: ['test'] } },
  ],
  fleetUsage: { capacity: 10, reserved: { critical: 0.2, reads: 0.4 } },
}
const CONFIG = {
  rules: RULES,
  shedding: SHEDDING,
  plans: ['free', 'test'],
  credentials: { accept: ['api-key', 'anonymous'] },
} satisfies Partial<ConfigInput>

const SWITCH = { by: 'ops', at: new Date(0) }

/** Sends requests that stay in flight: their bodies are not read. */
async function hold(app: App, count: number, init: Parameters<App>[1] = {}): Promise<Response[]> {
  const replies: Response[] = []
  for (let i = 0; i < count; i++) replies.push(await app('/', init))
  return replies
}

const statusesOf = (replies: readonly Response[]) => replies.map(({ status }) => status)
const times = (count: number, status: number) => new Array<number>(count).fill(status)

/**
 * Delayed reports are dropped. Otherwise the app of one test would report its units in the next one, whose Redis is
 * empty, with an extra request to the store.
 */
const NEVER: NonNullable<TestPlatform['timer']> = () => () => {}

describe('load shedding by fleet usage', () => {
  const gateway = useGateway()
  const appOf: typeof gateway.app = (config, platform) => gateway.app(config, { timer: NEVER, ...platform })
  const informed: typeof gateway.informed = (config, platform) =>
    gateway.informed(config, { timer: NEVER, ...platform })

  it('refuses a class when its part of the capacity is full, and keeps the reserved part for more important ones', async () => {
    const app = appOf(CONFIG)
    expect(statusesOf(await hold(app, 9))).toEqual([...times(8, 200), 503])
    expect(statusesOf(await hold(app, 3, { method: 'POST' }))).toEqual([200, 200, 503])
  })

  describe('with a critical class', () => {
    const [first, ...others] = SHEDDING.classes
    const critical = {
      ...CONFIG,
      shedding: { ...SHEDDING, classes: [{ ...first!, critical: true }, ...others] },
    } satisfies Partial<ConfigInput>

    it('never refuses it, and counts all of its requests, so that others get no room before enough of them have ended', async () => {
      const app = appOf(critical)
      const held = await hold(app, 14, { method: 'POST' })
      expect(statusesOf(held)).toEqual(times(14, 200))
      expect(statusesOf(await hold(app, 1))).toEqual([503])
      for (const reply of held.slice(0, 4)) await reply.text()
      // 10 are in flight, which is the capacity.
      expect(statusesOf(await hold(app, 1))).toEqual([503])
      await held[4]!.text()
      const reads = await hold(app, 2)
      expect(statusesOf(reads)).toEqual([200, 503])
      for (const reply of [...reads, ...held.slice(5)]) await reply.text()
    })

    it('counts its requests in a metric, with those that exceed the capacity apart', async () => {
      const wakers: (() => void)[] = []
      const timer = (_: number, wake: () => void) => {
        wakers.push(wake)
        return () => {}
      }
      const app = appOf({ ...critical, metrics: {} }, { reporting: { timer } })
      for (const reply of await hold(app, 12, { method: 'POST' })) await reply.text()
      for (const wake of wakers.splice(0)) wake()
      await vi.waitFor(async () => {
        const { sums, measured } = await readTotals(gateway.admin)
        expect(sums.critical).toEqual({ critical: { within: 10, over: 2 } })
        expect(measured.usage.get('fleet-usage')).toBe(1)
        expect(prometheusText(sums)).toContain(
          'sluice_critical_requests_total{class="critical",capacity="over"} 2\n',
        )
      }, PATIENT)
    })

    describe('of a plan', () => {
      const ofPlan = {
        ...{ ...CONFIG, plans: ['test', 'pro'], rules: [] },
        shedding: {
          classes: [{ name: 'paying', match: { plans: ['pro'] }, critical: true }, { name: 'others' }],
          fleetUsage: { capacity: 10, reserved: { paying: 0.2 } },
        },
      } satisfies Partial<ConfigInput>
      const atOnce = (app: App, requests: number, key: string) =>
        Promise.all(times(requests, 0).map(() => app('/', { key })))

      it('is not the class of a key with another plan, while the isolate does not know that', async () => {
        const app = appOf(ofPlan)
        const replies = await atOnce(app, 30, await gateway.key('acme', 'test'))
        expect(statusesOf(replies).sort()).toEqual([...times(10, 200), ...times(20, 503)])
        for (const reply of replies) await reply.text()
      })

      it('is never refused, also while the isolate does not know the plan of the key', async () => {
        const app = appOf(ofPlan)
        const replies = await atOnce(app, 30, await gateway.key('acme', 'pro'))
        expect(statusesOf(replies)).toEqual(times(30, 200))
        for (const reply of replies) await reply.text()
      })
    })

    it('admits it without the store, although fleet usage refuses all others then', async () => {
      const closed = { ...SHEDDING.fleetUsage!, onStoreFailure: 'closed' as const }
      const app = appOf({ ...critical, shedding: { ...critical.shedding, fleetUsage: closed } })
      gateway.store.fault = (_, response) => void response.destroy()
      expect(statusesOf(await hold(app, 1))).toEqual([503])
      expect(statusesOf(await hold(app, 12, { method: 'POST' }))).toEqual(times(12, 200))
    })
  })

  it('counts a class in its own part and in those of all more important classes', async () => {
    const app = appOf(CONFIG)
    const key = await gateway.key('acme', 'test')
    // The isolate does not know the plan of the key yet, so it counts the first request in the most important class
    // that is possible.
    expect(statusesOf(await hold(app, 1, { key }))).toEqual([200])
    expect(statusesOf(await hold(app, 5, { key }))).toEqual([...times(4, 200), 503])
    expect(statusesOf(await hold(app, 4))).toEqual([...times(3, 200), 503])
    expect(statusesOf(await hold(app, 3, { method: 'POST' }))).toEqual([200, 200, 503])
  })

  it('refuses the least important of several classes without a reserved part first, also if it matches first', async () => {
    const app = appOf({
      ...CONFIG,
      shedding: {
        classes: [
          { name: 'test', match: { path: '/test' } },
          { name: 'writes', match: { methods: ['POST'] } },
          { name: 'reads' },
        ],
        importance: ['writes', 'reads', 'test'],
        fleetUsage: { capacity: 10, reserved: {} },
      },
    })
    const statusOf = async (path: string, init = {}) => (await app(path, init)).status
    await hold(app, 8, { method: 'POST' })
    expect(await statusOf('/test', { method: 'POST' })).toBe(503)
    expect(await statusOf('/')).toBe(200)
    expect(await statusOf('/')).toBe(503)
    expect(await statusOf('/', { method: 'POST' })).toBe(200)
    expect(await statusOf('/', { method: 'POST' })).toBe(503)
  })

  it('admits no class while it refuses a more important one, also of another level', async () => {
    const app = appOf({
      ...CONFIG,
      shedding: {
        classes: [
          { name: 'critical', match: { methods: ['POST'] } },
          { name: 'reads', match: { path: '/reads' } },
          { name: 'test' },
        ],
        fleetUsage: { capacity: 10, reserved: { reads: 0.2 } },
      },
    })
    const statusOf = async (path: string, init = {}) => (await app(path, init)).status
    await hold(app, 7)
    expect([await statusOf('/reads'), await statusOf('/reads')]).toEqual([200, 200])
    expect(await statusOf('/reads')).toBe(503)
    expect(await statusOf('/')).toBe(503)
    expect(await statusOf('/', { method: 'POST' })).toBe(200)
  })

  it('sheds a POST of the test plan before a GET of others, with the example of the docs', async () => {
    const app = appOf({
      ...CONFIG,
      shedding: {
        classes: [
          { name: 'test', match: { plans: ['test'] } },
          { name: 'critical', match: { methods: ['POST'], path: '/charges{/*}?' } },
          { name: 'writes', match: { methods: ['POST', 'PUT', 'PATCH', 'DELETE'] } },
          { name: 'reads' },
        ],
        importance: ['critical', 'writes', 'reads', 'test'],
        fleetUsage: { capacity: 20, reserved: { critical: 0.2 } },
      },
    })
    const key = await gateway.key('acme', 'test')
    await (await app('/', { key })).text()
    await hold(app, 14)
    expect((await app('/charges', { method: 'POST', key })).status).toBe(503)
    expect((await app('/')).status).toBe(200)
    expect((await app('/')).status).toBe(503)
    expect((await app('/charges', { method: 'POST' })).status).toBe(200)
  })

  it('counts all isolates, and a unit is free when its response has ended', async () => {
    const [a, b] = [appOf(CONFIG), appOf(CONFIG)]
    const held = await hold(a, 8)
    expect(statusesOf(await hold(b, 1))).toEqual([503])
    await held[0]!.text()
    await vi.waitFor(async () => expect((await b('/')).status).toBe(200), PATIENT)
  })

  it('replies with 503 and a problem type of the IETF draft, and reveals neither load nor capacity', async () => {
    const app = appOf(CONFIG)
    const [first] = await hold(app, 8)
    expect(first!.headers.get('RateLimit-Policy')).toBe('"hour";q=1000;w=3600')
    const refused = await app('/')
    expect(refused.status).toBe(503)
    expect(refused.headers.get('Retry-After')).toBe('1')
    expect(refused.headers.get('RateLimit-Policy')).toBe('"hour";q=1000;w=3600')
    expect(await refused.json()).toEqual({
      type: 'https://iana.org/assignments/http-problem-types#temporary-reduced-capacity',
      title: 'Temporary Reduced Capacity',
      status: 503,
      detail: 'The service is too busy for this request now. Nothing was charged. Try again in 1 s.',
    })
  })

  it('charges no other limit for a request that it refuses', async () => {
    const app = appOf(CONFIG)
    await hold(app, 8)
    for (let i = 0; i < 5; i++) await app('/')
    const admitted = await app('/', { method: 'POST' })
    expect(admitted.headers.get('RateLimit')).toMatch(/^"hour";r=991;/)
  })

  it('is secondary to a limit of the caller: the reply is 429, with the time of that limit', async () => {
    const app = appOf({
      ...CONFIG,
      rules: [{ name: 'second', by: 'address', algorithm: 'gcra', limit: 8, period: '80s' }],
    })
    await hold(app, 8)
    const refused = await app('/')
    expect(refused.status).toBe(429)
    // Not 15 s, the time after which units of dead isolates are free.
    expect(Number(refused.headers.get('Retry-After'))).toBeLessThanOrEqual(10)
    expect(await refused.json()).toMatchObject({ 'violated-policies': ['second'] })
  })

  it('takes one HTTP request to the store, like any other decision', async () => {
    const app = await informed(CONFIG)
    await (await app('/')).text()
    gateway.store.count()
    await app('/')
    expect(gateway.store.count()).toBe(1)
  })

  it('refuses nothing in shadow mode, and is switched by its name', async () => {
    const shadow = { ...SHEDDING, fleetUsage: { ...SHEDDING.fleetUsage!, mode: 'shadow' as const } }
    expect(statusesOf(await hold(appOf({ ...CONFIG, shedding: shadow }), 12))).toEqual(times(12, 200))
    await switchRule(gateway.admin, 'fleet-usage', { ...SWITCH, mode: 'off' })
    expect(statusesOf(await hold(await informed(CONFIG), 12))).toEqual(times(12, 200))
  })

  it.each<[string, string, Record<string, string>]>([
    ['a header that claims another method', '/', { 'x-http-method-override': 'POST' }],
    ['an encoded segment', '/charges/..%2freads', {}],
    ['an encoded path', '/reads/..%2fcharges%2f7', {}],
  ])(
    'cannot be avoided with %s: the least important reading of a request counts',
    async (_, path, headers) => {
      const classes = [
        { name: 'critical', match: { methods: ['POST'] } },
        { name: 'charges', match: { path: '/charges/*' } },
        { name: 'reads' },
      ]
      const fleetUsage = { capacity: 10, reserved: { critical: 0.4, charges: 0.4 } }
      const app = appOf({ ...CONFIG, shedding: { classes, fleetUsage } })
      await hold(app, 2)
      expect((await app(path, { headers })).status).toBe(503)
      expect((await app('/charges/7')).status).toBe(200)
      expect((await app('/charges/7', { method: 'POST' })).status).toBe(200)
    },
  )

  it('is enforced for a share of callers, the same ones in every class', async () => {
    const fleetUsage = { capacity: 10, reserved: { critical: 0.2, reads: 0.3 }, enforce: 0.5 }
    const app = appOf({ ...CONFIG, shedding: { ...SHEDDING, fleetUsage } })
    await hold(app, 12, { address: '192.0.2.250' })
    const refused = []
    for (let i = 0; i < 40; i++) {
      const address = `192.0.2.${i}`
      const statuses = [await app('/', { address }), await app('/', { address, method: 'POST' })].map(
        ({ status }) => status,
      )
      expect(new Set(statuses).size).toBe(1)
      if (statuses[0] === 503) refused.push(address)
    }
    expect(refused.length).toBeGreaterThan(8)
    expect(refused.length).toBeLessThan(32)
  })

  it('takes one unit per request, at any cost of the route, and none if nothing is limited', async () => {
    const routes = [
      { name: 'reports', match: { path: '/reports' }, cost: 5 },
      { name: 'free', match: { path: '/free' }, limits: false },
    ]
    const app = appOf({ ...CONFIG, routes })
    const replies = []
    for (let i = 0; i < 8; i++) replies.push(await app('/reports'), await app('/free'))
    expect(statusesOf(replies)).toEqual(times(16, 200))
    expect((await app('/reports')).status).toBe(503)
    expect((await app('/free')).status).toBe(200)
  })
})
