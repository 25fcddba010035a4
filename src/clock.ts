/** The clock of limiting code. It is a parameter everywhere, so that tests can set the time. */
export interface Clock {
  /** Time of this machine, in ms since the epoch. Limits are decided by the clock of the store, not by this one. */
  now(): number
  /** Monotonic time in ms: a change of the machine's time does not affect it. Default: `now`. */
  elapsed?(): number
}

/** Monotonic time in ms, from an arbitrary start. Without `clock.elapsed`, it can fall when the machine's time is set back. */
export const elapsed = (clock: Clock) => (clock.elapsed ?? clock.now)()

/** A fall of more than this (ms) means that the machine's clock was set back. After a smaller one, a request's clock may stand still. */
const SET_BACK_MS = 1000

/**
 * A clock for an isolate: the latest time that any of its requests has read. On Workers, the clock of one request can stand still
 * (at the time for which its next timer is set) while other requests read the real time. The result falls only if the machine's
 * clock was set back.
 * @param read reads the time in ms
 * @param onSetBack called when the clock was set back, before the first earlier time is returned. Times from before mean nothing then
 * @returns reads the time. `largestFallMs` replaces the default for requests whose own clock does not stand still
 */
export function latestOf(
  read: () => number,
  onSetBack?: (before: number, after: number) => void,
): (largestFallMs?: number) => number {
  let latest = Number.NEGATIVE_INFINITY
  return (largestFallMs = SET_BACK_MS) => {
    const time = read()
    if (time > latest) latest = time
    else if (time < latest - largestFallMs) {
      const before = latest
      latest = time
      onSetBack?.(before, time)
    }
    return latest
  }
}

/** Resolves after `ms` milliseconds. */
export type Sleep = (ms: number) => Promise<void>

export const SYSTEM_CLOCK: Clock = { now: () => Date.now(), elapsed: () => performance.now() }

/**
 * Calls `run` after `ms` milliseconds.
 * @param isOptional true: on Node, the timer does not keep the process running
 * @returns cancels the timer
 */
export type Timer = (ms: number, run: () => void, isOptional?: boolean) => () => void

/** The longest timer of the platforms (ms); a longer one would end at once. */
const MAX_TIMER_MS = 2 ** 31 - 1

/** Starts timers with the functions of the platform. */
export function timerOn({ setTimeout, clearTimeout }: PlatformTimers): Timer {
  return (ms, run, isOptional = false) => {
    let timer: unknown
    const start = (ms: number) => {
      const rest = ms - MAX_TIMER_MS
      timer = rest > 0 ? setTimeout(() => start(rest), MAX_TIMER_MS) : setTimeout(run, ms)
      // Timers are objects on Node, and numbers on Workers.
      if (isOptional && isNodeTimer(timer)) timer.unref()
    }
    start(ms)
    return () => clearTimeout(timer as number)
  }
}

type PlatformTimers = Pick<typeof globalThis, 'setTimeout' | 'clearTimeout'>

/**
 * Takes the functions when this module is loaded: if a test replaces them later by fake ones, the deadline of the store still ends a call.
 */
export const SYSTEM_TIMER = timerOn(globalThis)

function isNodeTimer(timer: unknown): timer is { unref(): void } {
  return typeof timer === 'object' && timer !== null && 'unref' in timer
}
