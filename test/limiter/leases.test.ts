/**
 * Leases in simulated fleets, on the model of the script and a virtual clock: limits are never exceeded, every unit is accounted for,
 * and the number of trips stays below a bound for each shape of traffic.
 */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import type { RuleInput } from '../../src/config/check/schema.ts'
import { type LeaseFleetPlan, type LeaseFleetReport, LOST_MS, runLeaseFleet } from '../support/lease-fleet.ts'
import { expectShare, forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'

const RULE = { by: 'consumer', lease: { for: '250ms' } } as const
const LONG: RuleInput = { ...RULE, name: 'long', algorithm: 'fixed-window', limit: 1000, period: '300d' }

const ALGORITHMS = ['fixed-window', 'sliding-window', 'token-bucket', 'gcra', 'leaky-bucket'] as const

/** Limits that the traffic reaches, and that are large enough for leases. */
const limits = fc.oneof(
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 50 }) },
  { weight: 7, arbitrary: fc.integer({ min: 200, max: 5000 }) },
)

const ruleNamed = (name: string): fc.Arbitrary<RuleInput> =>
  fc
    .record({
      algorithm: fc.constantFrom(...ALGORITHMS),
      limit: limits,
      period: fc.constantFrom('1s' as const, '2s' as const, '1m' as const, '1h' as const),
      forMs: fc.constantFrom(250, 50, 1000, 10_000),
    })
    .map(({ algorithm, limit, period, forMs }): RuleInput => {
      const common = { ...RULE, name, limit, lease: { for: `${forMs}ms` } } as const
      // The config check limits delays to one minute.
      return algorithm === 'leaky-bucket'
        ? { ...common, algorithm, period: '1s', queue: Math.min(limit, 500) }
        : { ...common, algorithm, period }
    })

const plans = (first: fc.Arbitrary<RuleInput>): fc.Arbitrary<LeaseFleetPlan> =>
  fc
    .record({
      rules: fc
        .tuple(first, fc.array(fc.constant(null), { maxLength: 2 }))
        .chain(([rule, others]) =>
          fc.tuple(fc.constant(rule), ...others.map((_, i) => ruleNamed(`other${i}`))),
        ),
      isolates: fc.constantFrom(1, 3, 10, 50),
      // For all isolates together.
      perSecond: fc.array(fc.constantFrom(1000, 2000, 300, 10), { minLength: 1, maxLength: 3 }),
      callers: fc.constantFrom(1, 1, 2, 100),
      costs: fc.constantFrom([1], [1], [1, 5], [1, 2, 40]),
      seconds: fc.constantFrom(1, 2),
      tripMs: fc.constantFrom(1, 6, 100),
      lost: fc.constantFrom(0, 0, 0.02, 0.3),
      deaths: fc.constantFrom(0, 0, 1, 3),
      outageMs: fc.constantFrom(0, 0, 300, 2000),
      refusals: fc.boolean(),
      seed: fc.integer({ min: 1, max: 1e6 }),
    })
    .map(({ perSecond, isolates, ...plan }) => ({
      ...{ ...plan, isolates },
      perSecond: perSecond.map(each => each / isolates),
    }))

/** The most units that the algorithm admits for one caller between two multiples of the period. */
function mostInWindow(rule: RuleInput): number {
  const { limit } = rule as { limit: number }
  switch (rule.algorithm) {
    case 'fixed-window':
    case 'sliding-window':
      return limit
    case 'leaky-bucket':
      return limit + Math.min(limit, 500) + 1
    default:
      return 2 * limit
  }
}

function expectSound(plan: LeaseFleetPlan, report: LeaseFleetReport): void {
  const { requests, admitted, units, refused, failed, trips, spent, givenBack, lost } = report
  expect(spent).toBe(units + givenBack + lost)
  expect(lost).toBeGreaterThanOrEqual(0)
  expect(trips).toBeLessThanOrEqual(requests)
  const { tripMs = 6 } = plan
  // A request waits at most the time of two trips for units of another request, and then makes its own trip.
  expect(report.slowestMs).toBeLessThanOrEqual(
    2 * tripMs + Math.max(tripMs, plan.lost ? LOST_MS + tripMs / 2 : 0) + 0.001,
  )
  if (plan.deaths === 0) expect(admitted + refused + failed).toBe(requests)
  expect(report.mostInWindow).toBeLessThanOrEqual(mostInWindow(plan.rules[0]!) + report.mostHeld)
}

it(`leases never admit a request whose units were not spent, whatever the traffic and the losses (SEED=${SEED})`, async () => {
  const seen = { runs: 0, leased: 0, refused: 0, lost: 0 }
  await forEvery(plans(ruleNamed('first')), 40, async plan => {
    const report = await runLeaseFleet(plan)
    seen.runs += 1
    if (report.leased > 0) seen.leased += 1
    if (report.refused > 0) seen.refused += 1
    if (report.lost > 0) seen.lost += 1
    expectSound(plan, report)
  })
  expectShare('fleets that leased', seen.leased, seen.runs, 0.15)
  expectShare('fleets with refusals', seen.refused, seen.runs, 0.3)
  expectShare('fleets that lost units', seen.lost, seen.runs, 0.2)
})

it(`leases account for every unit of a window that has not ended (SEED=${SEED})`, async () => {
  const seen = { runs: 0, leased: 0 }
  const first = limits.map((limit): RuleInput => ({ ...LONG, limit }) as RuleInput)
  await forEvery(plans(first), 40, async plan => {
    const report = await runLeaseFleet(plan)
    seen.runs += 1
    if (report.leased > 0) seen.leased += 1
    expectSound(plan, report)
    expect(report.counted).toBe(report.units + report.lost)
    const { limit } = plan.rules[0] as { limit: number }
    expect(report.counted).toBeLessThanOrEqual(limit * plan.callers!)
    expect(report.mostInWindow).toBeLessThanOrEqual(limit)
  })
  expectShare('fleets that leased', seen.leased, seen.runs, 0.15)
})

const FREE = { ...LONG, limit: 1_000_000 } as RuleInput
/** Trips per request with 1.25 times as many requests as the limit admits, by algorithm. */
const AT_THE_EDGE = {
  'fixed-window': 0.25,
  'sliding-window': 1,
  'token-bucket': 0.8,
  gcra: 0.8,
  'leaky-bucket': 0.8,
} satisfies Record<(typeof ALGORITHMS)[number], number>

const second = (algorithm: (typeof ALGORITHMS)[number]) =>
  ({
    ...{ ...RULE, name: 'second', algorithm, limit: 800, period: '1s' },
    ...(algorithm === 'leaky-bucket' && { queue: 800 }),
  }) as RuleInput

/** The bounds are 10 to 50 % above the measured values, because other seeds bring other traffic. */
const SHAPES: [string, most: number, LeaseFleetPlan][] = [
  ['steady 10 a second in one isolate', 1, { isolates: 1, perSecond: 10, seconds: 20, rules: [FREE] }],
  ['steady 100 a second in one isolate', 0.1, { isolates: 1, perSecond: 100, seconds: 10, rules: [FREE] }],
  ['steady 1,000 a second in one isolate', 0.02, { isolates: 1, perSecond: 1000, seconds: 5, rules: [FREE] }],
  ['50 isolates with 20 a second each', 0.6, { isolates: 50, perSecond: 20, seconds: 4, rules: [FREE] }],
  ['bursts', 0.12, { isolates: 5, perSecond: [1, 300], seconds: 10, rules: [FREE] }],
  [
    'trips that take half of the lease',
    0.04,
    { isolates: 1, perSecond: 1000, tripMs: 125, seconds: 8, rules: [FREE] },
  ],
  [
    'trips that take longer than the lease',
    0.3,
    { isolates: 1, perSecond: 1000, tripMs: 300, seconds: 8, rules: [FREE] },
  ],
  [
    'a budget that runs out',
    0.3,
    { isolates: 10, perSecond: 60, seconds: 8, rules: [{ ...LONG, limit: 3000 } as RuleInput] },
  ],
  [
    '50 isolates at the end of a budget',
    0.6,
    { isolates: 50, perSecond: 20, seconds: 4, rules: [{ ...LONG, limit: 2000 } as RuleInput] },
  ],
  ...ALGORITHMS.map((algorithm): [string, number, LeaseFleetPlan] => [
    `${algorithm}, always close to its limit`,
    AT_THE_EDGE[algorithm],
    { isolates: 10, perSecond: 100, seconds: 6, rules: [second(algorithm)] },
  ]),
  ['many cold callers', 1, { isolates: 10, perSecond: 100, callers: 1000, seconds: 4, rules: [LONG] }],
]

it.each(SHAPES)(
  `%s: at most %d trips per request, and the budget is used (SEED=${SEED})`,
  async (_, most, plan) => {
    const seeded = { ...plan, seed: SEED }
    const report = await runLeaseFleet(seeded)
    const without = await runLeaseFleet({
      ...seeded,
      rules: plan.rules.map(rule => ({ ...rule, lease: false }) as RuleInput),
    })
    expect(without.leased).toBe(0)
    expect(report.requests).toBe(without.requests)
    expectSound({ ...seeded, deaths: 0 }, report)
    expect(report.units / without.units).toBeGreaterThanOrEqual(0.98)
    const hasQueue = plan.rules.some(({ algorithm }) => algorithm === 'leaky-bucket')
    // A caller with many requests loses only places in a queue. Callers with few requests can also lose unused units: a trip that only
    // gives units back is made only if leases have saved a trip before.
    if ((plan.callers ?? 1) === 1 && !hasQueue) expect(report.lost).toBe(0)
    expect(report.trips / report.requests).toBeLessThanOrEqual(most)
  },
)
