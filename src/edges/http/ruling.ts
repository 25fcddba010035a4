/** The result for a request: the decision of the engine, or a refusal before it. */
import type { Decision, Denied } from '../../limiter/decision.ts'
import type { ShedVerdict } from '../../shedding/worker-utilization.ts'

export type Ruling = Decision | Refusal | Shed

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

/** Refused without the store, since the origin is too busy for requests of this class. */
export interface Shed {
  kind: 'shed'
  verdict: ShedVerdict
}

/** Blocked by the config. */
export interface Forbidden {
  kind: 'forbidden'
  what: 'address' | 'country'
}

/** Whether a refusal protects the origin, and the caller has reached no limit of its own. */
export function isReducedCapacity({ violated }: Pick<Denied, 'violated'>): boolean {
  return violated.every(({ rule }) => rule.isSystemLimit === true)
}
