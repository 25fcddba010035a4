/** GET /_sluice/metrics: what it counts, who may read it, what it costs, and what it says in an outage. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import type { Fault } from '../support/counting-proxy.ts'
import { useGateway } from '../support/gateway.ts'
import {
  createIsolate,
  GET_METRICS_COMMANDS,
  type Isolate,
  METRICS_SECRET,
  valueIn,
} from '../support/metrics.ts'
import { promtool, WITHOUT_PROMTOOL } from '../support/promtool.ts'

const CONFIG = {
  credentials: { accept: ['api-key', 'anonymous'] },
  rules: [
    { name: 'minute', by: 'address', algorithm: 'fixed-window', limit: 4, period: '300d' },
    { name: 'trial', by: 'address', algorithm: 'fixed-window', limit: 1, period: '300d', mode: 'shadow' },
  ],
  metrics: {},
} satisfies Partial<ConfigInput>

const WITH_SHEDDING = {
  ...CONFIG,
  shedding: {
    classes: [{ name: 'critical', match: { path: '/critical/*' } }, { name: 'test' }],
    fleetUsage: { capacity: 10, adaptive: {} },
    workerUtilization: { signals: ['header'] },
  },
} satisfies Partial<ConfigInput>

let warnings: string[]
beforeEach(() => {
  warnings = []
  vi.spyOn(console, 'warn').mockImplementation(line => void warnings.push(String(line)))
})
afterEach(() => vi.restoreAllMocks())

const down: Fault = (request, response) => {
  request.resume()
  response.writeHead(503).end()
}

const realFetch = globalThis.fetch

const ADDRESS = { address: '192.0.2.1' }

async function send(isolate: Isolate, times: number, path = '/'): Promise<void> {
  for (let i = 0; i < times; i++) await (await isolate.app(path, ADDRESS)).text()
}

describe('GET /_sluice/metrics', () => {
  const gateway = useGateway()
  const isolateOf = (config: Partial<ConfigInput> & Pick<ConfigInput, 'rules'> = CONFIG) =>
    createIsolate(gateway, config)

  it('has the requests and verdicts of all isolates, which survive midnight and the end of an isolate', async () => {
    const [one, other] = [isolateOf(), isolateOf()]
    await send(one, 3)
    await send(other, 2)
    for (const isolate of [one, other]) await isolate.flush()
    const text = await isolateOf().scrape()
    expect(valueIn(text, 'gateway_rate_limit_requests_total', { outcome: 'allowed' })).toBe(4)
    expect(valueIn(text, 'gateway_rate_limit_requests_total', { outcome: 'limited' })).toBe(1)
    expect(
      valueIn(text, 'gateway_rate_limit_decisions_total', { policy: 'trial', outcome: 'shadow_limited' }),
    ).toBe(4)
    const tomorrow = isolateOf()
    tomorrow.pass(86_400_000)
    await send(tomorrow, 1)
    await tomorrow.flush()
    expect(
      valueIn(await isolateOf().scrape(), 'gateway_rate_limit_requests_total', { outcome: 'limited' }),
    ).toBe(2)
  })

  it('has the durations of decisions and of the origin, the breaker, and the trips with their commands', async () => {
    const isolate = isolateOf()
    await send(isolate, 5)
    const trips = gateway.store.count()
    await isolate.flush()
    const text = await isolateOf().scrape()
    for (const [what, count] of [
      ['decision', 5],
      ['origin', 4],
    ] as const) {
      expect(valueIn(text, `sluice_${what}_duration_seconds_bucket`, { le: '+Inf' })).toBe(count)
      expect(valueIn(text, `sluice_${what}_duration_seconds_count`)).toBe(count)
    }
    expect(valueIn(text, 'sluice_store_up')).toBe(1)
    expect(valueIn(text, 'sluice_breaker_open')).toBe(0)
    expect(valueIn(text, 'sluice_breaker_opened_total')).toBe(0)
    // The trip that sends these counters is counted with the next ones.
    expect(valueIn(text, 'sluice_store_trips_total')).toBe(trips)
    // EVALSHA, TIME, MGET and SETEX of each decision, and GET for the live switches.
    expect(valueIn(text, 'sluice_store_commands_total')).toBe(trips * 4 + 1)
  })

  it('has the highest share of each limit that any identity has used, in the last minute or two', async () => {
    const isolate = isolateOf()
    await send(isolate, 3)
    await (await isolate.app('/', { address: '192.0.2.2' })).text()
    await isolate.flush()
    const usage = async (later: number) => {
      const reader = isolateOf()
      reader.pass(later)
      return valueIn(await reader.scrape(), 'sluice_limit_usage_ratio', { policy: 'minute' })
    }
    expect(await usage(0)).toBe(0.75)
    expect(await usage(60_000)).toBe(0.75)
    expect(await usage(120_000)).toBeUndefined()
  })

  it('has what requests have reserved and cost, how it was settled, and the debt, by rule', async () => {
    // The origin's response has 7 bytes.
    const isolate = isolateOf({
      ...CONFIG,
      units: { size: { estimate: 5, actual: 'bytes' } },
      rules: [{ ...CONFIG.rules[0]!, name: 'size', unit: 'size', limit: 13 }],
    })
    const text = async () => {
      await isolate.flush()
      isolate.pass(5000)
      return await isolate.scrape()
    }
    const valuesIn = (scrape: string) => ({
      made: valueIn(scrape, 'sluice_reservations_made_total', { policy: 'size' }),
      settled: valueIn(scrape, 'sluice_reservations_ended_total', { policy: 'size', end: 'settled' }),
      late: valueIn(scrape, 'sluice_reservations_ended_total', { policy: 'size', end: 'late' }),
      reserved: valueIn(scrape, 'sluice_reserved_units_total', { policy: 'size' }),
      cost: valueIn(scrape, 'sluice_cost_units_total', { policy: 'size' }),
      debt: valueIn(scrape, 'sluice_debt_units_total', { policy: 'size' }),
    })
    // The settlement of each travels with the next request. The last one is refused because of the debt.
    for (let i = 0; i < 3; i++) {
      await send(isolate, 1, '/cookies')
      await new Promise(resolve => setImmediate(resolve))
    }
    const scrape = await text()
    expect(valuesIn(scrape)).toEqual({ made: 2, settled: 2, late: 0, reserved: 10, cost: 14, debt: 1 })
    expect(valueIn(scrape, 'sluice_limit_usage_ratio', { policy: 'size' })).toBe(1)
    expect(valueIn(scrape, 'sluice_limit_reserved_ratio', { policy: 'size' })).toBeCloseTo(5 / 13)
    expect(valueIn(scrape, 'sluice_limit_debt_ratio', { policy: 'size' })).toBeCloseTo(1 / 13)
  })

  it('has how often each rule has refused its most refused consumer in the last five minutes', async () => {
    const isolate = isolateOf({
      ...CONFIG,
      rules: [{ ...CONFIG.rules[0]!, by: ['consumer', 'address'], limit: 1 }],
    })
    for (const [consumer, times] of [
      ['acme', 4],
      ['globex', 2],
    ] as const) {
      const key = await gateway.key(consumer)
      for (let i = 0; i < times; i++) await (await isolate.app('/', { key })).text()
    }
    await send(isolate, 9)
    await isolate.flush()
    const refusals = async (later: number) => {
      const reader = isolateOf()
      reader.pass(later)
      const text = await reader.scrape()
      expect(text).not.toContain('acme')
      return valueIn(text, 'sluice_top_caller_refusals', { policy: 'minute' })
    }
    expect(await refusals(0)).toBe(3)
    expect(await refusals(4 * 60_000)).toBe(3)
    expect(await refusals(5 * 60_000)).toBe(0)
    expect(await refusals(2 * 3600_000)).toBeUndefined()
  })

  it('has how much room the origin has', async () => {
    const isolate = isolateOf(WITH_SHEDDING)
    const held = await isolate.app('/critical/x', ADDRESS)
    const text = await isolate.scrape()
    expect(valueIn(text, 'gateway_rate_limit_fleet_in_flight', { policy: 'fleet-usage' })).toBe(1)
    expect(valueIn(text, 'gateway_rate_limit_fleet_limit', { policy: 'fleet-usage' })).toBe(10)
    expect(valueIn(text, 'gateway_rate_limit_adaptive_limit')).toBe(10)
    expect(valueIn(text, 'gateway_rate_limit_origin_usual_latency_seconds')).toBe(0)
    expect(valueIn(text, 'gateway_rate_limit_pressure_seconds')).toBe(0)
    await held.text()
  })

  it('makes one request to the store at most every five seconds, with the stated commands', async () => {
    for (const [config, commands] of [
      [CONFIG, GET_METRICS_COMMANDS],
      [WITH_SHEDDING, GET_METRICS_COMMANDS + 3 * 4],
    ] as const) {
      const isolate = isolateOf(config)
      await isolate.scrape()
      const before = await commandsOf()
      isolate.pass(4999)
      gateway.store.count()
      await isolate.scrape()
      expect(gateway.store.count()).toBe(0)
      isolate.pass(1)
      await isolate.scrape()
      expect(gateway.store.count()).toBe(1)
      expect((await commandsOf()) - before).toBeLessThanOrEqual(commands)
    }
  })

  /** The commands that Redis has processed, also in scripts, except those of this function. */
  async function commandsOf(): Promise<number> {
    const info = String(await gateway.redis.connection.send(['INFO', 'commandstats']))
    const counts = [...info.matchAll(/cmdstat_(\S+?):calls=(\d+)/g)]
    return counts.reduce((sum, [, name, calls]) => (name === 'info' ? sum : sum + Number(calls)), 0)
  }

  it('adds two commands to a flush', async () => {
    const cost = async (config: Partial<ConfigInput> & Pick<ConfigInput, 'rules'>) => {
      const isolate = isolateOf(config)
      // The record of refused callers, which is new with the first of them, takes a command more.
      await send(isolate, 2)
      await isolate.flush()
      await send(isolate, 1)
      const before = await commandsOf()
      await isolate.flush()
      return (await commandsOf()) - before
    }
    const { metrics: _, ...without } = CONFIG
    expect((await cost(CONFIG)) - (await cost(without))).toBe(2)
  })

  it('needs the secret', async () => {
    const { app } = isolateOf()
    const statuses = []
    for (const authorization of [
      '',
      'Bearer wrong',
      `Bearer ${METRICS_SECRET}x`,
      `Basic ${METRICS_SECRET}`,
    ]) {
      gateway.store.count()
      const reply = await app('/_sluice/metrics', { headers: { authorization } })
      statuses.push([reply.status, gateway.store.count()])
    }
    expect(statuses).toEqual([401, 401, 401, 401].map(status => [status, 0]))
  })

  it('does not exist without the secret or without the setting, and warns of a short secret', async () => {
    const { metrics: _, ...without } = CONFIG
    const headers = { authorization: `Bearer ${METRICS_SECRET}` }
    for (const [config, variables] of [
      [CONFIG, {}],
      [CONFIG, { SLUICE_METRICS_TOKEN: '' }],
      [without, { SLUICE_METRICS_TOKEN: METRICS_SECRET }],
    ] as const) {
      const { app } = createIsolate(gateway, config, { variables })
      expect((await app('/_sluice/metrics', { headers })).status).toBe(404)
    }
    expect(warnings).toEqual([])
    createIsolate(gateway, CONFIG, { variables: { SLUICE_METRICS_TOKEN: 'short' } })
    expect(warnings).toEqual([expect.stringMatching(/^SLUICE_METRICS_TOKEN: has 5 characters/)])
  })

  it('says in an outage that the store is down, and has what this isolate has counted', async () => {
    const isolate = isolateOf({ ...CONFIG, onStoreFailure: 'open' })
    await send(isolate, 1)
    await isolate.flush()
    gateway.store.fault = down
    await send(isolate, 6)
    const text = await isolate.scrape()
    expect(valueIn(text, 'sluice_store_up')).toBe(0)
    expect(valueIn(text, 'sluice_breaker_open')).toBe(1)
    // Absent, because a counter that falls and rises again would look like millions of requests.
    expect(text).not.toContain('gateway_rate_limit_')
    const unsent = (cause: string) =>
      valueIn(text, 'sluice_unsent_requests', { outcome: 'failed_open', cause })
    expect(unsent('store-unreachable')! + unsent('breaker-open')!).toBe(6)
    gateway.store.fault = undefined
  })

  it('also pushes to a collector, with the flush that happens anyway', async () => {
    const bodies: string[] = []
    vi.spyOn(globalThis, 'fetch').mockImplementation((input, init) => {
      if (!String(input).startsWith('https://otlp.example')) return realFetch(input, init)
      bodies.push(String(init?.body))
      return Promise.resolve(Response.json({}))
    })
    const isolate = isolateOf({ ...CONFIG, metrics: { otlp: { url: 'https://otlp.example/v1/metrics' } } })
    await send(isolate, 2)
    expect(bodies).toEqual([])
    await isolate.flush()
    expect(bodies).toEqual([expect.stringContaining('"sluice.origin.duration"')])
    expect(bodies[0]).not.toContain(ADDRESS.address)
  })

  it('answers within the deadline of the store while the store hangs', async () => {
    const isolate = isolateOf({ ...CONFIG, store: { deadline: '30ms' } })
    gateway.store.fault = request => void request.resume()
    expect(valueIn(await isolate.scrape(), 'sluice_store_up')).toBe(0)
    gateway.store.fault = undefined
  })

  describe(`promtool${WITHOUT_PROMTOOL}`, { skip: WITHOUT_PROMTOOL !== '' }, () => {
    it('finds nothing wrong with the metrics, also in an outage', async () => {
      const isolate = isolateOf(WITH_SHEDDING)
      await send(isolate, 6)
      await isolate.flush()
      isolate.pass(5000)
      const text = await isolate.scrape()
      expect(text.match(/^# TYPE/gm)!.length).toBeGreaterThan(15)
      expect(promtool(['check', 'metrics'], text)).toBe('')
      gateway.store.fault = down
      await send(isolate, 2)
      isolate.pass(5000)
      expect(promtool(['check', 'metrics'], await isolate.scrape())).toBe('')
      gateway.store.fault = undefined
    })
  })
})
