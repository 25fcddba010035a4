/** The schema of `store`: how the store is called. Messages as in rule-schema.ts. */
import * as v from 'valibot'
import { duration, flag, settings, share, units } from './values.ts'

export type BreakerInput = v.InferInput<typeof breaker>

const BREAKER = "is not a breaker. Write it like { retryAfter: '1s' }, or false."

const breakerSettings = settings(
  {
    /** How many consecutive failures open the breaker (default `5`). */
    failures: v.optional(units(1, 1000)),
    /** How many consecutive slow calls open the breaker (default `1`). A call that reaches the deadline counts as slow and as a failure. */
    slowCalls: v.optional(units(1, 1000)),
    /** A call that takes this long is slow (default: the deadline). */
    slowAfter: v.optional(duration(1e3, 60e6, "from '1ms' to '60s'")),
    /** How often the store is tried while the breaker is open (default `'1s'`). No request waits for that. */
    retryAfter: v.optional(duration(10e3, 60e6, "from '10ms' to '60s'")),
  },
  BREAKER,
)

const breaker = v.lazy(input => (input === false ? v.literal(false) : breakerSettings))

export const store = settings(
  {
    /** How long the store may take for one decision (default `'250ms'`). After that, the decision is made without the store. */
    deadline: v.optional(duration(1e3, 60e6, "from '1ms' to '60s'")),
    /** When an isolate stops waiting for a store that fails. `false`: never. */
    breaker: v.optional(breaker),
    /**
     * How many HTTP requests one isolate may have under way to the store at once (default `32`). Further decisions wait for their turn,
     * and then go together, up to 50 in one request. A decision that has waited for four deadlines is made without the store
     * (`Sluice-Degraded: overload`); rules with `'open'` are then decided as with `'local'`.
     */
    maxInFlight: v.optional(units(1, 10_000)),
    /**
     * The share of each limit that each isolate admits while the store fails, for rules with
     * `onStoreFailure: 'local'` (default `1`). There can be many isolates.
     */
    localShare: v.optional(share(0.001)),
    /**
     * Send the script with `flags=allow-key-locking` (default `true`). Without it, Upstash runs the script under a
     * lock on the whole database. The bridge of this project accepts both; turn it off for other proxies.
     */
    keyLocking: v.optional(flag),
    /**
     * Whether the store is a Redis Cluster behind the bridge of this project (default `false`). A request that
     * is counted in several slots is decided by each of them; docs/algorithms.md shows the consequences.
     */
    cluster: v.optional(flag),
  },
  "is not an object. Write it like { deadline: '250ms' }.",
)
