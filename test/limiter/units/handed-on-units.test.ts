/** Units in flight that go from one call of `acquire` to the next one of the same process. */
import { expect, it } from 'vitest'
import { configOf, describeOnRedisEngine } from '../../support/engines.ts'
import { processOn, SharedClock, TRIP_MS } from '../../support/shared-clock.ts'

const LIMIT = 10
const JOB_MS = 20
const { limits } = configOf({
  rules: [],
  limits: { jobs: [{ name: 'at-once', by: ['account'], algorithm: 'concurrency', limit: LIMIT }] },
})

describeOnRedisEngine('units that are handed on', fresh => {
  it('take one trip a job, in the order in which the calls came', async () => {
    const clock = new SharedClock()
    const { limiter, identity, state } = processOn({ limits }, await fresh(), clock, 'a')
    const order: number[] = []
    const jobs = 200
    const beganAt = clock.nowMs
    let endedAt = 0
    const work = Array.from({ length: jobs }, async (_, i) => {
      const units = await limiter.acquire('jobs', identity)
      order.push(i)
      await clock.pass(JOB_MS)
      units.release()
      endedAt = clock.nowMs
    })
    await clock.run(beganAt + 5000)
    await Promise.all(work)
    // Those that are admitted at the same instant come in any order.
    const waves = order.map(i => Math.floor(i / LIMIT))
    expect(waves).toEqual(waves.toSorted((a, b) => a - b))
    expect(state.trips).toBeLessThanOrEqual(1.1 * jobs)
    // Between two jobs, a unit waits for one trip.
    expect(endedAt - beganAt).toBeLessThanOrEqual((1.1 * (jobs / LIMIT) + 1) * (JOB_MS + TRIP_MS))
  })

  it('are free for other processes soon if the call that was to take them is refused', async () => {
    const redis = await fresh()
    const clock = new SharedClock()
    const [one, other] = [processOn({ limits }, redis, clock, 'b'), processOn({ limits }, redis, clock, 'b')]
    const held = Promise.all(Array.from({ length: LIMIT }, () => one.limiter.limit('jobs', one.identity)))
    await clock.run(clock.nowMs + TRIP_MS)
    const needsAll = one.limiter.acquire('jobs', one.identity, { cost: LIMIT })
    await clock.run(clock.nowMs + TRIP_MS)
    const [first] = await held
    first!.release()
    await clock.run(clock.nowMs + 2 * TRIP_MS)
    const units = other.limiter.limit('jobs', other.identity)
    await clock.run(clock.nowMs + TRIP_MS)
    expect((await units).allowed).toBe(true)
    void needsAll
  })
})
