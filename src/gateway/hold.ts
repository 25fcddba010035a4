/**
 * Holds an admitted request until its departure (rules `leaky-bucket`). A timer and nothing else: on Workers it takes
 * no CPU time. Departures were spaced by the store, so timers that run side by side keep the order.
 */

/** @param delay µs */
export async function hold(delay: number): Promise<void> {
  if (delay > 0) await new Promise(resolve => setTimeout(resolve, Math.ceil(delay / 1e3)))
}
