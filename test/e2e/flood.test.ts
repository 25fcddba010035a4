/**
 * A flood over the real Worker: 1,000 requests at once, 1,200 in total, against a limit of 10. The period is long, so the number of
 * admitted requests does not depend on the speed of the machine. If a busy machine makes the store look slow, the isolate decides requests
 * itself, within the budget that the store has left, and marks their replies. Only a rule with `onStoreFailure: 'open'` admits more, once
 * two probes have timed out. If the replies that admit arrive after the deadline, the store has spent the whole budget and the isolate
 * admits no request: a spending call that may have run is never repeated. For the same reason, a hand-over that is lost before the store has
 * it is not repeated. Then the store admits as many more as it does not know of.
 */
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { type FloodBed, startFloodBed, withStatus } from '../support/flood.ts'
import { FLOOD_LIMIT } from '../support/flood-limit.ts'
import { hasRedisServer } from '../support/servers.ts'

const FLOOD = { total: 1200, atOnce: 1000 }

/** How many requests were refused because the store's reply was late. */
const timedOut = (replies: Record<string, number>): number => replies['429 store-timeout'] ?? 0

/** At most this many requests are admitted: a budget by the store, or by the isolate. If trips were lost, hand-overs may be among them. */
const mostAdmitted = (lostTrips: number): number => (lostTrips > 0 ? 2 : 1) * FLOOD_LIMIT

const title = hasRedisServer ? 'a flood' : 'a flood (no real Redis is installed to run the Worker against)'

describe.skipIf(!hasRedisServer)(title, { timeout: 120_000 }, () => {
  describe('while the store is healthy', () => {
    // One Worker for all tests: each rule has its own budget, and the effects of one flood make the next one harder.
    let bed: FloodBed
    beforeAll(async () => {
      bed = await startFloodBed()
    })
    afterAll(() => bed?.close())

    it.each(['open', 'local'])('does not turn off a limit with `onStoreFailure` %s', async policy => {
      const lostBefore = bed.store.abandoned()
      const replies = await bed.flood(`/${policy}`, FLOOD)
      const lostTrips = bed.store.abandoned() - lostBefore + timedOut(replies)
      const admitted = withStatus(replies, 200)
      expect(admitted + timedOut(replies), JSON.stringify(replies)).toBeGreaterThan(0)
      const marked = FLOOD.total - (replies['200'] ?? 0) - (replies['429'] ?? 0)
      const beyond = policy === 'open' ? marked : 0
      expect(replies['200'] ?? 0, JSON.stringify(replies)).toBeLessThanOrEqual(FLOOD_LIMIT)
      expect(admitted - beyond, JSON.stringify(replies)).toBeLessThanOrEqual(mostAdmitted(lostTrips))
      expect(admitted + withStatus(replies, 429), JSON.stringify(replies)).toBe(FLOOD.total)
    })

    it('gets no new share if it is repeated after a hand-over', async () => {
      const lostBefore = bed.store.abandoned()
      let admitted = 0
      let late = 0
      for (let i = 0; i < 3; i++) {
        const replies = await bed.flood('/again', { total: 500, atOnce: 500 })
        admitted += withStatus(replies, 200)
        late += timedOut(replies)
        // The store decides these requests, and the hand-over runs in the background.
        await bed.flood('/again', { total: 20, atOnce: 1 })
      }
      expect(admitted + late).toBeGreaterThan(0)
      expect(admitted).toBeLessThanOrEqual(mostAdmitted(bed.store.abandoned() - lostBefore + late))
    })
  })

  it.each(['refuses connections', 'hangs'])('passes open rules, marked, while the store %s', async fault => {
    const bed = await startFloodBed()
    onTestFinished(() => bed.close())
    if (fault === 'hangs') bed.store.fault = () => {}
    else await bed.store.shut()
    // Until the outage is confirmed, the isolate counts by itself. Each reply is marked, even a refusal.
    await expect
      .poll(() => bed.flood('/open', { total: 2 * FLOOD_LIMIT + 1, atOnce: 1 }), { timeout: 20_000 })
      .toEqual({ '200 breaker-open': 2 * FLOOD_LIMIT + 1 })
    const replies = await bed.flood('/open', { total: 300, atOnce: 100 })
    expect(withStatus(replies, 200), JSON.stringify(replies)).toBe(300)
    expect(replies['200'], JSON.stringify(replies)).toBeUndefined()
    expect(withStatus(await bed.flood('/local', { total: 300, atOnce: 100 }), 200)).toBeLessThanOrEqual(
      FLOOD_LIMIT,
    )
  })
})
