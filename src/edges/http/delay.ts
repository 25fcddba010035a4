/**
 * Delays an admitted request until its departure (rules `leaky-bucket`) with a timer, which takes no CPU time on Workers.
 * The store has spaced the departures, so timers that run side by side keep the order.
 */
import type { Sleep } from '../../clock.ts'

const onTimer: Sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

/** @param microseconds until the departure */
export async function delay(microseconds: number, sleep: Sleep = onTimer): Promise<void> {
  if (microseconds > 0) await sleep(Math.ceil(microseconds / 1e3))
}
