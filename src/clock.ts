/** The one clock of limiting code. It is passed in, so that tests decide what time it is. */
export interface Clock {
  /** ms since the epoch, by this machine. Never decides a limit: the clock of the store does. */
  now(): number
}

/** Resolves after so many ms. */
export type Sleep = (ms: number) => Promise<void>

export const SYSTEM_CLOCK: Clock = { now: () => Date.now() }
