/** The adaptive limit as a pure function, window by window. The closed loop is in test/simulation. */

import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type AdaptiveLimitState, adaptiveController } from '../../src/shedding/adaptive.ts'
import { aimd } from '../../src/shedding/aimd.ts'
import { gradient } from '../../src/shedding/gradient.ts'
import { forEvery } from '../support/property.ts'
import { ADAPTIVE_SETTINGS } from '../support/shedding-settings.ts'

const METHODS = { gradient, aimd }
const { min, max, initial } = ADAPTIVE_SETTINGS

/** The measurements of one window. The origin serves up to `workers` requests at a time, and callers want `wanted` in flight. */
function windowOf(
  { limit }: AdaptiveLimitState,
  { workers = 100, serviceMs = 100, wanted = 1000, failures = 0 },
) {
  const inFlight = Math.min(Math.floor(limit), wanted)
  const latencyMs = serviceMs * Math.max(1, inFlight / workers)
  const ended = Math.round((inFlight / latencyMs) * 1000)
  const failed = Math.round(ended * failures)
  return { sums: [ended, failed, (ended - failed) * latencyMs, ended * inFlight], ms: 1000 }
}

type Origin = Parameters<typeof windowOf>[1]

describe.each(Object.entries(METHODS))('%s', (name, method) => {
  const controller = adaptiveController(ADAPTIVE_SETTINGS, method)
  const run = (seconds: number, origin: Origin, from = controller.initial, by = controller) => {
    let state = from
    for (let i = 0; i < seconds; i++) state = by.next(state, windowOf(state, origin))
    return state
  }

  it('grows to the capacity of the origin times the tolerance, and stays near it', () => {
    for (const [tolerance, most] of [
      [1.1, 165],
      [2, 320],
    ] as const) {
      const controller = adaptiveController({ ...ADAPTIVE_SETTINGS, tolerance }, method)
      for (const seconds of [60, 90, 120, 300, 600]) {
        const { limit } = run(seconds, {}, controller.initial, controller)
        expect(limit, `tolerance ${tolerance}, ${seconds} s`).toBeGreaterThan(95)
        expect(limit, `tolerance ${tolerance}, ${seconds} s`).toBeLessThan(most)
      }
    }
  })

  it('grows from 20 to 100 within five seconds', () => {
    expect(run(5, {}).limit).toBeGreaterThan(100)
  })

  it('grows by one if no request ends and some are refused: streams fill it, but the origin may have room', () => {
    const healthy = run(60, {})
    const filled = (refused: number) => controller.next(healthy, { sums: [0, 0, 0, 0, refused], ms: 1000 })
    expect(filled(5)).toEqual({ ...healthy, limit: healthy.limit + 1 })
    expect(filled(0)).toEqual(healthy)
    expect(controller.next({ ...healthy, limit: max }, { sums: [0, 0, 0, 0, 5], ms: 1000 }).limit).toBe(max)
  })

  it('grows only while it is used', () => {
    expect(run(300, { wanted: 8 }).limit).toBe(initial)
    const limit = run(300, { wanted: 40 }).limit
    expect(limit).toBeGreaterThan(80)
    expect(limit).toBeLessThan(100)
  })

  it('grows while it refuses requests, however few are in flight: a class may use only a part of it', () => {
    const from = { ...run(60, {}), limit: min }
    const after60s = (refused: number) => {
      let state = from
      for (let i = 0; i < 60; i++) {
        const { sums, ms } = windowOf(state, { wanted: Math.floor(state.limit / 4) })
        state = controller.next(state, { sums: [...sums, refused], ms })
      }
      return state.limit
    }
    expect(after60s(50)).toBeGreaterThan(100)
    expect(after60s(0)).toBe(min)
  })

  it('does not grow while responses are slower than the tolerance, even if it is not used up', () => {
    const controller = adaptiveController({ ...ADAPTIVE_SETTINGS, tolerance: 1.1 }, method)
    const half = { ...run(60, { wanted: 60 }, controller.initial, controller), limit: 100 }
    expect(run(1, { wanted: 60 }, half, controller).limit).toBeGreaterThan(100)
    expect(run(1, { wanted: 60, serviceMs: 140 }, half, controller).limit).toBeLessThanOrEqual(100)
  })

  it('shrinks when the origin loses half of its capacity, and recovers with it', () => {
    const full = run(60, {})
    const half = run(60, { workers: 50 }, full)
    expect(half.limit).toBeLessThan(0.7 * full.limit)
    // The limit stays near what all workers can serve, so that none is idle when the lost half comes back.
    expect(half.limit).toBeGreaterThan(95)
    expect(run(60, {}, half).limit).toBeGreaterThan(1.3 * half.limit)
  })

  it('does not go below the capacity of the origin when latency doubles for good', () => {
    const before = run(60, {})
    for (const seconds of [5, 10, 30, 60, 300])
      expect(run(seconds, { serviceMs: 200 }, before).limit, `${seconds} s`).toBeGreaterThan(100)
  })

  it('learns after a while that latency has become five times as long for good', () => {
    const later = run(60, { serviceMs: 500 }, run(60, {}))
    expect(later.baselineMs).toBeGreaterThan(150)
    expect(later.limit).toBeGreaterThan(50)
  })

  it('lowers a baseline that is too high', () => {
    const before = run(60, { serviceMs: 1000 })
    // The baseline does not fall to 100 at once: the number in flight grows at the same time, which keeps the latency up.
    expect(run(60, {}, before).baselineMs).toBeLessThan(450)
    // During the overload, each comparison in which the latency moves with the number in flight lowers the baseline a little.
    expect(run(3000, {}, before).baselineMs).toBeLessThan(300)
  })

  it('recovers from its minimum, whatever the baseline', () => {
    for (const baselineMs of [1, 20, 50]) {
      const stuck = { ...run(60, {}), limit: min, baselineMs, baselineBeforeTrialMs: baselineMs }
      expect(run(180, {}, stuck).limit, `from ${baselineMs} ms`).toBeGreaterThan(50)
    }
  })

  it('shrinks when more requests fail than usual, but not for a constant share of failures', () => {
    const healthy = run(60, {})
    expect(run(10, { failures: 0.5 }, healthy).limit).toBeLessThan(0.7 * healthy.limit)
    expect(run(120, { failures: 0.3 }, healthy).limit).toBeGreaterThan(0.5 * healthy.limit)
    // A few failures while the limit is not used say nothing about it.
    const idle = run(60, { wanted: 5 })
    expect(run(10, { wanted: 5, failures: 0.5 }, idle).limit).toBe(idle.limit)
  })

  it('does not mistake fast failures for a fast origin', () => {
    const healthy = run(60, { wanted: 40 })
    expect(run(60, { wanted: 40, failures: 0.9 }, healthy).baselineMs).toBeCloseTo(100, 0)
  })

  it('learns nothing from windows without requests, and does not jump after a gap', () => {
    const state = run(60, {})
    expect(controller.next(state, { sums: [], ms: 1000 })).toBe(state)
    expect(controller.next(state, { sums: [0, 0, 0, 0], ms: 60_000 })).toBe(state)
    const window = windowOf(state, {})
    expect(controller.next(state, { ...window, ms: 60_000 })).toEqual(controller.next(state, window))
  })

  it('stays within its bounds and survives write and read, for any reports', async () => {
    const sums = fc.array(fc.oneof(fc.double(), fc.integer({ min: 0, max: 1e9 })), { maxLength: 5 })
    const windows = fc.array(fc.record({ sums, ms: fc.oneof(fc.double(), fc.constant(1000)) }), {
      maxLength: 20,
    })
    await forEvery(windows, 300, async reported => {
      let state = controller.initial
      for (const window of reported) {
        state = controller.next(state, window)
        expect(state.limit).toBeGreaterThanOrEqual(min)
        expect(state.limit).toBeLessThanOrEqual(max)
        const text = controller.write(state)
        expect(text).toMatch(/^[0-9A-Za-z .-]{1,100}$/)
        expect(controller.read(text)).toEqual(state)
      }
    })
  })

  it('writes its numbers in the order that isolates of other versions read', () => {
    const state = {
      ...{ markInFlight: 8, markLatencyMs: 7, inFlight: 6, latencyMs: 5, baselineBeforeTrialMs: 4 },
      ...{ baselineMs: 3, usualFailures: 2, limit: 9 },
    }
    expect(controller.write(state)).toBe('9 2 3 4 5 6 7 8')
    expect(controller.read('9 2 3 4 5 6 7 8')).toEqual(state)
  })

  it('writes at most a hundred characters for any numbers', () => {
    const wide = adaptiveController({ ...ADAPTIVE_SETTINGS, min: 1, max: 1e9, initial: 1e9 / 3 }, method)
    let state = wide.initial
    for (let i = 1; i < 20; i++) {
      state = wide.next(state, { sums: [3, 1, 1e300 / i, 1e300 / i], ms: 1000 })
      expect(wide.write(state).length).toBeLessThanOrEqual(100)
      expect(wide.read(wide.write(state))).toEqual(state)
    }
  })

  it(`does not read a text that it cannot have written (${name})`, () => {
    const text = controller.write(run(60, {}))
    for (const other of [
      '',
      'x',
      `${text} 1`,
      text.slice(0, -9),
      text.replace(' ', ' -'),
      text.replace(' ', ' NaN'),
      `${text}e9`,
    ])
      expect(controller.read(other), other).toBeUndefined()
    // As after a change of the config.
    const narrow = adaptiveController({ ...ADAPTIVE_SETTINGS, min: 1, max: 10, initial: 5 }, method)
    expect(narrow.read(text)!.limit).toBe(10)
  })
})

it('the gradient settles at the value of its formula', () => {
  const controller = adaptiveController(ADAPTIVE_SETTINGS, gradient)
  let state = controller.initial
  const limits: number[] = []
  for (let i = 0; i < 1000; i++) {
    state = controller.next(state, windowOf(state, {}))
    limits.push(state.limit)
  }
  // The formula 2 × 100 + √limit gives the limit itself at 215. The limit can be higher for a while: the baseline rises on trial.
  expect(Math.max(...limits)).toBeLessThan(1.5 * 215)
})
