/** concurrency as the rest of the project knows it (descriptor.ts): docs/algorithms.md#concurrency */
import { modelOf } from './algorithm.ts'
import { concurrency } from './concurrency.ts'
import type { Counting, Description, InputOf, Parameters } from './descriptor.ts'
import { shareOfWindow, windowOf } from './window.ts'

const parameters = {
  /** At most `limit` requests in flight: a request is over when its response has ended, however it ends. */
  algorithm: { kind: 'name', is: 'concurrency' },
  /** How many units at once. */
  limit: { kind: 'units', low: 1, high: 1e6, forPlans: 'units at once' },
  /** When what a dead isolate held is free again, from `'1s'` to `'1h'` (default `'15s'`). Those that live renew it. */
  ttl: { kind: 'ttl', isOptional: true },
} as const satisfies Parameters

type Input = InputOf<typeof parameters>

/** Of what this isolate holds itself, whatever its other numbers are. */
const inThisIsolate = /* @__PURE__ */ modelOf<{ limit: number; period: number; inFlight: number }>({
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
  // The isolate knows what it holds without it.
  write: () => [0, 0],
})

export const counting: Counting<Input> = {
  state: 'held',
  numbers: windowOf,
  local: { model: inThisIsolate, shareOf: shareOfWindow },
}

export const description = {
  label: 'so many in flight',
  model: concurrency,
  parameters,
  costBound: 'limit',
  whyNoLease: 'requests in flight are counted when they begin and end',
} as const satisfies Description<Input>
