/**
 * Holds an admitted request until its departure (rules `leaky-bucket`). A timer and nothing else: on Workers it takes
 * no CPU time. Departures were spaced by the store, so timers that run side by side keep the order.
 */

export type Sleep = (ms: number) => Promise<void>

const onTimer: Sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

/** @param delay µs */
export async function hold(delay: number, sleep: Sleep = onTimer): Promise<void> {
  if (delay > 0) await sleep(Math.ceil(delay / 1e3))
}
