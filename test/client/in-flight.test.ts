/** Calls under a limit of requests in flight, in virtual time. test/e2e/client.test.ts makes them through a real gateway. */
import { describe, expect, it } from 'vitest'
import { LimitError } from '../../src/client/limit-error.ts'
import { createFleet } from './fleet.ts'

const URL_X = 'https://api.test/x'

/**
 * Calls of half a second under a limit of 20 at once, from processes that each send theirs together.
 * @param more `apartMs`: a process begins this much later than the one before it. `coldMs`: the first replies are this late
 */
async function run({
  calls = 60,
  processes = 1,
  limit = 20,
  jobMs = 500,
  releaseMs = 0,
  seed = 1,
  maxWaitMs = 30_000,
  apartMs = 0,
  coldMs = 0,
} = {}) {
  const fleet = createFleet(() => new Response(), { seed, latencyMs: 1 })
  const { clock } = fleet
  let [busy, most, refused] = [0, 0, 0]
  const fetch = async () => {
    await clock.pass(clock.nowMs - start < coldMs ? coldMs : 1)
    const isFull = busy >= limit
    busy += isFull ? 0 : 1
    most = Math.max(most, busy)
    const headers = {
      'ratelimit-policy': `"at-once";q=${limit};qu="concurrent-requests"`,
      ratelimit: `"at-once";r=${limit - busy};t=60`,
    }
    if (isFull) {
      refused += 1
      await clock.pass(1)
      return new Response(null, { status: 429, headers: { ...headers, 'retry-after': '60' } })
    }
    await clock.pass(jobMs)
    clock.after(releaseMs, () => {
      busy -= 1
    })
    await clock.pass(1)
    return new Response(null, { headers })
  }
  const start = clock.nowMs
  const ends: number[] = []
  const outcomes: (number | Error)[] = []
  for (let process = 0; process < processes; process++) {
    const get = fleet.client(process, { fetch, maxWaitMs })
    const send = () => {
      for (let i = 0; i < calls / processes; i++)
        void get(URL_X).then(
          ({ status }) => {
            outcomes.push(status)
            ends.push(clock.nowMs - start)
          },
          error => outcomes.push(error),
        )
    }
    if (process * apartMs > 0) clock.after(process * apartMs, send)
    else send()
  }
  await new Promise(resolve => setImmediate(resolve))
  await clock.run(start + 60_000)
  const idealMs = Math.ceil(calls / limit) * jobMs
  return { outcomes, most, refused, used: idealMs / Math.max(...ends) }
}

describe('a limit of requests in flight', () => {
  it.each([
    [1, 60, 0.9],
    [1, 300, 0.9],
    [4, 60, 0.75],
    [4, 300, 0.75],
  ])('is used by %i processes with %i calls in all', async (processes, calls, used) => {
    for (const seed of [1, 2, 3]) {
      const result = await run({ processes, calls, seed })
      expect(result.outcomes).toEqual(Array(calls).fill(200))
      expect(result.used).toBeGreaterThanOrEqual(used)
      // Each refusal is a request that the API has to answer.
      expect(result.refused).toBeLessThan(Math.max(30, calls / 2))
    }
  })

  it.each([
    [60, 0.6],
    [300, 0.8],
  ])(
    'is used by four new processes that begin one after the other, with %i calls in all',
    async (calls, used) => {
      for (const seed of [1, 2, 3, 4, 5]) {
        const result = await run({ processes: 4, calls, seed, apartMs: 40, coldMs: 200 })
        expect(result.outcomes).toEqual(Array(calls).fill(200))
        expect(result.used).toBeGreaterThanOrEqual(used)
      }
    },
  )

  it('that frees a unit only after its reply is used, too', async () => {
    const { outcomes, used } = await run({ calls: 300, releaseMs: 4 })
    expect(outcomes).toEqual(Array(300).fill(200))
    expect(used).toBeGreaterThanOrEqual(0.85)
  })

  it('that others hold is tried again and again, but not often', async () => {
    const { outcomes, refused } = await run({ limit: 0, calls: 3, maxWaitMs: 20_000 })
    for (const error of outcomes) {
      expect(error).toBeInstanceOf(LimitError)
      expect(error).toMatchObject({ policy: 'at-once', isUsedUp: true })
    }
    expect(refused).toBeGreaterThan(5)
    expect(refused).toBeLessThan(40)
  })
})
