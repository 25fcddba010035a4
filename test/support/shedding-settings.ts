/** The default settings of adaptive limits and of worker utilization, as their controllers take them. */
import { DEFAULT_ADAPTIVE, DEFAULT_SHEDDING } from '../../src/config/compile-shedding.ts'
import { milliseconds } from '../../src/config/duration.ts'
import type { AdaptiveSettings } from '../../src/shedding/adaptive.ts'
import { fullMsWithin, type PressureSettings } from '../../src/shedding/pressure.ts'

const { min, initial, tolerance } = DEFAULT_ADAPTIVE
const { high, low, after, within } = DEFAULT_SHEDDING
const quietMs = milliseconds(after)

export const ADAPTIVE_SETTINGS: AdaptiveSettings = { min, max: 1000, initial, tolerance }
export const PRESSURE_SETTINGS: PressureSettings = {
  ...{ high, low, quietMs },
  fullMs: fullMsWithin(milliseconds(within), quietMs),
}
