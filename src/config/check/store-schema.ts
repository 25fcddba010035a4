/** How the store is called: the shape of `store`, as rule-schema.ts has that of a rule. */
import * as v from 'valibot'
import { duration, flag, settings, share, units } from './values.ts'

export type BreakerInput = v.InferInput<typeof breaker>

const BREAKER = "is not a breaker. Write it like { retryAfter: '1s' }, or false."

const breakerSettings = settings(
  {
    /** How many failures in a row open it (default `5`). */
    failures: v.optional(units(1, 1000)),
    /** How many slow calls in a row open it (default `1`). A call that reaches the deadline counts as slow and as a failure. */
    slowCalls: v.optional(units(1, 1000)),
    /** How long a slow call takes (default: the deadline). */
    slowAfter: v.optional(duration(1e3, 60e6, "from '1ms' to '60s'")),
    /** How often the store is tried while it is open; no request waits for that (default `'1s'`). */
    retryAfter: v.optional(duration(10e3, 60e6, "from '10ms' to '60s'")),
  },
  BREAKER,
)

const breaker = v.lazy(input => (input === false ? v.literal(false) : breakerSettings))

export const store = settings(
  {
    /** How long one decision may take (default `'250ms'`); after that the decision is made without the store. */
    deadline: v.optional(duration(1e3, 60e6, "from '1ms' to '60s'")),
    /** When an isolate stops waiting for a store that fails. `false`: never. */
    breaker: v.optional(breaker),
    /**
     * How many HTTP requests of one isolate may be under way to the store at once (default `32`). Decisions beyond that wait for their turn,
     * and then go together, up to 50 in one request. One that has waited for four times the deadline is made without the store
     * (`Sluice-Degraded: overload`), and rules with `'open'` are counted in the isolate then.
     */
    maxInFlight: v.optional(units(1, 10_000)),
    /**
     * The share of each limit that one isolate admits by itself while the store fails, for rules with
     * `onStoreFailure: 'local'` (default `1`). There can be many isolates.
     */
    localShare: v.optional(share(0.001)),
    /**
     * Send the script with `flags=allow-key-locking` (default `true`), without which Upstash runs it under a
     * lock on the whole database. The bridge of this project takes either; turn it off for other proxies.
     */
    keyLocking: v.optional(flag),
    /**
     * The store is a Redis Cluster (default `false`): the bridge of this project in front of one. A request that
     * is counted in several slots is decided by each of them; docs/algorithms.md says what that means.
     */
    cluster: v.optional(flag),
  },
  "is not an object. Write it like { deadline: '250ms' }.",
)
