/** What becomes of a request: the decision of the engine, or a refusal that comes before it. */
import type { Decision } from '../../limiter/decision.ts'

export type Ruling = Decision | Refusal

/** Refused by what the request shows, without the store. */
export type Refusal = Unauthenticated | Forbidden

export interface Unauthenticated {
  kind: 'unauthenticated'
  reason: 'missing' | 'malformed' | 'not-accepted' | 'expired' | 'unverifiable'
  /** For the log, never for the caller. Holds nothing of the credential. */
  detail?: string
  /** The credentials that are accepted here, in words. */
  taken: readonly string[]
}

/** Blocked by the config. */
export interface Forbidden {
  kind: 'forbidden'
  what: 'address' | 'country'
}
