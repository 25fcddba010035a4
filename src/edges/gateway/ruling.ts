/** The result for a request: the decision of the engine, or a refusal before it. */
import type { Decision } from '../../limiter/decision.ts'

export type Ruling = Decision | Refusal

/** Refused without the store, by the request alone. */
export type Refusal = Unauthenticated | Forbidden

export interface Unauthenticated {
  kind: 'unauthenticated'
  reason: 'missing' | 'malformed' | 'not-accepted' | 'expired' | 'unverifiable'
  /** For the log, never for the caller. Holds nothing of the credential. */
  detail?: string
  /** The credentials that are accepted here, in words. */
  accepted: readonly string[]
}

/** Blocked by the config. */
export interface Forbidden {
  kind: 'forbidden'
  what: 'address' | 'country'
}
