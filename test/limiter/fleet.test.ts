/**
 * Simulates whole fleets, as docs/concurrency.md describes for very many isolates. With SOAK=1, a thousand isolates run; their figures
 * are in the table of that page.
 */
import { describe, expect, it } from 'vitest'
import { runFleet } from '../support/fleet.ts'

/** A thousand isolates take a minute: `npm run test:soak` runs them. */
const SOAK = process.env.SOAK !== undefined
const isolates = SOAK ? 1000 : 110
const common = { isolates, limit: 10 * isolates, seconds: SOAK ? 8 : 4 }

/** Calls that access the rule's key, per request. */
const callsOf = ({ decided, messages, requests }: Awaited<ReturnType<typeof runFleet>>) =>
  (decided + messages) / requests

describe('a fleet with units in advance', { timeout: 300_000 }, () => {
  it('makes far fewer calls than a fleet without them, if the limit has room', async () => {
    // Isolates that found too few others repeat their request for units only after five seconds, so this test runs longer.
    const advance = await runFleet({ ...common, seconds: 12, load: 0.5 })
    expect(advance.refused).toBe(0)
    // Without units in advance there would be one call for each request, and more than half a message for its end.
    expect(callsOf(advance)).toBeLessThan(0.8)
    expect(advance.left).toBe(0)
  })

  it('uses the whole limit, and never exceeds it, with more requests than it admits', async () => {
    const { peak, utilization, left } = await runFleet({ ...common, load: 1.2 })
    expect(peak).toBeLessThanOrEqual(1)
    expect(utilization).toBeGreaterThan(0.97)
    expect(left).toBe(0)
  })

  it('never exceeds the limit if replies are lost and isolates die, and can use all of it again afterwards', async () => {
    const deaths = Math.round(isolates / 4)
    const { peak, left } = await runFleet({ ...common, load: 1, lost: 0.02, deaths })
    expect(peak).toBeLessThanOrEqual(1)
    expect(left).toBe(0)
  })

  it.runIf(SOAK)('SOAK=1: never exceeds the limit if the store fails for two seconds', async () => {
    const { peak, utilization, left } = await runFleet({ ...common, load: 1, outageMs: 2000 })
    expect(peak).toBeLessThanOrEqual(1)
    expect(utilization).toBeLessThan(0.9)
    expect(left).toBe(0)
  })

  it.runIf(SOAK)(
    'SOAK=1: exceeds the limit at most by the units in flight when the store lost its data',
    async () => {
      const { peak, left } = await runFleet({ ...common, load: 1.5, isEmptied: true })
      expect(peak).toBeLessThanOrEqual(2)
      expect(left).toBe(0)
    },
  )

  it.runIf(SOAK)('SOAK=1: refuses hardly any request when all requests move to other isolates', async () => {
    const moved = { isolates: 600, limit: 2000, seconds: 12, load: 0.9, moves: true }
    const { requests, refused, peak, left } = await runFleet(moved)
    expect(refused).toBeLessThan(0.01 * requests)
    expect(peak).toBeLessThanOrEqual(1)
    expect(left).toBe(0)
  })
})
