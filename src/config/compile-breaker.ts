/** When an isolate stops waiting for a store that fails (src/store/breaker.ts), from what the user wrote. Pure. */
import type { BreakerInput } from './check/store-schema.ts'
import { milliseconds } from './duration.ts'

/** In total, with the time in which the isolate itself was late, a call to the store takes so many deadlines at most. */
export const MOST_DEADLINES = 40

export interface BreakerSettings {
  /** Failures in a row that open it. */
  failures: number
  /** Slow calls in a row that open it. */
  slowCalls: number
  /** A call that takes as long is slow; so is one that reaches the deadline, whatever this says. */
  slowAfterMs: number
  /** Between probes while it is open. */
  retryAfterMs: number
}

/** @returns undefined where every decision waits for the store */
export function compileBreaker(
  input: BreakerInput | undefined = {},
  deadlineMs: number,
): BreakerSettings | undefined {
  if (input === false) return undefined
  const { failures = 5, slowCalls = 1, slowAfter, retryAfter = '1s' } = input
  const slowAfterMs = slowAfter === undefined ? deadlineMs : milliseconds(slowAfter)
  return { failures, slowCalls, slowAfterMs, retryAfterMs: milliseconds(retryAfter) }
}
