/** Keeps in the store what a request holds or has reserved there, by renewals until the request is over. */
import type { Background } from '../background.ts'
import type { Timer } from '../clock.ts'

/**
 * @param leastMs the shortest time between two looks whether a renewal is due
 * @param dueInMs returns when one will be; undefined: never
 * @param renew whatever is due
 * @returns a function that ends the renewals, to be called when the request is over
 */
export function renewUntilOver(
  timer: Timer,
  background: Background,
  leastMs: number,
  dueInMs: () => number | undefined,
  renew: () => Promise<void> | void,
): () => void {
  let isOver = false
  let cancel = () => {}
  function lookLater(): void {
    const ms = isOver ? undefined : dueInMs()
    if (ms !== undefined) cancel = timer(Math.max(ms, leastMs), look, true)
  }
  /** Most looks find nothing to send. With many streams they are most of the work, so they create no promises. */
  function look(): void {
    const renewing = renew()
    if (renewing) background(renewing.then(lookLater))
    else lookLater()
  }
  lookLater()
  // Keeps the timers of this request alive.
  const { promise: ended, resolve: end } = Promise.withResolvers<void>()
  background(ended)
  return () => {
    isOver = true
    cancel()
    end()
  }
}
