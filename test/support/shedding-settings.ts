/** The default settings of adaptive limits and of worker utilization, as their controllers take them, and the shares that a pressure sheds. */
import { DEFAULT_ADAPTIVE, DEFAULT_SHEDDING } from '../../src/config/compile-shedding.ts'
import { milliseconds } from '../../src/config/duration.ts'
import type { AdaptiveSettings } from '../../src/shedding/adaptive.ts'
import { type PressureSettings, refusedShare } from '../../src/shedding/pressure.ts'

const { min, initial, tolerance } = DEFAULT_ADAPTIVE
const { high, low, pace, after, within } = DEFAULT_SHEDDING
const quietMs = milliseconds(after)

export const ADAPTIVE_SETTINGS: AdaptiveSettings = { min, max: 1000, initial, tolerance }
export const PRESSURE_SETTINGS: PressureSettings = {
  ...{ high, low, pace, quietMs },
  fullMs: quietMs + milliseconds(within),
}

/** The share of callers of each class that a pressure refuses (0 to 1), the least important class first. */
export const shedShares = (appliedMs: number, classes: number, settings: PressureSettings) =>
  Array.from({ length: classes }, (_, place) => refusedShare(appliedMs, place, classes, settings))
