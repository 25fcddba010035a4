/** The one clock of limiting code. It is passed in, so that tests decide what time it is. */
export interface Clock {
  /** ms since the epoch, by this machine. Never decides a limit: the clock of the store does. */
  now(): number
  /** ms from any instant, which a change of the machine's time leaves alone. Absent: `now`. */
  elapsed?(): number
}

/** ms from any instant; only grows, as far as the clock can tell. */
export const elapsed = (clock: Clock) => (clock.elapsed ?? clock.now)()

/** A clock that falls back by more than this was set back (ms). */
const SET_BACK_MS = 1000

/**
 * The latest time that any request of the isolate has seen. On Workers the clock of a request stands still at the time for which its
 * next timer was set, while other requests see the real time. It falls only where the machine's clock was set back.
 */
export function latestOf(read: () => number): () => number {
  let latest = Number.NEGATIVE_INFINITY
  return () => {
    const time = read()
    if (time > latest || time < latest - SET_BACK_MS) latest = time
    return latest
  }
}

/** Resolves after so many ms. */
export type Sleep = (ms: number) => Promise<void>

export const SYSTEM_CLOCK: Clock = { now: () => Date.now(), elapsed: () => performance.now() }

/**
 * Runs something after so many ms.
 * @param isOptional a process that has nothing else to do ends without it
 * @returns cancels it
 */
export type Timer = (ms: number, run: () => void, isOptional?: boolean) => () => void

export const SYSTEM_TIMER: Timer = (ms, run, isOptional = false) => {
  const timer: unknown = setTimeout(run, ms)
  // Timers are objects on Node, and numbers on Workers.
  if (isOptional && isNodeTimer(timer)) timer.unref()
  return () => clearTimeout(timer as number)
}

function isNodeTimer(timer: unknown): timer is { unref(): void } {
  return typeof timer === 'object' && timer !== null && 'unref' in timer
}
