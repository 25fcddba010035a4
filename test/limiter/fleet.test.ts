/**
 * A whole fleet, simulated: what docs/concurrency.md says of very many isolates. SOAK=1 runs a thousand isolates; their figures are in
 * the table of the page.
 */
import { describe, expect, it } from 'vitest'
import { runFleet } from '../support/fleet.ts'

/** A thousand isolates take a minute: `npm run test:soak` runs them. */
const SOAK = process.env.SOAK !== undefined
const isolates = SOAK ? 1000 : 110
const common = { isolates, limit: 10 * isolates, seconds: SOAK ? 8 : 4 }

/** Reads and writes of the key of the rule, for each request. */
const callsOf = ({ asked, messages, requests }: Awaited<ReturnType<typeof runFleet>>) =>
  (asked + messages) / requests

describe('a fleet that holds units in advance', { timeout: 300_000 }, () => {
  it('asks far less than one that does not, where there is room', async () => {
    // An isolate that has found too few others asks again after five seconds.
    const advance = await runFleet({ ...common, seconds: 12, load: 0.5 })
    expect(advance.refused).toBe(0)
    // Without them each request asks, and its ending takes more than every other time a message of its own.
    expect(callsOf(advance)).toBeLessThan(0.8)
    expect(advance.left).toBe(0)
  })

  it('uses all of the limit, and never more, when there are more requests', async () => {
    const { peak, utilization, left } = await runFleet({ ...common, load: 1.2 })
    expect(peak).toBeLessThanOrEqual(1)
    expect(utilization).toBeGreaterThan(0.97)
    expect(left).toBe(0)
  })

  it('never exceeds the limit, and has all of it again, when replies are lost and isolates die', async () => {
    const deaths = Math.round(isolates / 4)
    const { peak, left } = await runFleet({ ...common, load: 1, lost: 0.02, deaths })
    expect(peak).toBeLessThanOrEqual(1)
    expect(left).toBe(0)
  })

  it.runIf(SOAK)('SOAK=1: never exceeds the limit when the store fails for two seconds', async () => {
    const { peak, utilization, left } = await runFleet({ ...common, load: 1, outageMs: 2000 })
    expect(peak).toBeLessThanOrEqual(1)
    expect(utilization).toBeLessThan(0.9)
    expect(left).toBe(0)
  })

  it.runIf(SOAK)(
    'SOAK=1: exceeds it by no more than was in flight when the store loses everything',
    async () => {
      const { peak, left } = await runFleet({ ...common, load: 1.5, isEmptied: true })
      expect(peak).toBeLessThanOrEqual(2)
      expect(left).toBe(0)
    },
  )

  it.runIf(SOAK)('SOAK=1: refuses hardly a request when all of them move to other isolates', async () => {
    const moved = { isolates: 600, limit: 2000, seconds: 12, load: 0.9, moves: true }
    const { requests, refused, peak, left } = await runFleet(moved)
    expect(refused).toBeLessThan(0.01 * requests)
    expect(peak).toBeLessThanOrEqual(1)
    expect(left).toBe(0)
  })
})
