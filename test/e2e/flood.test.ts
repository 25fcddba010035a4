/**
 * A flood over the real Worker: 1,000 requests at once, 1,200 in total, against a limit of 10 with a long period, so that how many
 * may pass does not depend on how fast the machine is: what the store admits, and, where a busy machine has made the store look slow, one
 * local share (here the whole limit) of the one isolate that serves them. What the isolate has counted by itself is marked.
 */
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { type FloodBed, startFloodBed, withStatus } from '../support/flood.ts'
import { FLOOD_LIMIT } from '../support/flood-limit.ts'
import { hasRedisServer } from '../support/redis.ts'

const FLOOD = { total: 1200, atOnce: 1000 }

const title = hasRedisServer ? 'a flood' : 'a flood (no real Redis is installed to run the Worker against)'

describe.skipIf(!hasRedisServer)(title, { timeout: 120_000 }, () => {
  describe('while the store is healthy', () => {
    // One Worker for all: each rule has a budget of its own, and what one flood leaves behind makes the next one harder.
    let bed: FloodBed
    beforeAll(async () => {
      bed = await startFloodBed()
    })
    afterAll(() => bed?.close())

    it.each(['open', 'local'])('does not switch a limit off that is %s', async policy => {
      const replies = await bed.flood(`/${policy}`, FLOOD)
      const admitted = withStatus(replies, 200)
      expect(admitted, JSON.stringify(replies)).toBeGreaterThan(0)
      const marked = FLOOD.total - (replies['200'] ?? 0) - (replies['429'] ?? 0)
      expect(admitted - marked, JSON.stringify(replies)).toBeLessThanOrEqual(FLOOD_LIMIT)
      expect(admitted + withStatus(replies, 429), JSON.stringify(replies)).toBe(FLOOD.total)
    })

    it('gives no new share when it comes again after the hand-over of the first', async () => {
      let admitted = 0
      for (let i = 0; i < 3; i++) {
        admitted += withStatus(await bed.flood('/again', { total: 500, atOnce: 500 }), 200)
        // Requests that the store decides, behind which the hand-over runs.
        await bed.flood('/again', { total: 20, atOnce: 1 })
      }
      expect(admitted).toBeGreaterThan(0)
      expect(admitted).toBeLessThanOrEqual(2 * FLOOD_LIMIT)
    })
  })

  it.each(['refuses connections', 'hangs'])('of a store that %s: open lets all pass, marked', async fault => {
    const bed = await startFloodBed()
    onTestFinished(() => bed.close())
    if (fault === 'hangs') bed.store.fault = () => {}
    else await bed.store.shut()
    // Until the outage is confirmed, the isolate counts. Each reply is marked; one that is refused says so too.
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
