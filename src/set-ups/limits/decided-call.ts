/** A call of a limit by name, once it is decided. */
import type { Allowed, Decision, Denied, Unavailable } from '../../limiter/decision.ts'
import type { LimitDecision } from './limiter-shape.ts'
import type { ObservedCall } from './observe-call.ts'
import type { Decided } from './waits.ts'

/** If a call needs the store and the store does not answer, it can be tried again after this time (µs). */
const UNAVAILABLE_RETRY = 1e6

/** A decision, and what is counted of it. */
export interface DecidedCall extends Decided<LimitDecision> {
  observed: ObservedCall
  /** Releases the units in flight that it holds. */
  release(): void
}

/**
 * Narrows a decision to the kinds that a limit by name can have.
 *
 * @throws Error for the other kinds: a limit by name has no caller that could be unknown or blocked
 */
export function narrowDecision(decision: Decision): Allowed | Denied | Unavailable {
  switch (decision.kind) {
    case 'allowed':
    case 'denied':
    case 'unavailable':
      return decision
    case 'unknown-credential':
    case 'blocked':
      throw new Error(`A limit by name has no caller, and yet the decision is ${decision.kind}.`)
  }
}

export function retryAfterOf(decision: Allowed | Denied | Unavailable): number {
  switch (decision.kind) {
    case 'allowed':
      return 0
    case 'denied':
      return decision.retryAfter
    case 'unavailable':
      return UNAVAILABLE_RETRY
  }
}

/** Both ways to release a decision: a call of `release`, and the end of an `await using` block. */
export function releaseMethods(
  release: () => void,
): Pick<LimitDecision, 'release' | typeof Symbol.asyncDispose> {
  return {
    release,
    async [Symbol.asyncDispose]() {
      release()
    },
  }
}
