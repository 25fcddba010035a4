/** The result for a request: the decision of the engine, or an earlier refusal. */
import type { RememberedCaller } from '../../credentials/caller-memory.ts'
import type { RefusedCredential } from '../../credentials/credential.ts'
import type { Decision, Denied } from '../../limiter/decision.ts'
import type { ShedVerdict } from '../../shedding/worker-utilization.ts'
import type { Problem } from './problem.ts'

export type Ruling = Decision | EarlyRefusal | Shed | Unread

/** Refused because of the request alone, without asking the store. */
export type EarlyRefusal = Unauthenticated | Forbidden

export interface Unauthenticated {
  kind: 'unauthenticated'
  reason: 'missing' | RefusedCredential['reason']
  /** For the log, never for the caller. Contains nothing of the credential. */
  detail?: string
  /** For the caller, if the usual text for the reason does not fit. */
  advice?: string
  /** The accepted credentials, in words. */
  accepted: readonly string[]
}

/**
 * Refused without asking the store, because the origin is too busy for requests of this class. Plan and consumer are those that the store
 * has sent to this isolate before.
 */
export interface Shed extends Pick<RememberedCaller, 'plan' | 'consumer'> {
  kind: 'shed'
  verdict: ShedVerdict
}

/** Refused without asking the store, because its body could not be read for an estimate. */
export interface Unread {
  kind: 'unread'
  problem: Problem
}

/** Blocked by the config. */
export interface Forbidden {
  kind: 'forbidden'
  what: 'address' | 'country'
}

/** Whether a refusal protects the origin, and no limit of the caller itself refused. */
export function isReducedCapacity({ violated }: Pick<Denied, 'violated'>): boolean {
  return violated.every(({ rule }) => rule.isSystemLimit === true)
}
