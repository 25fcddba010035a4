/** The default settings of adaptive limits and of worker utilization, as their controllers take them, and the shares that a pressure sheds. */
import { DEFAULT_ADAPTIVE, DEFAULT_SHEDDING } from '../../src/config/compile-shedding.ts'
import { milliseconds } from '../../src/config/duration.ts'
import type { AdaptiveSettings } from '../../src/shedding/adaptive.ts'
import { fullMsWithin, type PressureSettings, toleratedMs } from '../../src/shedding/pressure.ts'

const { min, initial, tolerance } = DEFAULT_ADAPTIVE
const { high, low, after, within } = DEFAULT_SHEDDING
const quietMs = milliseconds(after)

export const ADAPTIVE_SETTINGS: AdaptiveSettings = { min, max: 1000, initial, tolerance }
export const PRESSURE_SETTINGS: PressureSettings = {
  ...{ high, low, quietMs },
  fullMs: fullMsWithin(milliseconds(within), quietMs),
}

/** The share of callers of each class that a pressure refuses (0 to 1), the least important class first. */
export const shedShares = (appliedMs: number, classes: number, settings: PressureSettings) =>
  Array.from({ length: classes }, (_, i) => {
    const [first, last] = [toleratedMs(i, classes, settings), toleratedMs(i + 1, classes, settings)]
    return Math.min(1, Math.max(0, (appliedMs - first) / (last - first)))
  })
