/** Calls of `acquire` in several processes that share a store, and that give up: by their timeouts, by signals, and because a process ends. */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { randomCases } from '../selection.ts'
import { configOf, describeOnRedisEngine, type RedisEngine } from '../support/engines.ts'
import { expectShare, forEvery } from '../support/property.ts'
import { SEED } from '../support/random.ts'
import { processOn, SharedClock, TRIP_MS } from '../support/shared-clock.ts'

const by = ['account']
/** More than all calls of a test together. */
const DAY = 1000
const SLOTS = 3
const day = { name: 'day', by, algorithm: 'fixed-window', limit: DAY, period: '1d' } as const
const { limits } = configOf({
  rules: [],
  limits: {
    queue: [{ name: 'queue', by, algorithm: 'leaky-bucket', limit: 10, period: '1s', queue: 12 }, day],
    bucket: [{ name: 'bucket', by, algorithm: 'token-bucket', limit: 10, period: '1s', burst: 3 }, day],
    slots: [{ name: 'slots', by, algorithm: 'concurrency', limit: SLOTS, ttl: '1s' }, day],
    both: [
      { name: 'queue', by, algorithm: 'leaky-bucket', limit: 10, period: '1s', queue: 12 },
      { name: 'even', by, algorithm: 'gcra', limit: 8, period: '1s', burst: 2 },
      day,
    ],
  },
})

/** How long a unit occupies the outlet of a queue (ms). */
const UNIT_MS = 100

let accounts = 0
async function twoProcesses(redis: RedisEngine, lost: readonly number[] = []) {
  const clock = new SharedClock()
  const account = `a${++accounts}`
  const [one, other] = [
    processOn({ limits }, redis, clock, account, lost),
    processOn({ limits }, redis, clock, account),
  ]
  return { clock, one, other }
}

/** The most units that are held at the same time. */
function mostAtOnce(held: readonly { cost: number; from: number; until: number }[]): number {
  const unitsAt = (time: number) =>
    held.reduce((sum, { cost, from, until }) => sum + (from <= time && time < until ? cost : 0), 0)
  return Math.max(0, ...held.map(({ from }) => unitsAt(from)))
}

/** Times are ms. */
const call = fc.record({
  at: fc.nat(600),
  process: fc.nat(1),
  cost: fc.constantFrom(1, 1, 1, 2, 3),
  timeoutMs: fc.constantFrom(0, 50, 100, 150, 300, 500, 1000, Number.POSITIVE_INFINITY),
  abortAfter: fc.option(fc.nat(300), { freq: 2, nil: undefined }),
  jobMs: fc.nat(200),
})

const scenario = fc.record({
  limit: fc.constantFrom('queue', 'bucket', 'slots', 'both'),
  calls: fc.array(call, { minLength: 8, maxLength: 30 }),
  /** When the second process ends. */
  death: fc.option(fc.nat(600), { freq: 3, nil: undefined }),
  /** The trips of the first process whose replies get lost. */
  lost: fc.oneof({ weight: 2, arbitrary: fc.constant([]) }, fc.array(fc.integer({ min: 1, max: 20 }))),
})

describeOnRedisEngine('two processes whose calls give up', (fresh, kind) => {
  const runs = randomCases(240, kind)

  it(`spend nothing for them, and let no call wait too long (SEED=${SEED})`, {
    timeout: 120_000,
  }, async () => {
    const redis = await fresh()
    const totals = { calls: 0, admitted: 0, refused: 0, aborted: 0, unknown: 0 }
    await forEvery(scenario, runs, async ({ limit, calls, death, lost }) => {
      const { clock, one, other } = await twoProcesses(redis, lost)
      const beganAt = clock.nowMs
      const admitted: { cost: number; from: number; until: number }[] = []
      const held: typeof admitted = []
      let unanswered = 0
      const make = async (each: (typeof calls)[number]) => {
        const { limiter, identity, state } = each.process === 0 ? one : other
        await clock.pass(each.at)
        if (state.isDead) return
        const { cost, timeoutMs, abortAfter, jobMs } = each
        const leaving = new AbortController()
        const startedAt = clock.nowMs
        if (abortAfter !== undefined) clock.timer(abortAfter, () => leaving.abort())
        unanswered += cost
        // Under `even`, only two can come at once.
        const costs = limits.get(limit)!.map(({ name }) => [name, name === 'even' ? 1 : cost])
        const options = { cost: Object.fromEntries(costs), timeoutMs, signal: leaving.signal }
        const answer = await limiter.acquire(limit, identity, options).catch(() => undefined)
        if (state.isDead) return
        totals.calls += 1
        expect(clock.nowMs - startedAt).toBeLessThanOrEqual(
          Math.min(timeoutMs + TRIP_MS, abortAfter ?? Number.POSITIVE_INFINITY),
        )
        // Its answer takes at most a trip, and what that has spent is given back in another one.
        if (answer === undefined) await clock.pass(2 * TRIP_MS)
        if (state.isDead) return
        unanswered -= cost
        if (answer === undefined) totals.aborted += 1
        else if (answer.degraded) totals.unknown += 1
        else if (!answer.allowed) totals.refused += 1
        else {
          totals.admitted += 1
          const from = clock.nowMs
          const departsAt = answer.at / 1e3 + answer.delayMs
          admitted.push({ cost, from: departsAt, until: departsAt + cost * UNIT_MS })
          await clock.pass(jobMs)
          answer.release()
          if (limit === 'slots') held.push({ cost, from, until: clock.nowMs })
        }
      }
      if (death !== undefined) clock.timer(death, other.end)
      const work = Promise.all(calls.map(make))
      let failure: unknown
      work.catch(error => (failure = error))
      await clock.run(beganAt + 60_000)
      if (failure) throw failure
      const { limiter, identity } = processOn({ limits }, redis, clock, one.identity.account)
      const peek = limiter.peek(limit, identity)
      await clock.run(clock.nowMs + TRIP_MS)
      const { rules } = await peek
      const left = rules.find(({ name }) => name === 'day')!.remaining
      const spent = admitted.reduce((sum, { cost }) => sum + cost, 0)
      expect(DAY - left).toBeGreaterThanOrEqual(spent)
      // What the calls of a process that has ended would have returned is unknown. So is what happened to a call, and to what was given
      // back, whose reply got lost.
      if (lost.length === 0) expect(DAY - left).toBeLessThanOrEqual(spent + unanswered)
      expect(mostAtOnce(held)).toBeLessThanOrEqual(SLOTS)
      if (limit !== 'queue' && limit !== 'both') return
      admitted.sort((a, b) => a.from - b.from)
      for (const [i, { from }] of admitted.entries())
        if (i > 0) expect(from).toBeGreaterThanOrEqual(admitted[i - 1]!.until)
    })
    expectShare('admitted calls', totals.admitted, totals.calls, 0.1, 0.9)
    expectShare('refused calls', totals.refused, totals.calls, 0.05)
    expectShare('aborted calls', totals.aborted, totals.calls, 0.05)
    expectShare('calls whose reply got lost', totals.unknown, totals.calls, 0.005)
  })

  it('share a queue, and no call joins it that cannot leave it in time', async () => {
    const { clock, one, other } = await twoProcesses(await fresh())
    const beganAt = clock.nowMs
    const waits: number[] = []
    const all = Array.from({ length: 24 }, async (_, i) => {
      const { limiter, identity } = i % 2 === 0 ? one : other
      const { allowed } = await limiter.acquire('queue', identity, { timeoutMs: 500 })
      if (allowed) waits.push(clock.nowMs - beganAt)
      // Those that are refused wait for nothing.
      else expect(clock.nowMs - beganAt).toBeLessThanOrEqual(5 * TRIP_MS)
    })
    await clock.run(beganAt + 5000)
    await Promise.all(all)
    expect(waits).toHaveLength(6)
    expect(Math.max(...waits)).toBeLessThanOrEqual(500 + TRIP_MS)
  })

  it.each([
    ['in the order in which they came', [0, 1, 2, 3, 4]],
    ['in the opposite order', [4, 3, 2, 1, 0]],
    ['in any order', [2, 4, 0, 3, 1]],
    ['at once', [0, 0, 0, 0, 0]],
  ])('give all places in a queue back if they leave %s', async (_, order) => {
    const { clock, one } = await twoProcesses(await fresh())
    const { limiter, identity } = one
    const take = () => limiter.limit('queue', identity)
    void take()
    await clock.run(clock.nowMs + TRIP_MS)
    const gone = order.map(place => {
      const leaving = new AbortController()
      clock.timer(50 + place * 5, () => leaving.abort())
      return limiter.acquire('queue', identity, { signal: leaving.signal }).catch(() => 'gone')
    })
    await clock.run(clock.nowMs + 200)
    expect(await Promise.all(gone)).toEqual(Array(5).fill('gone'))
    const next = take()
    await clock.run(clock.nowMs + TRIP_MS)
    expect((await next).delayMs).toBe(0)
  })

  it('give no place in a queue back if another process has a later one', async () => {
    const { clock, one, other } = await twoProcesses(await fresh())
    const pass = () => clock.run(clock.nowMs + TRIP_MS)
    const first = one.limiter.limit('queue', one.identity, { cost: { queue: 3 } })
    await pass()
    const leaving = new AbortController()
    const gone = one.limiter.acquire('queue', one.identity, { signal: leaving.signal }).catch(() => 'gone')
    await pass()
    const behind = other.limiter.limit('queue', other.identity)
    await pass()
    leaving.abort()
    await pass()
    const next = one.limiter.limit('queue', one.identity)
    await pass()
    expect(await gone).toBe('gone')
    const departures = await Promise.all([first, behind, next])
    const [start, ...later] = departures.map(({ at, delayMs }) => at / 1e3 + delayMs)
    expect(later.map(at => at - start!)).toEqual([400, 500])
  })
})
