/**
 * Six limits: 10 a second, 120 a minute and 240 an hour, for the consumer and again for the client address. The numbers are those of
 * sluice.config.ts.
 */
import type { RuleInput } from '../src/config/check/schema.ts'
import { countsInstructions } from './measure.ts'

/** Counting instructions takes longer than a second, and hardly any depend on the length of a window. */
const SHORTEST = countsInstructions
  ? ({ period: '1d', milliseconds: 86400e3 } as const)
  : ({ period: '1s', milliseconds: 1e3 } as const)

export const WINDOWS = [
  { name: 'second', ...SHORTEST, limit: 10 },
  { name: 'minute', period: '1m', milliseconds: 60e3, limit: 120 },
  { name: 'hour', period: '1h', milliseconds: 3600e3, limit: 240 },
] as const

/** The size of the limits. The rules are the same otherwise. */
export type Scale = 'as configured' | 'admits all' | 'refuses all'

export function scaled(limit: number, scale: Scale): number {
  switch (scale) {
    case 'as configured':
      return limit
    case 'admits all':
      return limit * 1000
    // One request passes. Further requests in the same second are refused by every limit of either contender.
    case 'refuses all':
      return 1
  }
}

/** One algorithm for all six limits, or those of sluice.config.ts: gcra for the second and fixed-window for the others. */
export type SixLimits = 'sliding-window' | 'fixed-window' | 'as shipped'

export function sixRules(scale: Scale, limits: SixLimits): RuleInput[] {
  return (['consumer', 'address'] as const).flatMap(by =>
    WINDOWS.map(({ name, period, limit }): RuleInput => {
      const rule = { name: `${by}-${name}`, by, period, limit: scaled(limit, scale) }
      const shipped = name === 'second' ? 'gcra' : 'fixed-window'
      return { ...rule, algorithm: limits === 'as shipped' ? shipped : limits }
    }),
  )
}
