/** Runs the adaptive limit in a closed loop, with both methods, and compares it with fixed limits. */
import { describe, expect, it } from 'vitest'
import { simulationSeeds } from '../selection.ts'
import { publishedGradient2 } from './published-gradient2.ts'
import {
  BEST_FIXED,
  bestFixed,
  between,
  HALF,
  limitBy,
  METHODS,
  mean,
  runFittingLoad,
  runHalvedCapacity,
  runLongOverload,
  runSlowerForGood,
  SEED,
  SLOWER_AT,
  SWEEP,
  startedBy,
  total,
  WORKERS,
} from './scenarios.ts'
import type { Second } from './simulation.ts'

const answered = (second: Second) => second.answered
const limited = (second: Second) => second.classes[0]!.limited
const limits = (seconds: readonly Second[]) => seconds.map(({ limit }) => limit)

/** Several seeds, so that the result does not depend on chance. */
const SEEDS = [20261122, 5]
const MORE_SEEDS = [...new Set([...SEEDS, 100, ...simulationSeeds(SEED)])]

const fixed = new Map(SWEEP.map(limit => [limit, runHalvedCapacity(limit)]))
const best = BEST_FIXED

it('the best fixed limit is near the number of workers, and others are worse', () => {
  expect(bestFixed(fixed)).toBe(best)
  expect(best).toBeGreaterThanOrEqual(WORKERS)
  expect(best).toBeLessThanOrEqual(1.5 * WORKERS)
  expect(total(fixed.get(20)!, answered)).toBeLessThan(0.6 * total(fixed.get(best)!, answered))
  expect(total(fixed.get(400)!, answered)).toBeLessThan(0.5 * total(fixed.get(best)!, answered))
})

const needlesslyRefused = (seconds: readonly Second[]) => total(seconds, second => second.limitedWithRoom)

describe.each(Object.entries(METHODS))('%s', (_name, method) => {
  const limit = limitBy(method)
  const started = startedBy(method)

  it('answers 90 % of what the best fixed limit answers, or more, while capacity halves and comes back', () => {
    for (const seed of SEEDS) {
      const seconds = runHalvedCapacity(limit, seed)
      expect(total(seconds, answered)).toBeGreaterThan(0.9 * total(fixed.get(best)!, answered))
    }
  })

  it('refuses nothing while the origin has room, while capacity halves and comes back', () => {
    for (const seed of MORE_SEEDS) {
      const seconds = runHalvedCapacity(started, seed)
      expect(needlesslyRefused(seconds), `seed ${seed}`).toBe(0)
      expect(total(seconds, answered)).toBeGreaterThan(0.98 * total(fixed.get(best)!, answered))
      // It does refuse what the origin cannot handle.
      expect(total(seconds, limited)).toBeGreaterThan(0.2 * total(seconds, answered))
    }
  })

  it('refuses almost nothing while the origin has room, after five minutes with half of the capacity', () => {
    for (const seed of MORE_SEEDS) {
      const seconds = runHalvedCapacity(started, seed, { from: 80, until: 380 })
      expect(needlesslyRefused(seconds), `seed ${seed}`).toBeLessThan(0.005 * total(seconds, answered))
    }
  })

  it('with a tolerance of 1.1, has fewer requests in flight than the best fixed limit while half of the workers are gone', () => {
    const half = (seconds: readonly Second[]) => between(seconds, HALF.from + 15, HALF.until)
    for (const seed of SEEDS) {
      const own = half(runHalvedCapacity(limitBy(method, { tolerance: 1.1 }), seed))
      expect(mean(own, ({ inFlight }) => inFlight)).toBeLessThan(
        0.85 * mean(half(fixed.get(best)!), ({ inFlight }) => inFlight),
      )
    }
  })

  it('envoy#46532: does not stay at a minimum, and refuses almost nothing while the load fits', () => {
    const seconds = between(runFittingLoad(limit), 60, 600)
    // The few refusals are chance: moments with more requests than the mean plus four standard deviations.
    expect(total(seconds, limited)).toBeLessThan(0.0005 * total(seconds, answered))
    expect(total(seconds, second => second.limitedWithRoom)).toBe(0)
    expect(Math.min(...limits(seconds))).toBeGreaterThan(1.5 * WORKERS)
  })

  it('concurrency-limits#134: the queue term does not let the limit grow without bound', () => {
    const seconds = runLongOverload(limit)
    expect(Math.max(...limits(between(seconds, 30, 600)))).toBeLessThan(4 * WORKERS)
    const [early, late] = [between(seconds, 60, 300), between(seconds, 360, 600)]
    expect(mean(late, second => second.limit)).toBeLessThan(1.3 * mean(early, second => second.limit))
    // The limit does not underestimate the capacity of the origin either.
    expect(mean(late, answered)).toBeGreaterThan(0.9 * 200)
  })

  it('loses nothing of a load that fits when the origin becomes permanently twice as slow', () => {
    for (const seed of SEEDS) {
      const full = runSlowerForGood(limit, 280, seed)
      expect(mean(between(full, SLOWER_AT + 30, 300), answered)).toBeGreaterThan(0.93 * 100)
      // This load still fits.
      const fitting = runSlowerForGood(started, 70, seed)
      expect(mean(between(fitting, SLOWER_AT + 5, 300), answered)).toBeGreaterThan(0.93 * 70)
      expect(total(fitting, limited)).toBeLessThan(0.001 * total(fitting, answered))
    }
  })
})

describe('Gradient2 by its published formula', () => {
  it('grows without bound under the same overload, and quickly with requests as samples', () => {
    const seconds = runLongOverload(publishedGradient2('request'))
    expect(seconds[120]!.limit).toBeGreaterThan(2 * WORKERS)
    expect(seconds.at(-1)!.limit).toBeGreaterThan(6 * WORKERS)
    expect(seconds.at(-1)!.latencyMs).toBeGreaterThan(1000)
  })

  it('grows slowly with seconds as samples', () => {
    const every100 = limits(runLongOverload(publishedGradient2('second'))).filter(
      (_, i) => i >= 99 && i % 100 === 99,
    )
    for (const [i, limit] of every100.entries())
      if (i > 0) expect(limit).toBeGreaterThanOrEqual(every100[i - 1]!)
    expect(every100.at(-1)!).toBeGreaterThan(every100[0]! + 5)
  })
})
