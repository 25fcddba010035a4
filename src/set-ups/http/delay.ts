/**
 * Delays an admitted request until its departure (`leaky-bucket` rules) with a timer, which takes no CPU time on
 * Workers. The store has spaced the departures, so timers that run in parallel keep the order.
 */
import type { Sleep } from '../../clock.ts'

const onTimer: Sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

/**
 * Resolves at the departure, or as soon as the client leaves.
 *
 * @param microseconds until the departure
 */
export async function delay(
  microseconds: number,
  { signal: clientGone }: Pick<Request, 'signal'>,
  sleep: Sleep = onTimer,
): Promise<void> {
  if (clientGone.aborted) return
  const left = new AbortController()
  const leaving = new Promise<void>(resolve => {
    clientGone.addEventListener('abort', () => resolve(), { once: true, signal: left.signal })
  })
  try {
    await Promise.race([sleep(Math.ceil(microseconds / 1e3)), leaving])
  } finally {
    left.abort()
  }
}
