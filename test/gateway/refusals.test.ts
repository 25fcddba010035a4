/** Refusals that an isolate remembers: the same as those of the store, without a trip. */
import { beforeEach, describe, expect, it, vi } from 'vitest'
import type { Timer } from '../../src/clock.ts'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { blockConsumer, setPlan, unblockConsumer } from '../../src/ops/consumers.ts'
import { revokeKey } from '../../src/ops/key-changes.ts'
import { findKey } from '../../src/ops/key-reference.ts'
import { resetCaller } from '../../src/ops/limits.ts'
import { readStats } from '../../src/ops/stats.ts'
import { resetRule, switchRule } from '../../src/ops/switches.ts'
import { createSwitchBoard } from '../../src/switches/live.ts'
import { configOf } from '../support/engines.ts'
import { type TestPlatform, useGateway } from '../support/gateway.ts'
import { PATIENT } from '../support/patience.ts'

const ONE: RuleInput = { name: 'one', by: 'consumer', algorithm: 'fixed-window', limit: 1, period: '300d' }
const GUESSES: RuleInput = {
  name: 'guesses',
  by: 'address',
  on: 'auth-failure',
  algorithm: 'fixed-window',
  limit: 1,
  period: '300d',
}
const ANYONE = { credentials: { accept: ['anonymous' as const] } }

const gateway = useGateway()

/** The clock of the isolate; limits follow that of the store. */
let time: number
const clock = { now: () => time }
beforeEach(() => {
  time = Date.now()
})

/** An isolate with the clock that the tests move. Its copy of the switches never becomes stale. */
const appWith = (config: Partial<ConfigInput> & Pick<ConfigInput, 'rules'>, platform: TestPlatform = {}) =>
  gateway.app(config, { clock, board: createSwitchBoard({ now: () => 0 }), ...platform })

/** A reply without the request id, which differs in each reply. */
async function comparable(response: Response) {
  const headers = Object.fromEntries([...response.headers].filter(([name]) => name !== 'x-request-id'))
  return { status: response.status, headers, body: await response.text() }
}

/** The number of HTTP requests to the store during some work. */
async function tripsOf(work: () => Promise<unknown>): Promise<number> {
  gateway.store.count()
  await work()
  return gateway.store.count()
}

describe('a refused caller', () => {
  it('is refused again without a trip, with the same reply, until the store decides again after a second', async () => {
    const app = appWith({ rules: [ONE] })
    const key = await gateway.key('acme')
    await app('/', { key })
    const first = await comparable(await app('/', { key }))
    expect(first.status).toBe(429)
    time += 999
    let again: Response | undefined
    expect(await tripsOf(async () => (again = await app('/', { key })))).toBe(0)
    // Retry-After is rounded up to seconds, so after 999 ms it is the same or one second less.
    const seconds = Number(first.headers['retry-after'])
    const { headers, body, status } = await comparable(again!)
    expect([seconds, seconds - 1]).toContain(Number(headers['retry-after']))
    expect([status, body, headers.ratelimit]).toEqual([
      429,
      first.body.replace(`${seconds} s`, `${headers['retry-after']} s`),
      `"one";r=0;t=${headers['retry-after']}`,
    ])
    expect(Object.keys(headers)).toEqual(Object.keys(first.headers))
    time += 1
    // Of 20 requests at once, one makes the trip, and the others are refused from memory.
    const statuses = async () =>
      (await Promise.all(Array.from({ length: 20 }, () => app('/', { key })))).map(({ status }) => status)
    expect(await tripsOf(async () => expect(await statuses()).toEqual(Array(20).fill(429)))).toBe(1)
  })

  it('gets a retry time that counts down, and the store decides again when it is over', async () => {
    const app = appWith({
      // A busy machine may need some of this time for the first two requests.
      rules: [{ ...ONE, algorithm: 'gcra', limit: 1, period: '50s' }],
      refusals: { rememberFor: '60s' },
    })
    const key = await gateway.key('acme')
    await app('/', { key })
    const first = Number((await app('/', { key })).headers.get('retry-after'))
    expect(first).toBeGreaterThan(8)
    time += 4000
    let later: Response | undefined
    expect(await tripsOf(async () => (later = await app('/', { key })))).toBe(0)
    expect(first - Number(later!.headers.get('retry-after'))).toBe(4)
    expect(later!.headers.get('ratelimit')).toBe(`"one";r=0;t=${first - 4}`)
    // Never longer than the store has reported.
    time += first * 1000 - 4000
    expect(await tripsOf(() => app('/', { key }))).toBe(1)
  })

  it('is checked again for a lower cost, but not for a higher one', async () => {
    const app = appWith({
      rules: [{ ...ONE, limit: 4 }],
      routes: [
        { name: 'dear', match: { path: '/dear' }, cost: 3 },
        { name: 'dearest', match: { path: '/dearest' }, cost: 4 },
      ],
    })
    const key = await gateway.key('acme')
    for (let i = 0; i < 2; i++) await app('/', { key })
    const status = async (path: string) => (await app(path, { key })).status
    expect(await status('/dear')).toBe(429)
    expect(await tripsOf(async () => expect(await status('/dearest')).toBe(429))).toBe(0)
    expect(await tripsOf(async () => expect(await status('/')).toBe(200))).toBe(1)
    expect(await tripsOf(async () => expect(await status('/dear')).toBe(429))).toBe(0)
  })

  it('is not recognized with another credential, address or set of rules', async () => {
    const app = appWith({
      rules: [
        { ...ONE, by: 'credential' },
        { name: 'address', by: 'address', algorithm: 'gcra', limit: 100, period: '1s' },
        {
          name: 'reports',
          by: 'consumer',
          algorithm: 'gcra',
          limit: 9,
          period: '1s',
          match: { path: '/reports' },
        },
      ],
    })
    const [key, other] = [await gateway.key('acme'), await gateway.key('acme')]
    const address = '192.0.2.1'
    await app('/', { key, address })
    await app('/', { key, address })
    expect(await tripsOf(() => app('/', { key, address }))).toBe(0)
    expect(await tripsOf(() => app('/', { key: other, address }))).toBe(1)
    expect(await tripsOf(() => app('/', { key, address: '192.0.2.2' }))).toBe(1)
    expect(await tripsOf(() => app('/reports', { key, address }))).toBe(1)
  })

  it('costs a trip each time with rememberFor: 0', async () => {
    const app = appWith({ rules: [ONE], refusals: { rememberFor: 0 } })
    const key = await gateway.key('acme')
    for (let i = 0; i < 3; i++) expect(await tripsOf(() => app('/', { key }))).toBe(1)
  })

  it("is refused while the store is down, until its retry time or for a minute, independent of the isolate's own counts", async () => {
    const app = appWith({ rules: [{ ...ONE, onStoreFailure: 'open' }] })
    const key = await gateway.key('acme')
    await app('/', { key })
    await app('/', { key })
    gateway.store.fault = (_, response) => void response.destroy()
    vi.spyOn(console, 'warn').mockImplementation(() => {})
    for (const ms of [0, 1000, 58_000]) {
      time += ms
      const refused = await app('/', { key })
      expect([refused.status, refused.headers.get('sluice-degraded')]).toEqual([429, null])
    }
    time += 1000
    expect((await app('/', { key })).headers.get('sluice-degraded')).toBe('store-unreachable')
    vi.restoreAllMocks()
  })

  it('is not refused for longer if the clock is set back', async () => {
    const app = appWith({ rules: [ONE], refusals: { rememberFor: '60s' } })
    const key = await gateway.key('acme')
    await app('/', { key })
    await app('/', { key })
    time -= 3600e3
    expect(await tripsOf(() => app('/', { key }))).toBe(1)
  })

  it('envoyproxy/ratelimit#423: a shadow never refuses a request', async () => {
    const app = appWith({ rules: [{ ...ONE, mode: 'shadow' }] })
    const key = await gateway.key('acme')
    for (let i = 0; i < 3; i++)
      expect(await tripsOf(async () => expect((await app('/', { key })).status).toBe(200))).toBe(1)
  })
})

describe('a change takes effect', () => {
  it('within a second if a switch makes the rule a shadow, even if refusals are remembered for longer', async () => {
    const config = { rules: [ONE], refusals: { rememberFor: '60s' as const } }
    const app = appWith(config, { board: createSwitchBoard(clock) })
    const key = await gateway.key('acme')
    const status = async () => (await app('/', { key })).status
    expect([await status(), await status()]).toEqual([200, 429])
    await switchRule(gateway.admin, 'one', { mode: 'shadow', at: new Date(), by: 'ops' })
    time += 1000
    // The first request after a second reads the switches.
    await status()
    await vi.waitFor(async () => expect(await status()).toBe(200), PATIENT)
    await resetRule(gateway.admin, 'one')
  })

  it('within a second after a reset, and after a consumer is unblocked', async () => {
    const config = { rules: [ONE] }
    const app = appWith(config)
    const key = await gateway.key('acme')
    const status = async () => (await app('/', { key })).status
    expect([await status(), await status()]).toEqual([200, 429])
    await resetCaller(gateway.admin, configOf(config), { consumer: 'acme' })
    expect(await status()).toBe(429)
    time += 1000
    expect(await status()).toBe(200)

    // A block of a caller that is refused anyway shows when the store decides again.
    await blockConsumer(gateway.admin, 'acme')
    expect(await status()).toBe(429)
    time += 1000
    expect(await status()).toBe(403)
    await unblockConsumer(gateway.admin, 'acme')
    expect(await tripsOf(async () => expect(await status()).toBe(403))).toBe(0)
    time += 1000
    expect(await status()).toBe(429)
  })

  it('at once if another request of the isolate shows another plan', async () => {
    const app = appWith({
      plans: ['free', 'pro'],
      rules: [
        { ...ONE, plans: { pro: { limit: 5 } } },
        {
          name: 'other',
          by: 'consumer',
          algorithm: 'gcra',
          limit: 99,
          period: '1s',
          match: { path: '/other' },
        },
      ],
      refusals: { rememberFor: '60s' },
    })
    const key = await gateway.key('acme', '')
    await setPlan(gateway.admin, 'acme', 'free')
    expect([(await app('/', { key })).status, (await app('/', { key })).status]).toEqual([200, 429])
    await setPlan(gateway.admin, 'acme', 'pro')
    expect((await app('/', { key })).status).toBe(429)
    expect((await app('/other', { key })).status).toBe(200)
    expect((await app('/', { key })).status).toBe(200)
  })
})

describe('credentials', () => {
  it('that are invalid are checked once a second, if no rule counts guesses', async () => {
    const app = appWith({ rules: [ONE] })
    const key = await gateway.key('acme')
    await revokeKey(gateway.admin, await findKey(gateway.admin, key))
    const ask = async () => expect((await app('/', { key })).status).toBe(401)
    expect([await tripsOf(ask), await tripsOf(ask)]).toEqual([1, 0])
    time += 1000
    expect(await tripsOf(ask)).toBe(1)
  })

  it('that are invalid are all counted, if a rule counts guesses', async () => {
    const app = appWith({ rules: [ONE, { ...GUESSES, limit: 3 }] })
    const key = mintApiKey('acme')
    const statuses: number[] = []
    expect(
      await tripsOf(async () => {
        for (let i = 0; i < 5; i++) statuses.push((await app('/', { key, address: '192.0.2.1' })).status)
      }),
    ).toBe(4)
    expect(statuses).toEqual([401, 401, 401, 429, 429])
  })

  it('are refused by address after too many guesses: valid and invalid ones alike, with one reply and no trip', async () => {
    const app = appWith({ rules: [ONE, GUESSES] })
    const good = await gateway.key('acme')
    const address = '192.0.2.1'
    await app('/', { key: mintApiKey('acme'), address })
    const first = await comparable(await app('/', { key: mintApiKey('acme'), address }))
    expect(first.status).toBe(429)
    for (const key of [good, mintApiKey('acme'), mintApiKey('other')]) {
      let reply: Response | undefined
      expect(await tripsOf(async () => (reply = await app('/', { key, address })))).toBe(0)
      const { status, headers, body } = await comparable(reply!)
      expect([status, Object.keys(headers), JSON.parse(body).title]).toEqual([
        429,
        Object.keys(first.headers),
        JSON.parse(first.body).title,
      ])
      expect(headers.ratelimit).toMatch(/^"guesses";r=0;t=\d+$/)
    }
    expect((await app('/', { key: good, address: '192.0.2.2' })).status).toBe(200)
  })
})

describe('a `concurrency` rule', () => {
  const HELD: RuleInput = { name: 'held', by: 'address', algorithm: 'concurrency', limit: 1 }
  it('is checked again after a tenth of a second, or as soon as a request of the caller has ended', async () => {
    const app = appWith({ ...ANYONE, rules: [HELD] }, { timer: () => () => {} })
    const address = '192.0.2.1'
    // The request is over once its body is read.
    const first = await app('/', { address })
    expect((await app('/', { address })).status).toBe(429)
    expect(await tripsOf(() => app('/', { address }))).toBe(0)
    time += 100
    expect(await tripsOf(() => app('/', { address }))).toBe(1)
    await first.text()
    await vi.waitFor(async () => {
      const next = await app('/', { address })
      await next.text()
      expect(next.status).toBe(200)
    }, PATIENT)
  })
})

describe('statistics', () => {
  it('count a remembered refusal like any other, and also count it separately', async () => {
    const wakes: (() => void)[] = []
    const timer: Timer = (_, wake) => {
      wakes.push(wake)
      return () => {}
    }
    const shadow: RuleInput = { ...ONE, name: 'shadow', mode: 'shadow' }
    const app = appWith({ rules: [ONE, shadow] }, { reporting: { timer } })
    const key = await gateway.key('acme')
    for (let i = 0; i < 5; i++) await app('/', { key })
    for (const wake of wakes.splice(0)) wake()
    await vi.waitFor(
      async () => {
        const { rules, withoutTrip } = await readStats(gateway.admin, new Date(Date.now() - 3600e3))
        expect(rules).toMatchObject([
          { rule: 'one', allowed: 1, limited: 4 },
          { rule: 'shadow', shadowAllowed: 1, shadowLimited: 4 },
        ])
        expect(withoutTrip).toEqual({ refusals: 4 })
      },
      { timeout: 30_000 },
    )
  })

  it('count a shadow as allowed once its own retry time has passed, while another rule still refuses', async () => {
    const wakes: (() => void)[] = []
    const timer: Timer = (_, wake) => {
      wakes.push(wake)
      return () => {}
    }
    const fast = { by: 'consumer', algorithm: 'gcra', limit: 1, period: '30s' } as const
    const app = appWith(
      {
        rules: [
          ONE,
          { ...fast, name: 'shadow', mode: 'shadow' },
          { ...fast, name: 'candidate', mode: 'shadow', candidateFor: 'one' },
        ],
        refusals: { rememberFor: '60s' },
      },
      { reporting: { timer } },
    )
    const key = await gateway.key('acme')
    const trips = await tripsOf(async () => {
      for (const [ms, status] of [
        [0, 200],
        [0, 429],
        [15_000, 429],
        [15_001, 429],
        [5000, 429],
      ] as const) {
        time += ms
        expect((await app('/', { key })).status).toBe(status)
      }
    })
    expect(trips).toBe(1)
    for (const wake of wakes.splice(0)) wake()
    await vi.waitFor(async () => {
      const { rules } = await readStats(gateway.admin, new Date(Date.now() - 3600e3))
      expect(rules).toMatchObject([
        { rule: 'one', allowed: 1, limited: 4 },
        { rule: 'shadow', shadowAllowed: 3, shadowLimited: 2 },
        { rule: 'candidate', shadowAllowed: 3, shadowLimited: 2, agreed: 3, disagreed: 2 },
      ])
    }, PATIENT)
  })
})
