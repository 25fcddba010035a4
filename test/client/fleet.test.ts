/** Processes that share a limit, in virtual time (fleet.ts). test/e2e/client.test.ts does it with real ones. */
import { expect, it } from 'vitest'
import { sized } from '../selection.ts'
import { createFleet, sluiceApi } from './fleet.ts'

const SECONDS = sized(30, 10)

/** @returns the share of the limit that was used, and of the calls that were refused */
async function share(algorithm: string, limit: number, processes: number, seed: number) {
  const fleet = createFleet(sluiceApi(algorithm, limit, 1000), { seed })
  const { clock, arrivals } = fleet
  const end = clock.nowMs + SECONDS * 1e3
  for (let i = 0; i < processes; i++) {
    const get = fleet.client(i)
    const work = async () => {
      while (clock.nowMs < end) await get('https://api.test/')
    }
    for (let k = 0; k < 5; k++) void work().catch(() => {})
  }
  await new Promise(resolve => setImmediate(resolve))
  await clock.run(end)
  const admitted = arrivals.filter(({ status }) => status === 200).length
  return { used: admitted / (limit * SECONDS), refused: 1 - admitted / arrivals.length }
}

/**
 * The most that may be refused, and the least that must be used, including the first seconds, in which a process finds its share. In short windows, a sliding log looks like a
 * bucket.
 */
const EXPECTED = [
  ['gcra', 20, 4, 0.01, 0.99],
  ['gcra', 50, 4, 0.01, 0.99],
  ['gcra', 20, 8, 0.01, 0.99],
  ['fixed-window', 20, 4, 0.01, sized(0.88, 0.8)],
  ['fixed-window', 50, 4, 0.01, sized(0.93, 0.9)],
  ['fixed-window', 20, 1, 0.01, sized(0.88, 0.7)],
  ['sliding-window', 20, 4, 0.02, sized(0.85, 0.8)],
  ['sliding-window', 50, 4, 0.01, sized(0.9, 0.87)],
  ['sliding-log', 50, 4, 0.01, sized(0.7, 0.6)],
] as const

it.each(EXPECTED)('of %s, %i a second, %i processes', async (algorithm, limit, processes, refused, used) => {
  for (const seed of sized([1, 2, 3, 4, 5], [1])) {
    const result = await share(algorithm, limit, processes, seed)
    expect(result.refused).toBeLessThanOrEqual(refused)
    expect(result.used).toBeGreaterThanOrEqual(used)
  }
})
