/** What an isolate measures for metrics: bounded, and each value sent once. */
import { expect, it } from 'vitest'
import { createMeasurements } from '../../src/metrics/measurements.ts'
import type { ObservedVerdict } from '../../src/metrics/observation.ts'
import { sumMeasurements } from '../../src/metrics/sums.ts'
import type { Store } from '../../src/store/store.ts'
import { rulesOf } from '../support/engines.ts'

const [RULE, BURST] = rulesOf(
  { name: 'minute', by: 'address', algorithm: 'fixed-window', limit: 100, period: '1m' },
  { name: 'burst', by: 'address', algorithm: 'gcra', limit: 100, period: '1m', burst: 10 },
)

const verdict = (remaining: number, rule = RULE!): ObservedVerdict => ({
  rule,
  mode: 'enforce',
  allowed: true,
  remaining,
})

const read = (of: ReturnType<typeof createMeasurements>) => {
  const { usage, totals } = of.take()
  return sumMeasurements(totals, usage)
}

it('the highest share of a limit is that of any identity, and of its burst', () => {
  const measurements = createMeasurements()
  for (const remaining of [90, 20, 50])
    measurements.record({ outcome: 'allowed', verdicts: [verdict(remaining), verdict(9, BURST)] })
  measurements.record({ limit: 'mail', outcome: 'allowed', verdicts: [verdict(75)] })
  expect([...read(measurements).usage]).toEqual([
    ['minute', 0.8],
    ['burst', 0.1],
    ['mail/minute', 0.25],
  ])
  expect([...read(measurements).usage]).toEqual([])
})

it('the highest share that a request has reserved, and the highest debt, are those of rules with reservations', () => {
  const measurements = createMeasurements()
  for (const [reserved, debt] of [
    [20, 0],
    [5, 150],
  ] as const)
    measurements.record({
      outcome: 'allowed',
      verdicts: [{ ...verdict(0), reserved, debt }, verdict(9, BURST)],
    })
  const { reserved, debt } = read(measurements)
  expect([[...reserved], [...debt]]).toEqual([[['minute', 0.2]], [['minute', 1.5]]])
})

it('a shedder has no limit, and without the store an isolate does not know how much is used', () => {
  const measurements = createMeasurements()
  const { remaining: _, ...shed } = verdict(0)
  measurements.record({ outcome: 'shed', verdicts: [shed] })
  measurements.record({ outcome: 'allowed', cause: 'store-timeout', verdicts: [verdict(0)] })
  expect(read(measurements).usage.size).toBe(0)
})

it('durations are counted in buckets with upper bounds', () => {
  const measurements = createMeasurements()
  for (const ms of [0, 1, 1.5, 30_000, 30_001]) measurements.recordOrigin(ms)
  const { buckets, sumMs } = read(measurements).times.get('origin')!
  expect([buckets.slice(0, 2), buckets.slice(-2), sumMs]).toEqual([[2, 1], [1, 1], 60_004])
})

it('what has not arrived is sent again, and an outage does not make it larger', async () => {
  const measurements = createMeasurements()
  const store: Store = measurements.watch({ run: async () => [], ping: async () => {} })
  let fields = 0
  for (let i = 0; i < 100; i++) {
    measurements.record({ outcome: 'allowed', storeMs: 3, verdicts: [verdict(100 - i)] })
    await store.ping()
    measurements.noteStoreChange(true)
    const measured = measurements.take()
    fields = measured.totals.length
    measurements.putBack(measured)
  }
  expect(fields).toBe(5)
  const { times, usage, trips, breakerOpened } = read(measurements)
  expect([times.get('decision')!.sumMs, usage.get('minute'), trips, breakerOpened]).toEqual([
    300, 0.99, 100, 100,
  ])
})
