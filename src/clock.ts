/** The one clock of limiting code. It is passed in, so that tests decide what time it is. */
export interface Clock {
  /** ms since the epoch, by this machine. Never decides a limit: the clock of the store does. */
  now(): number
}

/** Resolves after so many ms. */
export type Sleep = (ms: number) => Promise<void>

export const SYSTEM_CLOCK: Clock = { now: () => Date.now() }

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
