/** Compiles `store.breaker`: when an isolate stops waiting for a store that fails (src/trips/breaker.ts). Pure. */
import type { BreakerInput } from './check/store-schema.ts'
import { milliseconds } from './duration.ts'

/** A call to the store takes at most this many deadlines, including the time in which the isolate itself was late. */
export const MAX_DEADLINES_PER_CALL = 40

export interface BreakerSettings {
  /** Consecutive failures that open the breaker. */
  failures: number
  /** Consecutive slow calls that open the breaker. */
  slowCalls: number
  /** A call that takes this long is slow. A call that reaches the deadline is always slow. */
  slowAfterMs: number
  /** Time between probes while the breaker is open. */
  retryAfterMs: number
}

/** @returns undefined if there is no breaker: every decision waits for the store */
export function compileBreaker(
  input: BreakerInput | undefined = {},
  deadlineMs: number,
): BreakerSettings | undefined {
  if (input === false) return undefined
  const { failures = 5, slowCalls = 1, slowAfter, retryAfter = '1s' } = input
  const slowAfterMs = slowAfter === undefined ? deadlineMs : milliseconds(slowAfter)
  return { failures, slowCalls, slowAfterMs, retryAfterMs: milliseconds(retryAfter) }
}
