/** The limits of the two Workers. Each path has one rule, so that a request is counted once. */
import type { ConfigInput } from '../../src/config/check/schema.ts'

/** Requests in a window. `edge` is used up under way; `second` is a window that is short beside a lease. */
export const LIMITS = { plenty: 1_000_000, edge: 4000, second: 500 }

export type Path = keyof typeof LIMITS

const PERIODS = { plenty: '300d', edge: '300d', second: '1s' } as const

export const CONFIG = {
  origin: 'https://origin.invalid',
  // Above the default: on a busy machine a slow trip would be counted as a failure of the store.
  store: { deadline: '5s' },
  stats: { keep: false },
  rules: (Object.keys(LIMITS) as Path[]).map(name => ({
    ...{ name, by: 'consumer', algorithm: 'fixed-window', limit: LIMITS[name], period: PERIODS[name] },
    onStoreFailure: 'closed',
    match: { path: `/${name}` },
  })),
} satisfies ConfigInput
