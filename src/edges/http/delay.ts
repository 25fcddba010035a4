/**
 * Delays an admitted request until its departure (`leaky-bucket` rules) with a timer, which takes no CPU time on
 * Workers. The store has spaced the departures, so timers that run in parallel keep the order.
 */
import type { Sleep } from '../../clock.ts'

const onTimer: Sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

/**
 * Resolves at the departure.
 *
 * @param microseconds until the departure
 */
export async function delay(microseconds: number, sleep: Sleep = onTimer): Promise<void> {
  if (microseconds > 0) await sleep(Math.ceil(microseconds / 1e3))
}
