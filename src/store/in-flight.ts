/**
 * Bounds how many calls an isolate has in flight to the store. One more fails at once and costs no trip, so that a flood does not
 * queue in the isolate until its own calls look like a slow store. Probes of the breaker and background work (hand-overs, counters,
 * reading the live switches alone) do not pass here, so a flood cannot keep them out.
 */
import { GatewayError } from '../errors.ts'
import type { GuardedStore } from './breaker.ts'
import { isolateLag } from './lag.ts'

export interface InFlightSettings {
  most: number
  /** The platform can end a request without notice; its call stops counting after this time. No call takes longer. */
  expiresAfterMs: number
}

/**
 * @param settings absent: no bound
 * @param now ms; the latest time that any request has seen: the clock of another request can stand still, and would drop newer calls
 */
export function withInFlightLimit(
  store: GuardedStore,
  settings: InFlightSettings | undefined,
  now: () => number = isolateLag.now,
): GuardedStore {
  if (!settings) return store
  const { most, expiresAfterMs } = settings
  /** In the order in which they started. */
  const inFlight = new Set<{ startedAt: number }>()

  function dropExpired(time: number): void {
    for (const call of inFlight) {
      // A clock that was set back must not keep a call here for longer.
      if (time >= call.startedAt && time - call.startedAt < expiresAfterMs) return
      inFlight.delete(call)
    }
  }

  return {
    ...store,
    async run(calls) {
      const call = { startedAt: now() }
      dropExpired(call.startedAt)
      if (inFlight.size >= most) {
        throw new GatewayError('ERR_STORE_OVERLOAD', `The isolate has ${most} calls to the store in flight.`)
      }
      inFlight.add(call)
      try {
        return await store.run(calls)
      } finally {
        inFlight.delete(call)
      }
    },
  }
}
