/** The descriptor of concurrency (see descriptor.ts). Documentation: docs/algorithms.md#concurrency */
import { modelOf } from './algorithm.ts'
import { concurrency } from './concurrency.ts'
import type { Counting, Description, InputOf, Numbers, Parameters } from './descriptor.ts'
import { shareOfWindow, toWindowQuota } from './window.ts'

/** The highest limit, also of plans and overrides. Twice as much as MAX_STARTED (holdings.ts) and this fits into a record. */
export const MAX_IN_FLIGHT = 1e6

const limit = { kind: 'units', low: 1, high: MAX_IN_FLIGHT, forPlans: 'units at once' } as const

const parameters = {
  /** At most `limit` requests in flight. A request is over when its response has ended, for whatever reason. */
  algorithm: { kind: 'name', is: 'concurrency' },
  /** How many units can be in flight at once. */
  limit,
  /**
   * How long the units of an isolate that has died stay held, from `'1s'` to `'1h'` (default `'15s'`). A running isolate renews its
   * units.
   */
  ttl: { kind: 'ttl', isOptional: true },
} as const satisfies Parameters

type Input = InputOf<typeof parameters>

/** Counts only the units that this isolate holds itself. It needs no stored state. */
const localConcurrency = /* @__PURE__ */ modelOf<{ limit: number; period: number; inFlight: number }>({
  read: ({ quota: { burst, period }, holding }) => ({
    ...{ limit: holding?.limit ?? burst, period },
    inFlight: holding ? holding.started - holding.ended : 0,
  }),
  check: ({ limit, period, inFlight }, cost) => (cost > limit ? -1 : inFlight + cost <= limit ? 0 : period),
  spend(kept, cost) {
    kept.inFlight += cost
    return undefined
  },
  refund() {},
  standing: ({ limit, period, inFlight }) => ({
    remaining: Math.max(0, limit - inFlight),
    resetAfter: inFlight > 0 ? period : 0,
  }),
  // The holding is passed in, so there is no state to keep.
  write: () => [0, 0],
})

export const counting: Counting<Input> = {
  state: 'held',
  toQuota: toWindowQuota,
  local: { model: localConcurrency, shareOf: shareOfWindow },
}

export const numbers = { maxLimit: MAX_IN_FLIGHT, costBound: 'limit' } as const satisfies Numbers<Input>

export const description = {
  label: 'at most the limit in flight',
  model: concurrency,
  parameters,
  numbers,
  whyNoLease: 'requests in flight are counted when they begin and end',
} as const satisfies Description<Input>
