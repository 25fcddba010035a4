/** Leases of an isolate: requests without a trip, within the limits, and with the same headers as others. */
import { beforeEach, describe, expect, it, vi } from 'vitest'
import type { Timer } from '../../src/clock.ts'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { prometheusText } from '../../src/metrics/prometheus.ts'
import { statsText } from '../../src/node/cli/stats-output.ts'
import { blockConsumer, setPlan } from '../../src/ops/consumers.ts'
import { revokeKey } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { importKey } from '../../src/ops/keys.ts'
import { peekCaller, resetCaller } from '../../src/ops/limits.ts'
import { compileOverride, setOverride } from '../../src/ops/overrides.ts'
import { readStats } from '../../src/ops/stats.ts'
import { killLimits, switchRule } from '../../src/ops/switches.ts'
import { createSwitchBoard } from '../../src/switches/live.ts'
import { configOf } from '../support/engines.ts'
import { type App, type TestPlatform, useGateway } from '../support/gateway.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { timersBy } from '../support/quick-time.ts'

const LIMIT = 10_000
const ONE: RuleInput = {
  name: 'one',
  by: 'consumer',
  algorithm: 'fixed-window',
  limit: LIMIT,
  period: '300d',
}
const LEASE = { lease: { for: '1s' } } as const
/** After this many requests at one instant, the isolate holds units for more. */
const WARM = 25

type Settings = Partial<ConfigInput> & Pick<ConfigInput, 'rules'>

const gateway = useGateway()

/** A new consumer for each test, because isolates of earlier tests may still give units back. */
let consumer: string
let consumers = 0
/** The clock of the isolate; limits follow that of the store. */
let time: number
const clock = { now: () => time }
beforeEach(() => {
  consumer = `consumer${++consumers}`
  // At the start of an interval of the rate measurement.
  time = Math.ceil(Date.now() / 1000) * 1000
})

const timers = timersBy(() => time)

/** Lets time pass in the isolates that give units back. */
function pass(ms: number): void {
  time += ms
  timers.ring()
}

/**
 * Units left at the end of leases are given back by a timer. In most tests they are not, because the trips would be
 * counted.
 */
const GIVING_BACK: TestPlatform = { timer: timers.timer }

/** An isolate with the clock that the tests move. Its copy of the switches never becomes stale. */
const appWith = (config: Settings, platform: TestPlatform = {}) =>
  gateway.app(
    { ...LEASE, ...config },
    { clock, board: createSwitchBoard({ now: () => 0 }), timer: () => () => {}, ...platform },
  )

/** The number of HTTP requests to the store during some work. */
async function tripsOf(work: () => Promise<unknown>): Promise<number> {
  gateway.store.count()
  await work()
  return gateway.store.count()
}

type Init = Parameters<App>[1]

/**
 * Sends requests one after the other.
 *
 * @returns the number of replies by status
 */
async function send(app: App, requests: number, init: Init, path = '/'): Promise<Record<number, number>> {
  const statuses: Record<number, number> = {}
  for (let i = 0; i < requests; i++) {
    const { status } = await app(path, init)
    statuses[status] = (statuses[status] ?? 0) + 1
  }
  return statuses
}

/** An isolate that holds leased units of the caller. */
async function warm(config: Settings, init: Init, platform?: TestPlatform): Promise<App> {
  const app = appWith(config, platform)
  expect(await send(app, WARM, init)).toEqual({ 200: WARM })
  expect(await tripsOf(() => app('/', init))).toBe(0)
  return app
}

/** The units that are spent according to the store, by rule. */
async function spent(
  config: Settings,
  who: Parameters<typeof peekCaller>[2] = { consumer },
): Promise<Record<string, number>> {
  const { standings } = await peekCaller(gateway.admin, configOf(config), who)
  return Object.fromEntries(standings.map(({ rule, remaining }) => [rule.name, rule.quota.burst - remaining]))
}

/** Ends the leases, and waits until their remaining units are given back and the store counts the expected units. */
async function expectSpent(
  config: Settings,
  expected: Record<string, number>,
  who?: Parameters<typeof spent>[1],
) {
  pass(1000)
  await vi.waitFor(async () => {
    pass(100)
    expect(await spent(config, who)).toEqual(expected)
  }, PATIENT)
}

describe('a caller with a lease', () => {
  it('costs few trips, and unused units are given back when the lease has ended', async () => {
    const config = { rules: [ONE] }
    const app = appWith(config, GIVING_BACK)
    const key = await gateway.key(consumer)
    const trips = await tripsOf(async () => expect(await send(app, 80, { key })).toEqual({ 200: 80 }))
    expect(trips).toBeLessThan(20)
    expect(gateway.origin.received.length).toBe(80)
    expect((await spent(config)).one).toBeGreaterThan(80)
    await expectSpent(config, { one: 80 })
  })

  it('returns units with its next decision, in the same HTTP request', async () => {
    const config = { rules: [ONE] }
    const key = await gateway.key(consumer)
    const app = await warm(config, { key })
    // So late that the next request takes no lease.
    time += 3000
    expect(await tripsOf(() => app('/', { key }))).toBe(1)
    expect(await spent(config)).toEqual({ one: WARM + 2 })
  })

  it('gets the headers that the store would have sent, and so does the origin', async () => {
    const app = appWith({ rules: [ONE] })
    const key = await gateway.key(consumer)
    let names: string[] | undefined
    for (let i = 1; i <= 50; i++) {
      const { headers } = await app('/', { key })
      expect(headers.get('ratelimit')).toMatch(new RegExp(`^"one";r=${LIMIT - i};t=\\d+$`))
      expect(headers.get('ratelimit-policy')).toBe(`"one";q=${LIMIT};w=25920000`)
      names ??= [...headers.keys()]
      expect([...headers.keys()]).toEqual(names)
    }
    const sent = gateway.origin.received.map(({ headers: { 'x-request-id': id, ...headers } }) => headers)
    expect(sent[0]).toMatchObject({ 'x-consumer-id': consumer, 'x-consumer-plan': 'free' })
    for (const headers of sent) expect(headers).toEqual(sent[0])
  })

  it('pays the cost of each request', async () => {
    const config = {
      rules: [ONE],
      routes: [{ name: 'dear', match: { path: '/dear' }, cost: 7 }],
    }
    const app = appWith(config, GIVING_BACK)
    const key = await gateway.key(consumer)
    let sum = 0
    const trips = await tripsOf(async () => {
      for (let i = 0; i < 120; i++) {
        const [path, cost] = (
          [
            ['/', 1],
            ['/dear', 7],
            ['/', 1],
          ] as const
        )[i % 3]!
        sum += cost
        const { status, headers } = await app(path, { key })
        expect([status, headers.get('ratelimit')?.split(';')[1]]).toEqual([200, `r=${LIMIT - sum}`])
      }
    })
    expect(trips).toBeLessThan(60)
    await expectSpent(config, { one: sum })
  })

  it('spends units of all its rules together, with any algorithms', async () => {
    const common = { by: 'consumer', limit: LIMIT, period: '300d' } as const
    const config: Settings = {
      rules: [
        ONE,
        { ...common, name: 'sliding', algorithm: 'sliding-window' },
        { ...common, name: 'bucket', algorithm: 'token-bucket', burst: 5000 },
        { ...common, name: 'cells', algorithm: 'gcra', burst: 4000 },
        { ...common, name: 'shadow', algorithm: 'fixed-window', limit: 10, mode: 'shadow' },
        { ...common, name: 'credential', by: 'credential', algorithm: 'fixed-window' },
      ],
    }
    const app = appWith(config, GIVING_BACK)
    const key = await gateway.key(consumer)
    const trips = await tripsOf(async () => expect(await send(app, 80, { key })).toEqual({ 200: 80 }))
    expect(trips).toBeLessThan(30)
    await expectSpent(config, { one: 80, sliding: 80, bucket: 80, cells: 80, shadow: 10 })
  })

  it('departs evenly from a queue', async () => {
    const slept: number[] = []
    const sleep = async (ms: number) => void slept.push(ms)
    const queue: RuleInput = {
      ...ONE,
      name: 'queue',
      algorithm: 'leaky-bucket',
      limit: 10,
      period: '1s',
      queue: 500,
    }
    const config = { rules: [ONE, queue] }
    const app = appWith(config, { sleep, ...GIVING_BACK })
    const key = await gateway.key(consumer)
    const startedAt = performance.now()
    const trips = await tripsOf(async () => expect(await send(app, 100, { key })).toEqual({ 200: 100 }))
    const tookMs = performance.now() - startedAt
    expect(trips).toBeLessThan(45)
    // Never faster than the rate. The isolate's clock does not move but the store's does, so the delays that the
    // store reports later are shorter by the elapsed time.
    const mostUndelayed = 1 + Math.floor((tookMs + 1) / 100)
    expect(slept.length).toBeGreaterThanOrEqual(100 - mostUndelayed)
    expect(slept.length).toBeLessThan(100)
    // Departures from a lease are evenly spaced. Those from the next one are as much earlier as the store's clock has moved.
    const even = slept.filter((ms, i) => i > 0 && Math.abs(ms - slept[i - 1]! - 100) <= 1)
    expect(even.length).toBeGreaterThanOrEqual(slept.length - 1 - 2 * trips)
    slept.sort((a, b) => a - b)
    for (const [i, ms] of slept.entries()) expect(ms).toBeGreaterThanOrEqual((i + 1) * 100 - tookMs - 1)
    // A place in a queue is not given back.
    pass(1000)
    await vi.waitFor(async () => {
      pass(100)
      expect((await spent(config)).one).toBe(100)
    }, PATIENT)
  })

  it('makes a trip each time if an applicable rule has no lease', async () => {
    const app = appWith({
      rules: [ONE, { ...ONE, name: 'other', lease: false, match: { path: '/other' } }],
    })
    const key = await gateway.key(consumer)
    expect(await tripsOf(() => send(app, 20, { key }, '/other'))).toBe(20)
    expect(await tripsOf(() => send(app, 40, { key }))).toBeLessThan(20)
    expect(await tripsOf(() => send(app, 20, { key }, '/other'))).toBe(20)
  })

  it('also works with calendar windows', async () => {
    const config: Settings = { rules: [{ ...ONE, period: 'month' } as RuleInput] }
    const app = appWith(config, GIVING_BACK)
    const key = await gateway.key(consumer)
    expect(await tripsOf(() => send(app, 50, { key }))).toBeLessThan(20)
    await expectSpent(config, { one: 50 })
  })

  it('never exceeds the limit, and reaches its last unit', async () => {
    const config = { rules: [{ ...ONE, limit: 150 }] }
    const [app, other] = [appWith(config), appWith(config)]
    const key = await gateway.key(consumer)
    let admitted = 0
    for (let i = 0; i < 200; i++)
      admitted += (await (i % 3 ? app : other)('/', { key })).status === 200 ? 1 : 0
    // An isolate that still holds units admits its own callers with them while the other isolate is refused.
    expect(admitted).toBeLessThanOrEqual(150)
    expect(admitted).toBeGreaterThanOrEqual(140)
    expect(gateway.origin.received.length).toBe(admitted)
  })
})

describe('a clock', () => {
  it('that falls by less than a second, as between requests on Workers, does not end a lease', async () => {
    const key = await gateway.key(consumer)
    const app = await warm({ rules: [ONE] }, { key })
    time -= 500
    expect(await tripsOf(() => app('/', { key }))).toBe(0)
    time += 500
    expect(await tripsOf(() => app('/', { key }))).toBe(0)
  })

  it('that was set back does not make a lease longer', async () => {
    const key = await gateway.key(consumer)
    // A clock that was set back makes the counters due, too, and their trip would sometimes be counted here.
    const app = await warm({ rules: [ONE], stats: { keep: false } }, { key })
    time -= 3600e3
    expect(await tripsOf(() => app('/', { key }))).toBe(1)
  })
})

describe('plans and overrides', () => {
  const PLANS = {
    plans: ['free', 'pro'],
    rules: [{ ...ONE, limit: 20, plans: { pro: { limit: LIMIT } } }],
  } satisfies Settings

  it('determine the size of a lease, and the headers', async () => {
    const app = appWith(PLANS, GIVING_BACK)
    const [free, pro] = [await gateway.key('small'), await gateway.key(consumer, 'pro')]
    expect(await tripsOf(() => send(app, 15, { key: free }))).toBe(15)
    expect(await tripsOf(() => send(app, 50, { key: pro }))).toBeLessThan(20)
    const { headers } = await app('/', { key: pro })
    expect(headers.get('ratelimit-policy')).toContain(`"one";q=${LIMIT}`)
    expect(headers.get('ratelimit')).toContain(`r=${LIMIT - 51}`)
    expect(gateway.origin.received.at(-1)!.headers['x-consumer-plan']).toBe('pro')
    pass(1000)
    await vi.waitFor(async () => {
      pass(100)
      const { standings } = await peekCaller(gateway.admin, configOf(PLANS), { consumer }, 'pro')
      expect(standings[0]!.remaining).toBe(LIMIT - 51)
    }, PATIENT)
  })

  it.each(['fixed-window', 'gcra', 'token-bucket'] as const)(
    'determine the size and the headers for an override of %s',
    async algorithm => {
      const config = { rules: [{ ...ONE, algorithm, limit: 20 } as RuleInput] }
      const key = await gateway.key(consumer)
      const input = { origin: 'route', ...config } as ConfigInput
      await setOverride(gateway.admin, consumer, compileOverride(input, { rule: 'one', limit: 5000 }))
      const app = appWith(config, GIVING_BACK)
      expect(await tripsOf(() => send(app, 50, { key }))).toBeLessThan(20)
      const { headers } = await app('/', { key })
      expect(headers.get('ratelimit-policy')).toContain('"one";q=5000')
      expect(headers.get('ratelimit')).toContain('r=4949')
      await expectSpent(config, { one: 51 })
    },
  )

  it('that were changed take effect when the lease ends, or at once if another request shows the new plan', async () => {
    const config: Settings = {
      plans: ['free', 'pro'],
      rules: [
        { ...ONE, limit: 500, plans: { pro: { limit: LIMIT } } },
        { ...ONE, name: 'other', lease: false, match: { path: '/other' } },
      ],
    }
    const key = await gateway.key(consumer, '')
    await setPlan(gateway.admin, consumer, 'pro')
    const app = await warm(config, { key })
    const policy = async () => (await app('/', { key })).headers.get('ratelimit-policy')
    await setPlan(gateway.admin, consumer, 'free')
    expect(await policy()).toContain(`q=${LIMIT}`)
    await app('/other', { key })
    expect(await policy()).toContain('q=500')
  })
})

describe('a change takes effect when the lease ends', () => {
  it('a plan with one more rule, which counts every later request', async () => {
    const config: Settings = {
      plans: ['free', 'pro'],
      rules: [ONE, { ...ONE, name: 'daily', plans: { pro: false } }],
    }
    const key = await gateway.key(consumer, '')
    await setPlan(gateway.admin, consumer, 'pro')
    const app = await warm(config, { key }, GIVING_BACK)
    await setPlan(gateway.admin, consumer, 'free')
    // Late enough to renew the lease: it starts again and keeps its units.
    time += 800
    for (let i = 1; i <= 50; i++) {
      const { headers } = await app('/', { key })
      expect(headers.get('ratelimit')).toContain(`"daily";r=${LIMIT - i};`)
    }
    await expectSpent(config, { one: WARM + 51, daily: 50 })
  })

  it.each<[string, number, (key: string) => Promise<unknown>]>([
    ['a block', 403, () => blockConsumer(gateway.admin, consumer)],
    ['a revoked key', 401, async key => revokeKey(gateway.admin, await findKey(gateway.admin, key))],
    [
      'a lower limit',
      429,
      () =>
        setOverride(
          gateway.admin,
          consumer,
          compileOverride({ origin: 'route', rules: [ONE] } as ConfigInput, { rule: 'one', limit: 1 }),
        ),
    ],
  ])('%s', async (_, status, change) => {
    const key = await gateway.key(consumer)
    const app = await warm({ rules: [ONE] }, { key })
    await change(key)
    expect((await app('/', { key })).status).toBe(200)
    // A request that renews the lease would apply the change earlier.
    time += 1000
    expect((await app('/', { key })).status).toBe(status)
    time += 1000
    expect((await app('/', { key })).status).toBe(status)
  })

  it('a block: at once if a request with another key of the consumer was refused', async () => {
    const [key, other] = [await gateway.key(consumer), await gateway.key(consumer)]
    const app = await warm({ rules: [ONE] }, { key })
    await blockConsumer(gateway.admin, consumer)
    expect((await app('/', { key: other })).status).toBe(403)
    expect((await app('/', { key })).status).toBe(403)
  })

  it('a revoked key: at once if another request with it was refused', async () => {
    const config: Settings = { rules: [ONE, { ...ONE, name: 'other', match: { path: '/other' } }] }
    const key = await gateway.key(consumer)
    const app = await warm(config, { key })
    await revokeKey(gateway.admin, await findKey(gateway.admin, key))
    expect((await app('/other', { key })).status).toBe(401)
    expect((await app('/', { key })).status).toBe(401)
  })

  it('a reset: units that were leased before are given back to the new budget', async () => {
    const config = { rules: [ONE] }
    const key = await gateway.key(consumer)
    const app = await warm(config, { key })
    await resetCaller(gateway.admin, configOf(config), { consumer })
    expect(await tripsOf(() => app('/', { key }))).toBe(0)
    // So late that the next request takes no lease.
    time += 3000
    expect(await tripsOf(() => app('/', { key }))).toBe(1)
    // Never above the full budget.
    expect((await spent(config)).one).toBe(0)
  })

  it('a raised limit', async () => {
    const key = await gateway.key(consumer)
    const app = await warm({ rules: [ONE] }, { key })
    const input = { origin: 'route', rules: [ONE] } as ConfigInput
    await setOverride(gateway.admin, consumer, compileOverride(input, { rule: 'one', limit: 2 * LIMIT }))
    const policy = async () => (await app('/', { key })).headers.get('ratelimit-policy')
    expect(await policy()).toContain(`q=${LIMIT};`)
    time += 1000
    expect(await policy()).toContain(`q=${2 * LIMIT};`)
  })

  it('a switch: at once when the isolate has read it', async () => {
    let boardTime = 0
    const board = createSwitchBoard({ now: () => boardTime })
    const config: Settings = { rules: [ONE, { ...ONE, name: 'other' }], lease: { for: '10s' } }
    const key = await gateway.key(consumer)
    const app = await warm(config, { key }, { board })
    const rules = async () => (await app('/', { key })).headers.get('ratelimit-policy')
    expect(await rules()).toContain('other')
    await switchRule(gateway.admin, 'other', { mode: 'off', at: new Date(), by: 'ops' })
    expect(await rules()).toContain('other')
    boardTime += 1000
    // Read in the background, although the request needs no trip.
    await vi.waitFor(async () => expect(await rules()).not.toContain('other'), PATIENT)
    await killLimits(gateway.admin, { by: 'ops', at: new Date() })
    boardTime += 1000
    await vi.waitFor(async () => {
      const { headers } = await app('/', { key })
      expect(headers.get('sluice-degraded')).toBe('kill-switch')
    }, PATIENT)
  })
})

describe('while the store is down', () => {
  beforeEach(() => {
    vi.spyOn(console, 'warn').mockImplementation(() => {})
  })

  it.each([
    ['open', 200],
    ['closed', 503],
  ] as const)('a lease goes on to its end, and then the rule is %s', async (onStoreFailure, status) => {
    const key = await gateway.key(consumer)
    const app = await warm({ rules: [{ ...ONE, onStoreFailure }], store: { breaker: false } }, { key })
    gateway.store.fault = (_, response) => void response.destroy()
    time += 999
    for (let i = 0; i < 5; i++) {
      const { status, headers } = await app('/', { key })
      expect([status, headers.get('sluice-degraded')]).toEqual([200, null])
    }
    time += 1
    const reply = await app('/', { key })
    expect([reply.status, reply.headers.get('sluice-degraded')]).toEqual([status, 'store-unreachable'])
  })

  it('a lost reply loses the units that it leased, and no request is admitted whose units were not spent', async () => {
    const config: Settings = { rules: [{ ...ONE, onStoreFailure: 'closed' }], store: { breaker: false } }
    const key = await gateway.key(consumer)
    const app = appWith(config)
    let replies = 0
    gateway.store.fault = (_, response, passOn) =>
      passOn((answer, caller) => {
        replies += 1
        if (replies % 4 === 0) {
          answer.resume()
          response.destroy()
        } else {
          caller.writeHead(answer.statusCode!, answer.headers)
          answer.pipe(caller)
        }
      })
    const statuses = await send(app, 100, { key })
    gateway.store.fault = undefined
    time += 1000
    await send(app, 1, { key: await gateway.key('other') })
    expect((await spent(config)).one).toBeGreaterThanOrEqual(statuses[200]!)
    expect(gateway.origin.received.length).toBe(statuses[200]! + 1)
    expect(replies).toBeGreaterThan(4)
  })
})

describe('opaque keys', () => {
  it.each([
    ['whose consumer the store finds each time', { opaqueKeys: {} }],
    ['whose consumer the isolate remembers', { opaqueKeys: { rememberFor: '1d' } }],
  ] as const)('%s: their units are given back to the consumer', async (_, credentials) => {
    const config: Settings = { rules: [ONE], credentials: { accept: ['opaque-key'], ...credentials } }
    const key = 'an-old-key-of-a-partner'
    await importKey(gateway.admin, { key }, { consumer: 'partner', plan: 'free' })
    const app = appWith(config, GIVING_BACK)
    expect(await tripsOf(() => send(app, 50, { key }))).toBeLessThan(20)
    expect(gateway.origin.received.at(-1)!.headers).toMatchObject({
      'x-consumer-id': 'partner',
      'x-consumer-plan': 'free',
    })
    await expectSpent(config, { one: 50 }, { consumer: 'partner' })
  })
})

describe('guesses', () => {
  const GUESSES = { ...ONE, name: 'guesses', by: 'address', on: 'auth-failure', limit: 40 } as RuleInput
  const config: Settings = { rules: [ONE, GUESSES], refusals: { rememberFor: 0 } }
  const address = '192.0.2.1'

  it('are never leased: each one is counted at once', async () => {
    const app = appWith(config)
    const trips = await tripsOf(async () => {
      for (let i = 0; i < 30; i++) {
        expect((await app('/', { key: mintApiKey(consumer), address })).status).toBe(401)
      }
    })
    expect(trips).toBe(30)
    expect(await spent(config, { address })).toEqual({ guesses: 30 })
    // Valid credentials are not guesses.
    const key = await gateway.key(consumer)
    expect(await tripsOf(() => send(app, 50, { key, address }))).toBeLessThan(20)
    expect(await spent(config, { address })).toEqual({ guesses: 30 })
  })

  it('too many of them also refuse a valid credential with a lease, as soon as the isolate has refused a guess', async () => {
    const remembering: Settings = {
      rules: [ONE, { ...GUESSES, limit: 3 } as RuleInput],
      lease: { for: '10s' },
    }
    const key = await gateway.key(consumer)
    const app = await warm(remembering, { key, address })
    const other = appWith(remembering)
    for (let i = 0; i < 3; i++) await other('/', { key: mintApiKey(consumer), address })
    const replyTo = async (key: string) => {
      const { status, headers } = await app('/', { key, address })
      return [status, [...headers.keys()], headers.get('ratelimit-policy')]
    }
    const wrong = await replyTo(mintApiKey(consumer))
    expect(wrong[0]).toBe(429)
    const expectSameReplies = async () => {
      for (const credential of [key, mintApiKey(consumer), key, mintApiKey('unknown'), key])
        expect(await replyTo(credential)).toEqual(wrong)
    }
    expect(await tripsOf(expectSameReplies)).toBe(0)
    // Now one request asks the store again. It may be the one that has a lease.
    time += 1000
    expect(await tripsOf(expectSameReplies)).toBe(1)
    // While the store does not answer, the refusal stays valid, and so does the lease.
    gateway.store.fault = (_, response) => void response.destroy()
    vi.spyOn(console, 'warn').mockImplementation(() => {})
    time += 1000
    await expectSameReplies()
    gateway.store.fault = undefined
    // At another address, the valid credential is admitted.
    expect((await app('/', { key, address: '192.0.2.2' })).status).toBe(200)
  })

  it('too many of them refuse a valid credential from its next trip on if refusals are not remembered', async () => {
    const key = await gateway.key(consumer)
    const app = await warm(config, { key, address })
    const other = appWith(config)
    for (let i = 0; i < 40; i++) await other('/', { key: mintApiKey(consumer), address })
    // Continues until a request renews the lease.
    await vi.waitUntil(async () => (await tripsOf(() => app('/', { key, address }))) > 0, {
      timeout: PATIENT_MS,
      interval: 0,
    })
    expect(await send(app, 20, { key, address })).toEqual({ 429: 20 })
  })
})

describe('on a cluster', () => {
  const cluster = { store: { cluster: true } } as const

  it('a caller whose rules are in one slot has a lease', async () => {
    const config: Settings = { rules: [ONE], ...cluster }
    const app = appWith(config, GIVING_BACK)
    const key = await gateway.key(consumer)
    expect(await tripsOf(() => send(app, 50, { key }))).toBeLessThan(20)
    await expectSpent(config, { one: 50 })
  })

  it('a caller whose rules are in several slots has none, and its first request takes two trips', async () => {
    const app = appWith({ rules: [ONE, { ...ONE, name: 'address', by: 'address' }], ...cluster })
    const key = await gateway.key(consumer)
    expect(await tripsOf(() => send(app, 20, { key, address: '192.0.2.1' }))).toBe(21)
  })
})

describe('statistics', () => {
  it('count requests from leases like others, and also count them separately', async () => {
    const wakes: (() => void)[] = []
    const timer: Timer = (_, wake) => {
      wakes.push(wake)
      return () => {}
    }
    const config: Settings = { rules: [ONE, { ...ONE, name: 'shadow', limit: 10, mode: 'shadow' }] }
    const app = appWith(config, { reporting: { timer } })
    const key = await gateway.key(consumer)
    let trips = 0
    for (let i = 0; i < 100; i++) trips += await tripsOf(() => app('/', { key }))
    for (const wake of wakes.splice(0)) wake()
    await vi.waitFor(async () => {
      const stats = await readStats(gateway.admin, new Date(Date.now() - 3600e3))
      expect(stats.rules).toMatchObject([
        { rule: 'one', allowed: 100, limited: 0 },
        { rule: 'shadow', shadowAllowed: 10, shadowLimited: 90 },
      ])
      expect(stats.withoutTrip).toEqual({ leases: 100 - trips })
      expect(prometheusText(stats)).toMatch(
        new RegExp(`without_trip\\S*\\{from="leases"\\} ${100 - trips}\\n`),
      )
      expect(statsText(stats, {}, ['one', 'shadow'], configOf(config))).toContain(
        `${100 - trips} (${100 - trips} %) admitted from leases`,
      )
    }, PATIENT)
  })
})
