/** Shadow rules and their statistics: each request is counted exactly as if the rule were enforced. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import type { AnalyticsDataset } from '../../src/config/environment.ts'
import { mintApiKey } from '../../src/credentials/api-key.ts'
import { readStats, type Stats } from '../../src/ops/stats.ts'
import { sumByOutcome, sumByRule } from '../../src/ops/sum-stats.ts'
import { useGateway } from '../support/gateway.ts'
import { PATIENT } from '../support/patience.ts'
import { describeOnRedis } from '../support/redis.ts'

const RULES: RuleInput[] = [
  { name: 'live', by: 'consumer', algorithm: 'fixed-window', limit: 4, period: '300d' },
  { name: 'tight', by: 'consumer', algorithm: 'fixed-window', limit: 1, period: '300d', mode: 'shadow' },
  { name: 'log', by: 'consumer', algorithm: 'sliding-log', limit: 3, period: '300d', candidateFor: 'live' },
  { name: 'guesses', by: 'address', on: 'auth-failure', algorithm: 'gcra', limit: 1, period: '300d' },
]
const CONFIG = {
  plans: ['free', 'pro'],
  onStoreFailure: 'open' as const,
  rules: RULES,
  routes: [{ name: 'reports', match: { path: '/reports/*' } }],
  log: {},
}

let lines: Record<string, unknown>[]
beforeEach(() => {
  lines = []
  for (const level of ['info', 'warn'] as const)
    vi.spyOn(console, level).mockImplementation(line => void lines.push(JSON.parse(line)))
})
afterEach(() => vi.restoreAllMocks())

/** The test decides when the flush interval has passed. */
function flushing() {
  const sleepers: (() => void)[] = []
  return {
    reporting: {
      timer: (_: number, wake: () => void) => {
        sleepers.push(wake)
        return () => {}
      },
    },
    flush: () => {
      for (const wake of sleepers.splice(0)) wake()
    },
  }
}

describeOnRedis('a gateway with shadow rules', (_, kind) => {
  const gateway = useGateway(kind)

  // Includes the hour before, in case an hour has just started.
  const read = () => readStats(gateway.admin, new Date(Date.now() - 3600e3))
  /** Counters arrive some time later. */
  const readWhen = async (isThere: (stats: Stats) => boolean) =>
    await vi.waitFor(async () => {
      const stats = await read()
      expect(isThere(stats)).toBe(true)
      return stats
    }, PATIENT)
  const sent = ({ requests }: Stats) => requests.reduce((sum, { count }) => sum + count, 0)

  it('counts requests by rule, route and plan, with one store request for each decision and one for all counters', async () => {
    const { reporting, flush } = flushing()
    const app = gateway.app(CONFIG, { reporting })
    const [free, pro] = [await gateway.key('acme'), await gateway.key('other', 'pro')]
    await app('/', { key: pro })
    gateway.store.count()
    const statuses = []
    for (let i = 0; i < 6; i++) statuses.push((await app('/reports/7', { key: free })).status)
    statuses.push((await app('/', { key: pro })).status)
    expect(statuses).toEqual([200, 200, 200, 200, 429, 429, 200])
    // Both refusals follow from the admission before, and are counted like those of the store.
    expect(gateway.store.count()).toBe(5)

    flush()
    const stats = await readWhen(stats => sent(stats) === 8)
    // The second brings the script, which this Redis does not have yet.
    expect(gateway.store.count()).toBe(2)
    const short = (by?: 'route' | 'plan') =>
      sumByRule(stats.rules, ['live', 'tight', 'log', 'guesses'], by).map(row => [
        ...[row.rule, ...(by ? [row[by]] : []), row.allowed, row.limited],
        ...[row.shadowAllowed, row.shadowLimited, row.agreed, row.disagreed],
      ])
    expect(short()).toEqual([
      ['live', 6, 2, 0, 0, 0, 0],
      ['tight', 0, 0, 2, 6, 0, 0],
      // The log would have refused the fourth request, which the window admitted.
      ['log', 0, 0, 5, 3, 7, 1],
      ['guesses', 8, 0, 0, 0, 0, 0],
    ])
    expect(short('route').slice(0, 2)).toEqual([
      ['live', '-', 2, 0, 0, 0, 0, 0],
      ['live', 'reports', 4, 2, 0, 0, 0, 0],
    ])
    expect(short('plan').slice(2, 4)).toEqual([
      ['tight', 'free', 0, 0, 1, 5, 0, 0],
      ['tight', 'pro', 0, 0, 1, 1, 0, 0],
    ])
    const keys = (await gateway.redis.connection.send(['KEYS', 'sluice:{stats}:*'])) as Buffer[]
    const ttls = await Promise.all(keys.map(key => gateway.redis.connection.send(['TTL', String(key)])))
    const days = ttls.map(ttl => Math.round(Number(ttl) / 864) / 100).sort((a, b) => a - b)
    // The refused callers of the hour, and the counters of the day.
    expect(days).toEqual([8, 401])
  })

  it('gives each request exactly one outcome, with or without a trip, with or without a store', async () => {
    const { reporting, flush } = flushing()
    const app = gateway.app(
      { ...CONFIG, block: { addresses: ['192.0.2.66'] } },
      {
        reporting,
        peerOf: request => {
          if (request.url.endsWith('/broken')) throw new TypeError('for the test')
          return undefined
        },
      },
    )
    const key = await gateway.key('acme')
    vi.spyOn(console, 'error').mockImplementation(() => {})
    for (let i = 0; i < 6; i++) await app('/', { key, address: '192.0.2.1' })
    await app('/')
    await app('/', { key: 'slk_acme_garbage' })
    for (let i = 0; i < 2; i++) await app('/', { key: mintApiKey('acme'), address: '192.0.2.2' })
    await app('/', { key, address: '192.0.2.66' })
    expect((await app('/broken')).status).toBe(503)
    gateway.store.fault = (_, response) => void response.destroy()
    for (let i = 0; i < 3; i++) await app('/', { key })
    gateway.store.fault = undefined
    // Neither of these is a request to the API.
    await app('/_sluice/health')
    const preflight = { origin: 'https://app.example', 'access-control-request-method': 'GET' }
    await app('/', { method: 'OPTIONS', headers: preflight })

    flush()
    const stats = await readWhen(stats => sent(stats) === 15)
    expect(stats.lost).toBe(0)
    expect(sumByOutcome(stats.requests).map(({ outcome, cause, count }) => [outcome, cause, count])).toEqual([
      ['allowed', '-', 4],
      ['limited', '-', 3],
      ['unauthenticated', '-', 3],
      ['failed_open', 'store-unreachable', 3],
      ['forbidden', '-', 1],
      ['failed_closed', 'internal', 1],
    ])
  })

  it('counts requests during an outage, and sends its counters when the store is back', async () => {
    const { reporting, flush } = flushing()
    // The probes of the breaker would be counted here.
    const app = gateway.app({ ...CONFIG, store: { breaker: false } }, { reporting })
    const key = await gateway.key('acme')
    await app('/', { key })
    gateway.store.fault = (_, response) => void response.destroy()
    for (let i = 0; i < 5; i++) {
      expect((await app('/', { key })).headers.get('sluice-degraded')).toBe('store-unreachable')
      gateway.store.count()
      flush()
      // The flush sends a ping and no counters.
      await vi.waitFor(() => expect(gateway.store.count()).toBe(1), PATIENT)
    }
    gateway.store.fault = undefined
    await app('/', { key })
    await vi.waitFor(async () => {
      flush()
      expect(sent(await read())).toBe(7)
    }, PATIENT)
    const stats = await read()
    expect(sumByOutcome(stats.requests).map(({ outcome, count }) => [outcome, count])).toEqual([
      ['failed_open', 5],
      ['allowed', 2],
    ])
    expect(stats.lost).toBe(0)
  })

  it('counts the verdicts of the isolate while the store is down, under the plan from before the outage', async () => {
    const { reporting, flush } = flushing()
    const rules = CONFIG.rules.map(rule => ({ ...rule, onStoreFailure: 'local' as const }))
    const app = gateway.app({ ...CONFIG, rules, store: { breaker: false } }, { reporting })
    const key = await gateway.key('local')
    await app('/', { key })
    gateway.store.fault = (_, response) => void response.destroy()
    const statuses: number[] = []
    for (let i = 0; i < 6; i++) statuses.push((await app('/', { key })).status)
    const passed = statuses.filter(status => status === 200).length
    gateway.store.fault = undefined
    await vi.waitFor(async () => {
      flush()
      await app('/_sluice/health')
      expect(sent(await read())).toBe(7)
    }, PATIENT)
    const stats = await read()
    expect(sumByOutcome(stats.requests).map(({ outcome, cause, count }) => [outcome, cause, count])).toEqual(
      expect.arrayContaining([
        ['allowed', '-', 1],
        ['allowed', 'store-unreachable', passed],
        ['limited', 'store-unreachable', 6 - passed],
      ]),
    )
    expect(passed).toBeGreaterThan(0)
    expect(passed).toBeLessThan(6)
    expect(new Set(sumByRule(stats.rules, ['live'], 'plan').map(({ plan }) => plan))).toEqual(
      new Set(['free']),
    )
  })

  it('logs refusals, real and shadow, without naming callers', async () => {
    const app = gateway.app(CONFIG)
    const key = await gateway.key('acme')
    const address = '203.0.113.7'
    const ids: (string | null)[] = []
    for (let i = 0; i < 5; i++) {
      const response = await app('/reports/secret-path?token=secret-query', { key, address })
      ids.push(response.headers.get('x-request-id'))
    }
    const where = { route: 'reports', plan: 'free', level: 'info', skipped: 0 }
    const passed = { ...where, event: 'would-refuse', outcome: 'allowed' }
    expect(lines).toEqual([
      { ...passed, policies: ['tight'], request_id: ids[1] },
      { ...passed, policies: ['tight'], request_id: ids[2] },
      { ...passed, policies: ['tight', 'log'], request_id: ids[3] },
      {
        ...{ ...where, event: 'refused', outcome: 'limited', policies: ['live'], request_id: ids[4] },
        retry_after: expect.any(Number),
      },
    ])
    const text = JSON.stringify(lines)
    for (const secret of [key, 'acme', address, 'secret-path', 'secret-query', 'sluice:'])
      expect(text).not.toContain(secret)
  })

  it('has no more log lines than the config allows', async () => {
    const app = gateway.app({ ...CONFIG, log: { perSecond: 0 } })
    for (let i = 0; i < 5; i++) expect((await app('/')).status).toBe(401)
    expect(lines).toEqual([])
  })

  it('sends nothing if the config turns statistics off', async () => {
    const { reporting, flush } = flushing()
    const app = gateway.app({ ...CONFIG, stats: { keep: false } }, { reporting })
    const key = await gateway.key('acme')
    await app('/', { key })
    flush()
    await app('/', { key })
    expect(await gateway.redis.connection.send(['KEYS', 'sluice:{stats}:*'])).toEqual([])
  })

  it('writes one data point for each request if a data set is bound', async () => {
    const { analytics, points } = dataset()
    const app = gateway.app({ ...CONFIG, refusals: { rememberFor: 0 } }, { reporting: { analytics } })
    const key = await gateway.key('acme')
    for (let i = 0; i < 5; i++) await app('/reports/7', { key })
    await app('/')
    gateway.store.fault = (_, response) => void response.destroy()
    await app('/', { key })
    const took = [1, expect.any(Number)]
    const point = (index: string, ...blobs: string[]) => ({
      ...{ indexes: [index], blobs: [...blobs, ''], doubles: took },
    })
    expect(points).toEqual([
      point('none', 'allowed', 'reports', 'free', '', '', ''),
      point('none', 'allowed', 'reports', 'free', '', '', 'tight'),
      point('none', 'allowed', 'reports', 'free', '', '', 'tight'),
      point('none', 'allowed', 'reports', 'free', '', '', 'tight,log'),
      point('live', 'limited', 'reports', 'free', '', 'live', 'tight,log'),
      point('none', 'unauthenticated', '', '', '', '', ''),
      // The plan is known from an earlier request.
      point('none', 'failed_open', '', 'free', 'store-unreachable', '', ''),
    ])
  })

  it('does not fail requests if a report fails, and logs that once', async () => {
    const errors = vi.spyOn(console, 'error').mockImplementation(() => {})
    const analytics = {
      writeDataPoint() {
        throw new TypeError('a secret of the platform')
      },
    }
    const app = gateway.app(CONFIG, { reporting: { analytics } })
    const key = await gateway.key('acme')
    for (let i = 0; i < 3; i++) expect((await app('/', { key })).status).toBe(200)
    expect(errors.mock.calls).toEqual([[expect.stringContaining('"event":"exception","error":"TypeError')]])
    expect(errors.mock.calls[0]![0]).not.toContain('a secret')
  })

  it('keeps data points within their bounds, with any rule names', async () => {
    const { analytics, points } = dataset()
    const rules = Array.from({ length: 150 }, (_, i): RuleInput => {
      const name = `${'n'.repeat(58)}-${100 + i}`
      return { name, by: 'consumer', algorithm: 'fixed-window', limit: 1, period: '300d', mode: 'shadow' }
    })
    const app = gateway.app({ rules }, { reporting: { analytics } })
    const key = await gateway.key('acme')
    for (let i = 0; i < 2; i++) expect((await app('/', { key })).status).toBe(200)
    expect(points).toHaveLength(2)
  })
})

/** A data set that refuses what Workers Analytics Engine refuses. */
function dataset() {
  const points: unknown[] = []
  const bytes = (text: string) => new TextEncoder().encode(text).length
  const analytics: AnalyticsDataset = {
    writeDataPoint(point) {
      const { indexes, blobs, doubles } = point
      expect(indexes.length).toBeLessThanOrEqual(1)
      expect(bytes(indexes.join())).toBeLessThanOrEqual(96)
      expect(blobs.length).toBeLessThanOrEqual(20)
      expect(bytes(blobs.join(''))).toBeLessThanOrEqual(16 * 1024)
      expect(doubles.length).toBeLessThanOrEqual(20)
      points.push(point)
    },
  }
  return { analytics, points }
}
