/** The output of `npx sluicegate stats`: tables, JSON, and text for Prometheus. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { callFor } from '../../src/metrics/add-counts.ts'
import { prometheusText, startOfDay } from '../../src/metrics/prometheus.ts'
import { statsCommand } from '../../src/node/cli/stats.ts'
import { type StatsFilter, statsText } from '../../src/node/cli/stats-output.ts'
import { filterByRule, readStats, readTotals } from '../../src/ops/stats.ts'
import { startAdmin, type TestAdmin } from '../support/admin.ts'
import { startRedis, type TestRedis } from '../support/redis.ts'

const INPUT: ConfigInput = {
  origin: 'route',
  rules: [
    { name: 'minute', by: 'consumer', algorithm: 'fixed-window', limit: 10, period: '1m' },
    {
      name: 'log',
      by: 'consumer',
      algorithm: 'sliding-log',
      limit: 10,
      period: '1m',
      candidateFor: 'minute',
    },
    { name: 'idle', by: 'address', algorithm: 'gcra', limit: 10, period: '1m' },
  ],
}

const NAMES = INPUT.rules!.map(({ name }) => name)

let admin: TestAdmin<TestRedis>
beforeAll(async () => {
  admin = await startAdmin(await startRedis())
})
afterAll(() => admin?.close())
beforeEach(async () => {
  await admin.redis.connection.send(['FLUSHALL'])
})

const HOUR_MS = 3600e3

const NO_CALLS = { calls: [], callsWithoutTrip: {}, lostCalls: 0 }

/** An hour ago, because the current hour may have just begun. */
const lately = () => new Date(Date.now() - HOUR_MS)

async function count(counts: Record<string, number>, at = new Date()): Promise<void> {
  await admin.store.decisions.run([callFor(Object.entries(counts), at)])
}

/** Makes the text that the command prints. */
async function show(shown: StatsFilter = {}, input: Partial<ConfigInput> = {}): Promise<string> {
  const all = await readStats(admin.store, lately())
  const stats = shown.rule === undefined ? all : filterByRule(all, shown.rule, NAMES)
  return statsText(stats, shown, NAMES, checkedConfig({ ...INPUT, ...input }))
}

const RESERVATIONS = {
  'reservation made llm/tokens': 9,
  'reservation settled llm/tokens': 7,
  'reservation late llm/tokens': 1,
  'units reserved llm/tokens': 18_000,
  'units cost llm/tokens': 5117,
}

const COUNTS = {
  'request allowed - -': 900,
  'request allowed - reports': 99,
  'request limited - reports': 1,
  'request failed_open store-timeout -': 4,
  'request failed_open breaker-open -': 6,
  'rule allowed minute - free': 900,
  'rule allowed minute reports pro': 99,
  'rule limited minute reports pro': 1,
  'rule shadow_allowed log - free': 899,
  'rule shadow_limited log - free': 1,
  'candidate agreed log - free': 899,
  'candidate disagreed log - free': 1,
  'rule allowed gone - free': 3,
}

const CALLS = {
  'call allowed - zendesk': 30,
  'call limited - zendesk': 10,
  'call failed_open store-timeout zendesk': 1,
  'call allowed - mail': 2,
  'rule allowed zendesk/minute - -': 30,
  'rule limited zendesk/minute - -': 10,
}

describe('the counters', () => {
  const NOW = new Date('2026-11-21T08:30:40Z')
  const ago = (ms: number) => new Date(NOW.getTime() - ms)
  /** What a flush at this time adds. */
  const flushAt = (at: Date, count: number) =>
    admin.store.decisions.run([callFor([['request allowed - -', count]], at)])
  const read = async (backMs: number) => {
    const { unit, since, requests } = await readStats(admin.store, ago(backMs), NOW)
    return [unit, since.toISOString(), requests[0]?.count]
  }

  it('are read by the minute up to two hours back, by the hour up to seven days, else by the day', async () => {
    const flushes = [
      30e3,
      9 * 60e3,
      11 * 60e3,
      3 * HOUR_MS,
      2 * 24 * HOUR_MS,
      29 * 24 * HOUR_MS,
      399 * 24 * HOUR_MS,
    ]
    // In the order of time.
    for (const [i, backMs] of [...flushes.entries()].reverse()) await flushAt(ago(backMs), 10 ** i)
    expect(await read(10 * 60e3)).toEqual(['minute', '2026-11-21T08:20:00.000Z', 11])
    expect(await read(2 * HOUR_MS)).toEqual(['minute', '2026-11-21T06:30:00.000Z', 111])
    expect(await read(2 * HOUR_MS + 1)).toEqual(['hour', '2026-11-21T06:00:00.000Z', 111])
    expect(await read(24 * HOUR_MS)).toEqual(['hour', '2026-11-20T08:00:00.000Z', 1111])
    expect(await read(7 * 24 * HOUR_MS)).toEqual(['hour', '2026-11-14T08:00:00.000Z', 11_111])
    expect(await read(30 * 24 * HOUR_MS)).toEqual(['day', '2026-10-22T00:00:00.000Z', 111_111])
    expect(await read(400 * 24 * HOUR_MS)).toEqual(['day', '2025-10-17T00:00:00.000Z', 1_111_111])
  })

  it('of an isolate whose clock is a little ahead are read', async () => {
    await flushAt(new Date(NOW.getTime() + 30e3), 1)
    expect(await read(10 * 60e3)).toEqual(['minute', '2026-11-21T08:20:00.000Z', 1])
  })

  it('are read in one request to the store', async () => {
    admin.proxy.count()
    await read(2 * HOUR_MS)
    expect(admin.proxy.count()).toBe(1)
  })

  it('of one environment are separate from those of another', async () => {
    await count(COUNTS)
    const { requests } = await readStats(admin.storeOf({ environment: 'live' }), lately())
    expect(requests).toEqual([])
  })

  it('of kinds that only a newer version has are ignored', async () => {
    await count({ 'request allowed - -': 1, 'weather fine - -': 7, 'rule weathered minute - -': 7 })
    const { rules, requests } = await readStats(admin.store, lately())
    expect([rules, requests.length]).toEqual([[], 1])
  })
})

describe('npx sluicegate stats', () => {
  it('shows the verdicts of each rule, and what a shadow rule would have allowed and denied', async () => {
    await count({ ...COUNTS, lost: 5 })
    const lines = (await show()).split('\n')
    expect(lines[0]).toMatch(/^Since \d{4}-\d\d-\d\d \d\d:\d\d UTC, the start of a minute:$/)
    expect(lines.slice(2)).toEqual([
      'RULE    ALLOWED  DENIED     WOULD ALLOW  WOULD DENY  AGREES',
      'minute  999      1 (0.1 %)',
      'log                         899          1 (0.1 %)   99.9 % with minute',
      'gone    3        0 (0 %)',
      '',
      'REQUESTS     CAUSE          COUNT  SHARE',
      'allowed                     999    98.9 %',
      'failed_open  breaker-open   6      0.6 %',
      'failed_open  store-timeout  4      0.4 %',
      'limited                     1      < 0.1 %',
      'all                         1010',
      '',
      'The counters of 5 more requests may be missing: the store did not confirm them.',
    ])
  })

  it('shows calls of limits by name apart from requests', async () => {
    const input: Partial<ConfigInput> = {
      limits: {
        zendesk: [{ name: 'minute', algorithm: 'gcra', limit: 1, period: '1m' }],
        mail: [{ name: 'pace', algorithm: 'leaky-bucket', limit: 1, period: '1s' }],
      },
    }
    await count({ ...CALLS, 'call-without-trip refusals zendesk': 4, 'lost-calls': 2 })
    const calls = [
      'CALLS OF  OUTCOME      CAUSE          COUNT  SHARE',
      'zendesk   allowed                     30     73.2 %',
      'zendesk   limited                     10     24.4 %',
      'zendesk   failed_open  store-timeout  1      2.4 %',
      'mail      allowed                     2      100 %',
      '',
      'Calls decided without a trip to the store: 4 (9.3 %) refused from memory.',
      '',
      'The counters of 2 more calls may be missing: the store did not confirm them.',
    ]
    const rows = [
      'RULE            ALLOWED  DENIED     WOULD ALLOW  WOULD DENY  AGREES',
      'zendesk/minute  30       10 (25 %)',
    ]
    expect((await show({}, input)).split('\n').slice(2)).toEqual([...rows, '', ...calls])
    expect((await show({ rule: 'zendesk/minute' }, input)).split('\n').slice(2, 4)).toEqual(rows)
    await count({ 'request allowed - -': 3 })
    expect((await show({}, input)).split('\n').slice(5)).toEqual([
      'REQUESTS  CAUSE  COUNT  SHARE',
      'allowed          3      100 %',
      'all              3',
      '',
      ...calls,
    ])
  })

  it('shows what rules have reserved, and what the requests have cost', async () => {
    await count({ 'request allowed - -': 3, ...RESERVATIONS })
    const table = [
      'RESERVATIONS OF  MADE  SETTLED  LATE  GIVEN UP  UNITS RESERVED  COST  DEBT MADE',
      'llm/tokens       9     7        1     0         18000           5117  0',
      '',
      'LATE: settled after they had ended, or twice. The settlement changed nothing.',
    ]
    const lines = (await show()).split('\n')
    expect(lines.slice(-4)).toEqual(table)
    const tokens: ConfigInput['rules'] = [
      { name: 'tokens', unit: 'tokens', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1m' },
    ]
    const units = { tokens: { estimate: 5, actual: { usage: 'openai' } } } as const
    expect(await show({}, { rules: tokens, units })).toContain(
      'COST: of a background response or a batch, the estimate.',
    )
    await count({ 'unsettled minute': 2 })
    const own = (await show({ rule: 'minute' })).split('\n')
    expect(own.slice(-3)).toEqual([
      'minute           0     0        0     2         0               0     0',
      '',
      'GIVEN UP: the store did not confirm the settlement in time, so onUnsettled of the unit applies.',
    ])
    const { reservations } = filterByRule(await readStats(admin.store, lately()), 'llm/tokens', [
      'llm/tokens',
    ])
    const counts = { made: 9, settled: 7, late: 1, unsettled: 0, reserved: 18_000, cost: 5117, debt: 0 }
    expect(reservations).toEqual({ 'llm/tokens': counts })
  })

  it('groups by route and by plan, and can show only one rule', async () => {
    await count(COUNTS)
    expect((await show({ by: 'route', rule: 'minute' })).split('\n').slice(2)).toEqual([
      'RULE    ROUTE    ALLOWED  DENIED   WOULD ALLOW  WOULD DENY  AGREES',
      'minute  (none)   900      0 (0 %)',
      'minute  reports  99       1 (1 %)',
    ])
    expect(await show({ by: 'plan' })).toMatch(/^log +free +899 /m)
  })

  it('explains why nothing was counted, or nothing for a rule', async () => {
    expect(await show()).toMatch(/^Nothing was counted since .* Counters arrive up to 10 s after a request/)
    expect(await show({}, { stats: { keep: false } })).toMatch(
      /The config has stats: { keep: false }\. Remove it to count requests\.$/,
    )
    expect(await show({}, { environment: 'live' })).toMatch(
      /Only counters of environment 'live' are shown\.$/,
    )
    await count(COUNTS)
    expect(await show({ rule: 'idle' })).toMatch(/\n\nRule 'idle' was not evaluated\.$/)
    await expect(show({ rule: 'nowhere' })).rejects.toMatchObject({
      kind: 'not-found',
      message: "The config has no rule 'nowhere'. Rules: minute, log, idle.",
    })
  })

  it.each([
    ['--since', '30s'],
    ['--since', '401d'],
    ['--since', 'yesterday'],
    ['--by', 'consumer'],
    ['--prometheus', '--json'],
    ['--prometheus', '--since', '2h'],
  ])('does not accept %s %s', async (...args) => {
    const command = statsCommand(() => Promise.reject())
      .exitOverride()
      .configureOutput({ writeErr: () => {} })
    await expect(command.parseAsync(args, { from: 'user' })).rejects.toThrow()
  })
})

describe('npx sluicegate stats --prometheus', () => {
  it('prints counters with labels', async () => {
    await count({ ...COUNTS, lost: 5 })
    expect(prometheusText(await readStats(admin.store, lately())).split('\n')).toEqual([
      '# HELP gateway_rate_limit_decisions_total Verdicts of rules.',
      '# TYPE gateway_rate_limit_decisions_total counter',
      'gateway_rate_limit_decisions_total{policy="minute",route="",plan="free",outcome="allowed"} 900',
      'gateway_rate_limit_decisions_total{policy="minute",route="",plan="free",outcome="limited"} 0',
      'gateway_rate_limit_decisions_total{policy="minute",route="reports",plan="pro",outcome="allowed"} 99',
      'gateway_rate_limit_decisions_total{policy="minute",route="reports",plan="pro",outcome="limited"} 1',
      'gateway_rate_limit_decisions_total{policy="log",route="",plan="free",outcome="shadow_allowed"} 899',
      'gateway_rate_limit_decisions_total{policy="log",route="",plan="free",outcome="shadow_limited"} 1',
      'gateway_rate_limit_decisions_total{policy="gone",route="",plan="free",outcome="allowed"} 3',
      'gateway_rate_limit_decisions_total{policy="gone",route="",plan="free",outcome="limited"} 0',
      '# HELP gateway_rate_limit_candidate_verdicts_total Verdicts of candidates, compared with those of the replaced rule.',
      '# TYPE gateway_rate_limit_candidate_verdicts_total counter',
      'gateway_rate_limit_candidate_verdicts_total{policy="log",route="",plan="free",agreement="agreed"} 899',
      'gateway_rate_limit_candidate_verdicts_total{policy="log",route="",plan="free",agreement="disagreed"} 1',
      '# HELP gateway_rate_limit_requests_total Outcomes of requests.',
      '# TYPE gateway_rate_limit_requests_total counter',
      'gateway_rate_limit_requests_total{outcome="allowed",cause="",route=""} 900',
      'gateway_rate_limit_requests_total{outcome="allowed",cause="",route="reports"} 99',
      'gateway_rate_limit_requests_total{outcome="limited",cause="",route="reports"} 1',
      'gateway_rate_limit_requests_total{outcome="failed_open",cause="store-timeout",route=""} 4',
      'gateway_rate_limit_requests_total{outcome="failed_open",cause="breaker-open",route=""} 6',
      '# HELP gateway_rate_limit_store_errors_total Requests that the store failed to decide.',
      '# TYPE gateway_rate_limit_store_errors_total counter',
      'gateway_rate_limit_store_errors_total{reason="timeout"} 4',
      '# HELP gateway_rate_limit_lost_requests_total Requests whose counters may not have arrived.',
      '# TYPE gateway_rate_limit_lost_requests_total counter',
      'gateway_rate_limit_lost_requests_total 5',
      '',
    ])
  })

  it('prints calls of limits by name', async () => {
    await count({ ...CALLS, 'call-without-trip leases mail': 1, 'lost-calls': 2 })
    const lines = prometheusText(await readStats(admin.store, lately())).split('\n')
    expect(lines.filter(line => line.startsWith('gateway'))).toEqual([
      'gateway_rate_limit_decisions_total{policy="zendesk/minute",route="",plan="",outcome="allowed"} 30',
      'gateway_rate_limit_decisions_total{policy="zendesk/minute",route="",plan="",outcome="limited"} 10',
      'gateway_rate_limit_lost_requests_total 0',
      'gateway_rate_limit_calls_total{limit="zendesk",outcome="allowed",cause=""} 30',
      'gateway_rate_limit_calls_total{limit="zendesk",outcome="limited",cause=""} 10',
      'gateway_rate_limit_calls_total{limit="zendesk",outcome="failed_open",cause="store-timeout"} 1',
      'gateway_rate_limit_calls_total{limit="mail",outcome="allowed",cause=""} 2',
      'gateway_rate_limit_calls_without_trip_total{from="leases"} 1',
      'gateway_rate_limit_lost_calls_total 2',
    ])
  })

  it('prints what became of reservations, by rule, from 0 on', async () => {
    await count({ ...RESERVATIONS, 'unsettled minute': 2 })
    const lines = prometheusText(await readStats(admin.store, lately())).split('\n')
    expect(lines.filter(line => /^sluice_.*\{policy="llm\/tokens"/.test(line))).toEqual([
      'sluice_reservations_made_total{policy="llm/tokens"} 9',
      'sluice_reservations_ended_total{policy="llm/tokens",end="settled"} 7',
      'sluice_reservations_ended_total{policy="llm/tokens",end="late"} 1',
      'sluice_reservations_ended_total{policy="llm/tokens",end="unsettled"} 0',
      'sluice_reserved_units_total{policy="llm/tokens"} 18000',
      'sluice_cost_units_total{policy="llm/tokens"} 5117',
      'sluice_debt_units_total{policy="llm/tokens"} 0',
    ])
    expect(lines).toContain('sluice_reservations_ended_total{policy="minute",end="unsettled"} 2')
  })

  it('counts from midnight, so that counters start at zero once a day and otherwise never shrink', () => {
    expect(startOfDay(new Date('2026-11-21T23:59:59.999Z'))).toEqual(new Date('2026-11-21T00:00:00Z'))
    expect(startOfDay(new Date('2026-11-22T00:00:00Z'))).toEqual(new Date('2026-11-22T00:00:00Z'))
  })

  it('with metrics, has the same counters as the gateway, which do not restart at midnight', async () => {
    const measured = { usage: [['usage minute', 500_000]], totals: [['time-origin 50', 3]] } as const
    for (const at of [new Date(), new Date(Date.now() - 100 * 24 * HOUR_MS)])
      await admin.store.decisions.run([callFor([['request allowed - -', 2]], at, measured)])
    const { sums, measured: read } = await readTotals(admin.store)
    const text = prometheusText(sums, {}, read)
    expect(text).toContain('gateway_rate_limit_requests_total{outcome="allowed",cause="",route=""} 4\n')
    expect(text).toContain('sluice_limit_usage_ratio{policy="minute"} 0.5\n')
    expect(text).toContain('sluice_origin_duration_seconds_bucket{le="0.025"} 0\n')
    expect(text).toContain('sluice_origin_duration_seconds_bucket{le="0.05"} 6\n')
  })

  it('escapes every label from the store', () => {
    const requests = [{ outcome: 'a"b', cause: 'c\\d', route: 'e\nf', count: 1 }]
    expect(
      prometheusText({
        rules: [],
        requests,
        withoutTrip: { refusals: 2 },
        test: {},
        lost: 0,
        ...NO_CALLS,
      }),
    ).toContain('{outcome="a\\"b",cause="c\\\\d",route="e\\nf"} 1\n')
  })
})
