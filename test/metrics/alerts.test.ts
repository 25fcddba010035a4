/**
 * The alert rules and the dashboard of ops/: which fault of the anomaly suite fires which alert, as ops/README.md says, within two
 * minutes, and none else. promtool evaluates them on the scrapes of a gateway in virtual time.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { ConfigInput, RuleInput } from '../../src/config/check/schema.ts'
import { callFor } from '../../src/metrics/add-counts.ts'
import { killLimits, restoreLimits } from '../../src/ops/switches.ts'
import { STORE_FAULTS } from '../anomaly/faults-of-store.ts'
import { armHttp } from '../support/fault-proxy.ts'
import { type TestGateway, useGateway } from '../support/gateway.ts'
import { ROOT } from '../support/pages.ts'
import { promtool, WITHOUT_PROMTOOL } from '../support/promtool.ts'
import {
  inputSeries,
  SCRAPE_MS,
  type ScrapedGateway,
  type Senders,
  startScrapedGateway,
} from '../support/scraped-gateway.ts'

const ALERTS = join(ROOT, 'ops/prometheus/alerts.yml')
const MINUTE_MS = 60_000

const RULE = {
  ...{ name: 'minute', by: 'address', algorithm: 'fixed-window', limit: 100, period: '1m' },
} as const satisfies RuleInput

const UNITS: ConfigInput['units'] = { size: { estimate: 5, actual: 'bytes', ttl: '10s' } }
const SIZE: RuleInput = { ...RULE, name: 'size', unit: 'size', limit: 1000 }

const CONFIG: Partial<ConfigInput> = {
  credentials: { accept: ['api-key', 'anonymous'] },
  rules: [RULE],
}

const OUTAGE = ['SluiceStoreDown', 'SluiceDecisionsWithoutStore', 'SluiceBreakerOpen']

const readDashboard = () =>
  (
    JSON.parse(readFileSync(join(ROOT, 'ops/grafana/sluice.json'), 'utf8')) as {
      panels: { title: string; targets?: { expr: string }[] }[]
    }
  ).panels

const UTILIZATION = 'gateway_rate_limit_worker_utilization 0.5'

const OUTAGE_ROW = 'The store is unreachable, hangs, or answers with an error or nonsense'

interface Scenario {
  name: string
  /** The first column of its row in ops/README.md. Absent: nothing happens. */
  row?: string
  fires: readonly string[]
  config?: Partial<ConfigInput>
  /** Callers during the fault. */
  senders?: Senders
  /** API keys of as many consumers are used during the fault. */
  consumers?: number
  begin(gateway: TestGateway, scraped: ScrapedGateway): unknown
  end?(gateway: TestGateway): unknown
}

const IS_WHOLE = process.env.ANOMALIES === 'all'

const ofStore = STORE_FAULTS.filter(({ isTypical, isHarmless }) => IS_WHOLE || isTypical || isHarmless).map(
  ({ name, fault, isHarmless, decides }): Scenario => ({
    name: `a store that ${name}`,
    row: isHarmless || decides ? 'The store is slow, but within its deadline' : OUTAGE_ROW,
    fires: isHarmless || decides ? [] : OUTAGE,
    async begin({ store }, scraped) {
      if (fault) armHttp(store, fault, () => true)
      else await store.shut()
      scraped.isHanging = fault !== undefined && !isHarmless && !decides
    },
    end: ({ store }) => !fault && store.open(),
  }),
)

const down = STORE_FAULTS.find(({ name }) => name.startsWith('answers 503'))!.fault!

const SCENARIOS: readonly Scenario[] = [
  {
    name: 'no fault',
    fires: [],
    config: { units: UNITS, rules: [RULE, SIZE] },
    begin: () => {},
  },
  ...ofStore,
  {
    name: 'a store of which every tenth call fails',
    row: 'Every tenth call to the store fails',
    fires: ['SluiceDecisionsWithoutStore'],
    begin: ({ store }) => armHttp(store, down, n => n % 10 === 5),
  },
  {
    name: 'a Redis that has lost its data',
    row: 'Redis loses its data',
    fires: [],
    begin: ({ redis }) => redis.connection.send(['FLUSHALL']),
  },
  {
    name: 'an origin that does not answer',
    row: 'The origin does not answer',
    fires: [],
    config: { origin: 'http://127.0.0.1:1' },
    begin: () => {},
  },
  {
    name: 'callers without a name that are refused',
    row: 'Callers without a consumer are refused all the time',
    fires: [],
    senders: { addresses: 1 },
    begin: () => {},
  },
  {
    name: 'a consumer that is refused',
    row: 'A rule refuses mostly one consumer',
    fires: ['SluiceOneCallerRefused'],
    config: { rules: [{ ...RULE, limit: 1, by: 'consumer' }] },
    consumers: 1,
    begin: () => {},
  },
  {
    name: 'consumers that are refused',
    row: 'A rule refuses many consumers',
    fires: [],
    config: { rules: [{ ...RULE, limit: 1, by: 'global' }] },
    consumers: 5,
    begin: () => {},
  },
  {
    name: 'a Redis that refuses settlements',
    row: 'Redis denies settlements, as its user lacks a permission',
    fires: ['SluiceReservationsUnsettled'],
    config: {
      // These reservations are in a set, and only a settlement looks for one there.
      units: { size: { ...UNITS!.size, onUnsettled: 'release' } },
      rules: [SIZE],
    },
    begin: ({ redis }) => redis.connection.send(['ACL', 'SETUSER', 'default', '-zmscore']),
    end: ({ redis }) => redis.connection.send(['ACL', 'SETUSER', 'default', '+zmscore']),
  },
  {
    name: 'the kill switch',
    row: 'The kill switch is on',
    fires: ['SluiceKillSwitchOn'],
    begin: ({ admin }) => killLimits(admin, { at: new Date(), by: 'ops' }),
    end: ({ admin }) => restoreLimits(admin),
  },
  {
    name: 'an origin that is full',
    row: 'The origin is full, so load is shed',
    fires: ['SluiceShedding'],
    config: {
      shedding: {
        classes: [{ name: 'critical', match: { path: '/held' } }, { name: 'other' }],
        fleetUsage: { capacity: 2 },
      },
    },
    async begin(_, scraped) {
      for (let i = 0; i < 2; i++) await scraped.hold('/held')
    },
    end: async ({ origin }) => void (await (await fetch(`${origin.url}/stream/go-on`)).text()),
  },
]

describe(`the alerts of ops/${WITHOUT_PROMTOOL}`, { skip: WITHOUT_PROMTOOL !== '' }, () => {
  const gateway = useGateway()
  const folder = mkdtempSync(join(tmpdir(), 'sluice-'))
  afterAll(() => rmSync(folder, { recursive: true }))
  beforeEach(() => {
    for (const level of ['info', 'warn', 'error'] as const)
      vi.spyOn(console, level).mockImplementation(() => {})
  })
  afterEach(() => vi.restoreAllMocks())

  /** Three minutes without the fault, three with it, and two without. */
  async function scrapesOf({ config = {}, begin, end, senders, consumers = 0 }: Scenario): Promise<string[]> {
    const names = Array.from({ length: consumers }, (_, i) => `consumer-${i}`)
    const keys = await Promise.all(names.map(name => gateway.key(name)))
    const scraped = startScrapedGateway(gateway, { ...CONFIG, ...config })
    await scraped.run(3 * MINUTE_MS)
    await begin(gateway, scraped)
    await scraped.run(3 * MINUTE_MS, { ...senders, keys })
    gateway.store.fault = undefined
    scraped.isHanging = false
    await end?.(gateway)
    await scraped.run(2 * MINUTE_MS)
    return scraped.scrapes
  }

  /** Runs tests of promtool. */
  function test(tests: readonly object[]): void {
    const file = join(folder, 'recorded.test.yml')
    writeFileSync(file, JSON.stringify({ rule_files: [ALERTS], evaluation_interval: '15s', tests }))
    promtool(['test', 'rules', file])
  }

  const samples = (alerts: readonly string[]) =>
    alerts.map(alert => ({ labels: `{alertname="${alert}"}`, value: 1 }))

  it.each(SCENARIOS)('$name', { timeout: 120_000 }, async scenario => {
    const scrapes = await scrapesOf(scenario)
    const fired = (alerts: readonly string[], atMinute: number) => ({
      expr: `count by (alertname) (last_over_time(ALERTS{alertstate="firing"}[${atMinute}m]))`,
      eval_time: `${atMinute}m`,
      exp_samples: samples(alerts),
    })
    test([
      {
        interval: '15s',
        // The first scrape was after an interval.
        input_series: inputSeries(['', ...scrapes]),
        promql_expr_test: [fired([], 3), fired(scenario.fires, 5), fired(scenario.fires, 8)],
      },
    ])
    expect(scrapes).toHaveLength((8 * MINUTE_MS) / SCRAPE_MS)
  })

  it('are those of the table in ops/README.md', () => {
    const page = readFileSync(join(ROOT, 'ops/README.md'), 'utf8')
    const table = page.slice(page.indexOf('| what happens |')).split('\n\n')[0]!.split('\n').slice(2)
    const rows = table.map(line => {
      const [, what, alerts] = /^\| (.*) \| (.*) \|$/.exec(line)!
      return [what!, [...alerts!.matchAll(/`(Sluice\w+)`/g)].map(([, name]) => name)] as const
    })
    const played = SCENARIOS.flatMap(({ row, fires }) => (row ? [[row, fires] as const] : []))
    expect(new Map(rows)).toEqual(new Map(played))
  })

  it('are shown by the dashboard, each of whose queries finds something in recorded metrics', {
    timeout: 120_000,
  }, async () => {
    const scraped = startScrapedGateway(gateway, {
      ...CONFIG,
      units: UNITS,
      rules: [
        ...[RULE, SIZE, { ...RULE, name: 'trial', limit: 1, mode: 'shadow' } as const],
        { ...RULE, name: 'strict', by: 'consumer', limit: 1 },
      ],
      shedding: {
        classes: [{ name: 'critical', match: { path: '/critical/*' } }, { name: 'other' }],
        fleetUsage: { capacity: 10, adaptive: {} },
        workerUtilization: { signals: ['in-flight'] },
      },
    })
    const seldom = ['without-trip leases -', 'call allowed - mail', 'call-without-trip leases mail'] as const
    const measured = { usage: [], totals: [] }
    await gateway.admin.decisions.run([
      callFor(
        seldom.map(field => [field, 1] as const),
        new Date(),
        measured,
      ),
    ])
    await scraped.run(2 * MINUTE_MS)
    await scraped.run(MINUTE_MS, { keys: [await gateway.key('acme')] })
    armHttp(gateway.store, down, () => true)
    await scraped.run(MINUTE_MS)
    gateway.store.fault = undefined
    const queries = [
      ...new Set(readDashboard().flatMap(({ targets = [] }) => targets.map(({ expr }) => expr))),
    ]
    expect(queries.length).toBeGreaterThan(25)
    const filled = queries.map(expr =>
      expr.replaceAll('$__rate_interval', '1m').replaceAll(/\$(job|instance)/g, '.*'),
    )
    test([
      {
        interval: '15s',
        // The store measures the utilization by its own clock, so virtual time has none.
        input_series: inputSeries([UTILIZATION, ...scraped.scrapes]),
        promql_expr_test: filled.map(expr => ({
          expr: `count(last_over_time((${expr})[4m:15s])) > bool 0`,
          eval_time: '4m',
          exp_samples: [{ labels: '{}', value: 1 }],
        })),
      },
    ])
  })

  it('pass the tests beside them', () => {
    promtool(['check', 'rules', ALERTS])
    promtool(['test', 'rules', join(ROOT, 'ops/prometheus/alerts.test.yml')])
  })
})

describe('the runbooks of the alerts', () => {
  it('exist', () => {
    const text = readFileSync(ALERTS, 'utf8')
    const runbooks = [...text.matchAll(/^ *runbook: (\S+)$/gm)].map(([, link]) => link!.split('#'))
    expect(runbooks).toHaveLength(text.match(/^ *- alert:/gm)!.length)
    for (const [page, anchor] of runbooks) {
      const titles = [...readFileSync(join(ROOT, page!), 'utf8').matchAll(/^#+ (.+)$/gm)].map(
        ([, title]) => title!,
      )
      const anchors = titles.map(title =>
        title
          .toLowerCase()
          .replace(/[^\w -]/g, '')
          .replaceAll(' ', '-'),
      )
      expect(anchors).toContain(anchor)
    }
  })
})
