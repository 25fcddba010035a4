/** The worker utilization shedder as a pure function. The closed loop is in test/simulation. */

import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { PACES } from '../../src/config/check/shedding-schema.ts'
import { type Pressure, placeOf, pressureController } from '../../src/shedding/pressure.ts'
import { forEvery } from '../support/property.ts'
import { PRESSURE_SETTINGS, shedShares } from '../support/shedding-settings.ts'

const controller = pressureController(PRESSURE_SETTINGS)
const { quietMs, fullMs } = PRESSURE_SETTINGS

/** A window with seven samples of this utilization. */
const at = (utilization: number, ms = 1000) => ({ sums: [Math.round(utilization * 1000) * 7, 7], ms })
const SILENT = { sums: [0, 0], ms: 1000 }

function moved(windows: readonly { sums: readonly number[]; ms: number }[], from: Partial<Pressure> = {}) {
  return windows.reduce(controller.next, { ...controller.initial, ...from })
}

describe('a pressure of 0', () => {
  it('admits everything, even with a short quiet time', () => {
    for (const [quietMs, fullMs] of [
      [1000, 120_000],
      [1000, 5000],
      [2000, 8000],
      [5000, 60_000],
    ] as const) {
      const settings = { ...PRESSURE_SETTINGS, quietMs, fullMs }
      const { initial, next } = pressureController(settings)
      const high = times(130, at(1)).reduce(next, initial)
      expect(shedShares(high.appliedMs, 2, settings)).toEqual([1, 1])
      const rested = times(140, at(0)).reduce(next, high)
      expect(shedShares(rested.appliedMs, 2, settings)).toEqual([0, 0])
    }
  })
})

const times = <T>(count: number, value: T) => Array.from({ length: count }, () => value)

const states = fc.record({
  pressureMs: fc.integer({ min: 0, max: fullMs }),
  appliedMs: fc.integer({ min: 0, max: fullMs }),
  episode: fc.integer({ min: 0, max: 1e9 }),
})
const windows = fc.record({
  sums: fc.array(fc.oneof(fc.double(), fc.integer({ min: 0, max: 100_000 })), { maxLength: 3 }),
  ms: fc.oneof(fc.double(), fc.integer({ min: 0, max: 200_000 })),
})

describe('pressure', () => {
  it('grows above 0.8 and shrinks below 0.7 in proportion to the distance, and stays the same in between', () => {
    const after10s = (utilization: number, pressureMs = 0) =>
      moved(times(10, at(utilization)), { pressureMs }).pressureMs
    expect(after10s(1)).toBe(10_000)
    expect(after10s(0.9)).toBe(5000)
    expect(after10s(0.85)).toBe(2500)
    for (const between of [0.8, 0.75, 0.7]) expect(after10s(between, 50_000)).toBe(50_000)
    expect(after10s(0.35, 50_000)).toBe(45_000)
    expect(after10s(0, 50_000)).toBe(40_000)
    expect(moved(times(10, at(0.9)))).toEqual({ pressureMs: 5000, appliedMs: 5000, episode: 1 })
  })

  it('shrinks at a utilization of 0, also if `low` is 0', () => {
    for (const pace of PACES) {
      const { next, initial } = pressureController({ ...PRESSURE_SETTINGS, low: 0, pace })
      expect(next({ ...initial, pressureMs: 50_000 }, at(0)).pressureMs).toBe(49_000)
    }
  })

  it('follows the formula that Stripe has published, from -28/120 to 1', () => {
    let share = -28 / 120
    let state = controller.initial
    const rateOf = (u: number) => (u < 0.7 ? u / 0.7 - 1 : u > 0.8 ? (u - 0.8) / 0.2 : 0)
    for (let second = 0; second < 2000; second++) {
      const utilization = Math.round(1000 * (0.5 + 0.5 * Math.sin(second / 90))) / 1000
      share = Math.min(1, Math.max(-28 / 120, share + rateOf(utilization) / 120))
      state = controller.next(state, at(utilization))
      // Each step is rounded to a millisecond.
      expect(Math.abs((state.pressureMs - quietMs) / (fullMs - quietMs) - share)).toBeLessThan(0.002)
    }
  })

  it('needs 28 s of full overload for the first refusal, and 120 s more to refuse all but the critical class', () => {
    expect([quietMs, fullMs]).toEqual([28_000, 148_000])
    expect(moved(times(fullMs / 1000 + 50, at(1))).pressureMs).toBe(fullMs)
    const falling = times(fullMs / 1000 - 1, at(0))
    expect(moved(falling, { pressureMs: fullMs }).pressureMs).toBe(1000)
    expect(moved([...falling, ...times(5, at(0))], { pressureMs: fullMs }).pressureMs).toBe(0)
  })

  it('moves by one second per second above `high` and below `low`, if the pace is full', () => {
    const { initial, next } = pressureController({ ...PRESSURE_SETTINGS, pace: 'full' })
    const after10s = (utilization: number) =>
      times(10, at(utilization)).reduce(next, { ...initial, pressureMs: 50_000 }).pressureMs
    expect([1, 0.8, 0.79, 0.71, 0.7, 0].map(after10s)).toEqual([
      60_000, 60_000, 50_000, 50_000, 40_000, 40_000,
    ])
  })

  it('moves at the limits of the settings', () => {
    const only = (high: number, low: number, utilization: number, pressureMs = 5000) =>
      pressureController({ ...PRESSURE_SETTINGS, high, low }).next(
        { ...controller.initial, pressureMs, appliedMs: pressureMs },
        at(utilization),
      ).pressureMs
    expect(only(1, 0.7, 1)).toBe(6000)
    expect(only(1, 0.7, 0.999)).toBe(5000)
    expect(only(0.8, 0, 0)).toBe(4000)
  })

  it('is applied at once when it rises, and 6 s behind when it falls', () => {
    const applied = (windows: Parameters<typeof moved>[0]) => moved(windows).appliedMs
    const rising = times(60, at(1))
    expect(applied(rising)).toBe(60_000)
    expect(applied([...rising, ...times(6, at(0))])).toBe(60_000)
    expect(applied([...rising, ...times(6, at(0)), ...times(6, at(1))])).toBe(60_000)
    expect(applied([...rising, ...times(16, at(0))])).toBe(50_000)
    // These 6 s are shorter than the quiet time, so they refuse nothing.
    expect(applied([...rising, ...times(60, at(0))])).toBe(6000)
  })

  it('shrinks at the same rate without a signal', () => {
    expect(moved(times(10, SILENT), { pressureMs: 60_000 }).pressureMs).toBe(50_000)
  })

  it('grows by at most five seconds for a window after a gap, and shrinks for the time of the gap', () => {
    expect(moved([at(1, 90_000)]).pressureMs).toBe(5000)
    expect(moved([at(1, 60_000)], { pressureMs: fullMs }).pressureMs).toBe(fullMs - 50_000)
    expect(moved([at(0, 60_000)], { pressureMs: fullMs }).pressureMs).toBe(fullMs - 60_000)
  })

  it('reaches the same value with windows of one second and of five (as pushed signals have)', () => {
    expect(moved(times(6, at(1, 5000)))).toEqual(moved(times(30, at(1))))
  })

  it('starts a new episode each time it leaves 0', () => {
    const ups = [at(1), at(1), at(0), at(1), at(0), at(0), at(1)]
    expect(moved(ups).episode).toBe(2)
    // The silence in between has ended the first episode.
    expect(moved([at(1), at(1, 90_000)]).episode).toBe(2)
  })

  it('stays within its bounds, moves by at most the elapsed time, and survives write and read', async () => {
    await forEvery(fc.tuple(states, windows), 500, async ([state, window]) => {
      const next = controller.next(state, window)
      expect(next.pressureMs).toBeGreaterThanOrEqual(0)
      expect(next.pressureMs).toBeLessThanOrEqual(fullMs)
      expect(next.pressureMs - state.pressureMs).toBeLessThanOrEqual(
        Math.min(Math.max(window.ms || 0, 0), 5000) + 0.5,
      )
      const text = controller.write(next)
      expect(text).toMatch(/^[0-9A-Za-z .-]{1,100}$/)
      expect(controller.read(text)).toEqual(next)
    })
  })

  it('is written in the order that isolates of other versions read', () => {
    const state = { episode: 3, appliedMs: 2000, pressureMs: 1000 }
    expect(controller.write(state)).toBe('1000 2000 3')
    expect(controller.read('1000 2000 3')).toEqual(state)
  })

  it('is read only from texts that the controller can have written', () => {
    for (const text of [
      '',
      ' ',
      '5',
      '5 6',
      'a b c',
      '-1 0 0',
      '1 1 -1',
      '1.5 0 0',
      '1e3 0 0',
      'NaN 0 0',
      '01 0 0',
      '1  2 3',
      ` ${'1'.repeat(200)}`,
    ])
      expect(controller.read(text), text).toBeUndefined()
    // Values above the maximum of the config, as after a change of the config, are lowered to it.
    expect(controller.read('999999999 999999999 3')).toEqual({
      pressureMs: fullMs,
      appliedMs: fullMs,
      episode: 3,
    })
  })
})

describe('the refused share', () => {
  it('is 0 until the quiet time is over, and 1 when pressure is full', () => {
    expect(shedShares(0, 3, PRESSURE_SETTINGS)).toEqual([0, 0, 0])
    expect(shedShares(quietMs, 3, PRESSURE_SETTINGS)).toEqual([0, 0, 0])
    expect(shedShares(quietMs + 1000, 3, PRESSURE_SETTINGS)[0]).toBeGreaterThan(0)
    for (let classes = 0; classes < 20; classes++)
      expect(shedShares(fullMs, classes, PRESSURE_SETTINGS)).toEqual(times(classes, 1))
  })

  it('fills one class before the next', async () => {
    const pressures = fc.tuple(fc.integer({ min: 0, max: fullMs }), fc.integer({ min: 1, max: 12 }))
    await forEvery(pressures, 500, async ([pressureMs, classes]) => {
      const shares = shedShares(pressureMs, classes, PRESSURE_SETTINGS)
      for (const [i, share] of shares.entries()) {
        if (share > 0 && i > 0) expect(shares[i - 1]).toBe(1)
        expect(shedShares(pressureMs + 1, classes, PRESSURE_SETTINGS)[i]).toBeGreaterThanOrEqual(share)
      }
    })
  })
})

describe('a caller', () => {
  const isShed = (key: string, episode: number, share: number) => placeOf(key, episode) < share

  it('stays refused while the share grows, is admitted at a share of 0 and refused at 1', async () => {
    const cases = fc.tuple(
      fc.string(),
      fc.nat(),
      fc.double({ min: 0, max: 1, noNaN: true }),
      fc.double({ min: 0, max: 1, noNaN: true }),
    )
    await forEvery(cases, 1000, async ([key, episode, one, other]) => {
      const [low, high] = one < other ? [one, other] : [other, one]
      if (isShed(key, episode, low)) expect(isShed(key, episode, high)).toBe(true)
      expect(isShed(key, episode, 0)).toBe(false)
      expect(isShed(key, episode, 1)).toBe(true)
    })
  })

  it('is refused with the probability of the share, for any form of keys, independently in each episode', () => {
    const keys = [
      (i: number) => `user-${i}`,
      (i: number) => `10.0.${i >> 8}.${i & 255}`,
      (i: number) => `${'tenant'.repeat(9)}:${i}`,
    ]
    const count = 10_000
    for (const keyOf of keys)
      for (const share of [0.1, 0.5, 0.9]) {
        const shed = (episode: number) =>
          Array.from({ length: count }, (_, i) => isShed(keyOf(i), episode, share))
        const [first, second] = [shed(1), shed(2)]
        const portion = first.filter(Boolean).length / count
        const both = first.filter((is, i) => is && second[i]).length / count
        // Four standard deviations.
        expect(Math.abs(portion - share)).toBeLessThan(4 * Math.sqrt((share * (1 - share)) / count))
        expect(Math.abs(both - share ** 2)).toBeLessThan(
          4 * Math.sqrt((share ** 2 * (1 - share ** 2)) / count),
        )
      }
  })
})
