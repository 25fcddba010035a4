/** Simulates whole fleets whose rule counts all requests in flight. With SOAK=1, a thousand isolates run. */
import { describe, expect, it } from 'vitest'
import { runFleet } from '../../support/fleet.ts'

/** A thousand isolates take a minute: `npm run test:soak` runs them. */
const SOAK = process.env.SOAK !== undefined
const isolates = SOAK ? 1000 : 110
const common = { isolates, limit: 10 * isolates, seconds: SOAK ? 8 : 4 }

describe('a fleet', { timeout: 300_000 }, () => {
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
})
