/** The input of one decision and its result, as plain values on both sides of the wire. */
import type { Holding } from '../algorithms/algorithm.ts'
import type { Rule } from '../config/compile-rule.ts'
import type { Policy } from './policy-shape.ts'

/** A rule as it takes part in one request: for which identity, at what cost, enforced or not. */
export interface BoundRule {
  rule: Rule
  /** Key of the state that holds its counters. */
  key: string
  /** Key of its own, where it has one: of its log, or of its holders. */
  ownKey?: string
  /** Units. */
  cost: number
  /** Decides who is in the share of callers for whom the rule is enforced; absent: the key. */
  shareKey?: string
  /** `spend`: its cost is checked, and spent when all rules admit. `report`: it only reports how things stand. */
  role: 'spend' | 'report'
  mode: 'enforce' | 'shadow'
  /** Set for a shadow that was switched to shadow: no override of a consumer enforces it. */
  staysShadow?: boolean
  /** Calendar windows: the ends (µs) of the windows around now. */
  ends?: readonly number[]
  /** `concurrency`: what this isolate holds of the identity. */
  holding?: Holding
}

/** All that one decision is about. */
export interface Evaluation {
  /** The rules that are compiled together; `rules` are some of them. */
  policy: Policy
  rules: readonly BoundRule[]
  /** What the credential of the caller is; absent: an anonymous caller. */
  subject?: Subject
  /** Without a subject: the plan that a hook names, or that units of an earlier request were counted by. */
  plan?: string | undefined
  /**
   * How many requests like this one the isolate would like to spend for at once (lease.ts), a whole number; absent or 1: an
   * ordinary decision. It counts only with a policy that has leases.
   */
  wantedRequests?: number | undefined
  /** µs since the epoch; absent: the clock of the store, as always in production. */
  now?: number
}

/** The credential of a caller, as the store checks it. Keys are those of records (src/store/records.ts). */
export type Subject =
  /** The credential is valid if it has a record. */
  | { kind: 'key'; consumerKey: string; credentialKey: string }
  /** The same, but only the store knows the consumer: keys have `UNKNOWN_CONSUMER` in its place. */
  | { kind: 'pointer'; consumerKey: string; credentialKey: string; pointerKey: string }
  /** Already verified by its signature. */
  | { kind: 'token'; consumerKey: string; plan?: string }
  /** Known to be bad (another slot of a cluster has found out): only rules `on: 'auth-failure'` count. */
  | { kind: 'failed' }

/** The answer of one rule. */
export interface Verdict {
  rule: Rule
  /** A shadow never changes the outcome. */
  mode: 'enforce' | 'shadow'
  allowed: boolean
  /** Units left, after this request if it was admitted. */
  remaining: number
  /** µs until the whole budget is back. */
  resetAfter: number
  /** µs after which this cost would be admitted; 0 now, -1 never. */
  retryAfter: number
  /** µs until an admitted request may depart (`leaky-bucket`); else 0. */
  delay: number
  /** Set for a candidate: whether it allows the same requests as the rule that it would replace. */
  agrees?: boolean
}

export interface Outcome {
  /** After `unknown-credential` the verdicts are those of rules `on: 'auth-failure'`. */
  status: 'admitted' | 'refused' | 'unknown-credential' | 'blocked'
  /** The caller's plan; empty for an anonymous caller. */
  plan: string
  /** The consumer that the credential belongs to, where only the store knew. */
  consumer?: string
  /** When it was decided, by the clock of the store (µs). */
  at: number
  /** One for each rule that applies to this caller. */
  verdicts: readonly Verdict[]
  /** For how many requests an admitted one has spent, where that is more than 1: itself and those that the isolate may serve now. */
  granted?: number
}

/** Verdicts that count. */
export function onlyEnforced(verdicts: readonly Verdict[]): readonly Verdict[] {
  return verdicts.filter(({ mode }) => mode === 'enforce')
}

/** Each candidate beside the rule that it would replace, where both apply. */
export function withAgreement(verdicts: readonly Verdict[]): readonly Verdict[] {
  if (!verdicts.some(({ rule }) => rule.candidateFor)) return verdicts
  const allowed = new Map(verdicts.map(verdict => [verdict.rule.name, verdict.allowed]))
  return verdicts.map(verdict => {
    const live = verdict.rule.candidateFor && allowed.get(verdict.rule.candidateFor)
    return typeof live === 'boolean' ? { ...verdict, agrees: verdict.allowed === live } : verdict
  })
}
