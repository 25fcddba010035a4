/** The figures of bench/practice.md, at a small size. The whole size is `npm run bench:practice`. */
import { describe, expect, it } from 'vitest'
import { waitAfterBurning } from '../../bench/practice/burnt-budget.ts'
import { admittedBy, COUNTING_FIRST, sluiceModel } from '../../bench/practice/counting-bug.ts'
import { NOON } from '../../bench/practice/figure.ts'
import { degradedOf } from '../../bench/practice/restart.ts'
import {
  compareAlgorithms,
  comparedAt,
  emptyTally,
  typicalTraffic,
  WORST,
} from '../../bench/practice/sliding-approximation.ts'
import { type Decide, QUOTA, runWorkers } from '../../bench/practice/workers.ts'
import { WINDOWS } from '../../bench/rules.ts'
import { IDLE, type State } from '../../src/algorithms/algorithm.ts'
import { slidingLog } from '../../src/algorithms/sliding-log.ts'

describe('100 requests a second, of which 240 an hour may pass', () => {
  /** Long enough for the 240: 120 in each of two minutes. */
  const SECONDS = 75

  it('pass 10 times if refused requests renew the windows, and 20 times if they count in them', () => {
    const admitted = Object.values(COUNTING_FIRST).map(limiterOf => admittedBy(limiterOf(WINDOWS), SECONDS))
    expect(admitted).toEqual([10, 20, 20, 240])
  })

  it.each(['fixed-window', 'sliding-log'] as const)('pass 240 times under three %s rules', algorithm => {
    expect(admittedBy(sluiceModel(WINDOWS, algorithm), SECONDS)).toBe(240)
  })
})

describe('after the budget of an hour is spent at once, the next request passes', () => {
  const hourly = { name: 'a', limit: 5000, period: '1h' } as const

  it.each([
    ['fixed-window', { algorithm: 'fixed-window' }, 51 * 60],
    ['sliding-window', { algorithm: 'sliding-window' }, 51 * 60 + 0.72],
    ['sliding-log', { algorithm: 'sliding-log' }, 60 * 60],
    ['token-bucket', { algorithm: 'token-bucket', burst: 5000 }, 0.72],
    ['gcra', { algorithm: 'gcra', burst: 5000 }, 0.72],
    ['leaky-bucket', { algorithm: 'leaky-bucket', queue: 83 }, 0.72],
  ] as const)('%s', (_, numbers, seconds) => {
    expect(waitAfterBurning({ ...hourly, ...numbers }, 9 * 60)).toBeCloseTo(seconds, 5)
  })
})

describe('sliding-window against sliding-log', () => {
  const tallyOf = (arrivals: readonly number[]) => {
    const tally = emptyTally()
    compareAlgorithms(arrivals, comparedAt(100, '1m'), tally)
    return tally
  }

  it('decides the same below the limit', () => {
    const evenly = Array.from({ length: 300 }, (_, i) => NOON + i * 0.7e6)
    expect(tallyOf(evenly)).toMatchObject({ requests: 300, byLog: 300, byWindow: 300, onWrongSide: 0 })
  })

  it('is wrong about half of the requests in the worst cases', () => {
    const [admitting, refusing] = Object.values(WORST).map(tallyOf)
    expect(admitting!.wronglyAdmitted / admitting!.requests).toBeCloseTo(99 / 199)
    expect(refusing!.wronglyRefused / refusing!.requests).toBe(1 / 2)
    expect(admitting!.wronglyRefused + refusing!.wronglyAdmitted).toBe(0)
  })

  it('has the same tallies for the same seed', () => {
    const traffic = { callers: 200, seconds: 600, seed: 3 }
    const tallies = typicalTraffic(traffic)
    expect(tallies.map(({ callers }) => callers)).toEqual([100, 100, 0, 0])
    expect(tallies[0]!.requests).toBeGreaterThan(100)
    expect(tallies[1]!.requests).toBeGreaterThan(100)
    expect(typicalTraffic(traffic)).toEqual(tallies)
  })
})

it('decisions without the store belong to the restart before them', () => {
  const decided = [
    { endedAt: 100, kind: 0, allowed: true, cause: 'overload' },
    { endedAt: 1010, kind: 0, allowed: true, cause: 'store-unreachable' },
    { endedAt: 1400, kind: 0, allowed: false, cause: 'breaker-open' },
    { endedAt: 2000, kind: 0, allowed: true },
    { endedAt: 5100, kind: 0, allowed: true, cause: 'breaker-open' },
  ]
  const restarts = [1000, 5000].map(killedAt => ({ waitMs: 0, killedAt, upAt: killedAt + 100 }))
  expect(degradedOf(decided, restarts)).toEqual([
    { decisions: 2, refused: 1, lastMs: 400 },
    { decisions: 1, refused: 0, lastMs: 100 },
  ])
})

describe('a quota of 100 a second for four workers', () => {
  const unequal = { what: '', perSecond: [84, 24, 9, 3] }

  /** Each identity has its own log. */
  function decideBy(identityOf: (worker: number) => number, limit: number): Decide {
    const states = new Map<number, State>()
    return (worker, now) => {
      const identity = identityOf(worker)
      const state = states.get(identity) ?? IDLE
      const quota = { rate: limit, period: 1e6, burst: limit }
      const { after } = slidingLog.decide({ quota, state, now, cost: 1 })
      if (after) states.set(identity, after.state)
      return after !== undefined
    }
  }

  it('is used by a global limit, and by about 60% if each worker has a quarter', async () => {
    const shared = await runWorkers(
      unequal,
      10,
      decideBy(() => 0, QUOTA),
    )
    const divided = await runWorkers(
      unequal,
      10,
      decideBy(worker => worker, QUOTA / 4),
    )
    expect(divided.requests).toBe(shared.requests)
    expect(shared.used).toBeGreaterThan(0.95)
    expect(shared.used).toBeLessThanOrEqual(1)
    expect(divided.used).toBeGreaterThan(0.5)
    expect(divided.used).toBeLessThan(0.65)
  })
})
