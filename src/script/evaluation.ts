/** The input and the result of one decision, as plain values. */
import type { Holding } from '../algorithms/algorithm.ts'
import type { CallerMode } from '../config/caller-mode.ts'
import type { Rule } from '../config/compile-rule.ts'
import { type IdentityKey, withConsumer } from '../store/keys.ts'
import type { RuleSet } from './rule-set-shape.ts'

/** A rule that is bound to one request: its identity, cost and mode. */
export interface BoundRule {
  rule: Rule
  /** Key of the state with its counters. */
  key: string
  /** The rule's side key, if it has one: of its log, or of its holders. */
  sideKey?: string
  /** Units. */
  cost: number
  /** Identifies the caller if the rule is enforced for a share of the callers. Absent: `key`. */
  shareKey?: string
  /** `spend`: the cost is checked, and spent if all rules admit. `peek`: the rule only shows its state. */
  role: 'spend' | 'peek'
  mode: 'enforce' | 'shadow'
  /** Set if a live switch has set the mode to `shadow`, so that no override of a consumer can enforce the rule. */
  staysShadow?: boolean
  /** For calendar windows: the ends of the windows around now (µs). */
  ends?: readonly number[]
  /** For `concurrency`: the units that this isolate holds of the identity. */
  holding?: Holding
  /** For a queue of a limit by name: the longest wait for its turn that the request accepts (µs). Absent: any. */
  wait?: number
}

/** The input of one decision. */
export interface Evaluation {
  /** The compiled rules; `rules` are some of them. */
  ruleSet: RuleSet
  rules: readonly BoundRule[]
  /** The credential of the caller. Absent for an anonymous caller. */
  subject?: Subject
  /** Without a subject: the plan that a hook names, or the plan under which earlier units were counted. */
  plan?: string | undefined
  /**
   * For how many similar requests the isolate wants to spend at once (lease.ts), a whole number. Absent or 1: for this request only.
   * Ignored if the rule set has no leases.
   */
  wantedRequests?: number | undefined
  /** Identifies what this request reserves: twelve random base62 letters. Absent: rules with a settlement spend for good. */
  reservationId?: string | undefined
  /** µs since the epoch. Absent, as always in production: the clock of the store. */
  now?: number
}

/** The credential of a caller, to be checked by the store. The keys are those of records (src/store/records.ts). */
export type Subject =
  /**
   * An API key: valid if it has a record. `planInOutage` is set if the isolate has checked its signature, so that it can pass without
   * the store: the plan that it is then counted on. `mode` is set for opaque keys, whose record has their mode: the one that the rules
   * are bound for.
   */
  | { kind: 'key'; consumerKey: string; credentialKey: string; planInOutage?: string; mode?: CallerMode }
  /** An opaque key: the same, but only the store knows the consumer. The keys have `UNKNOWN_CONSUMER` in its place. */
  | { kind: 'pointer'; consumerKey: string; credentialKey: string; pointerKey: string; mode?: CallerMode }
  /** A token, already verified by its signature. */
  | { kind: 'token'; consumerKey: string; plan?: string }
  /**
   * Known to be bad, because another slot of a cluster does not know it, or its signature is wrong. Only rules `on: 'auth-failure'`
   * count.
   */
  | { kind: 'failed' }

/** What was decided under a rule that can have other numbers for other plans. */
export const verdictOf = (rule: Rule, verdicts: readonly Verdict[]): Verdict | undefined =>
  verdicts.find(verdict => verdict.rule.tag === rule.tag && verdict.rule.name === rule.name)

/** The key of the record of a caller's consumer, if it has one. @param consumer if only the store knew it */
export const consumerKeyOf = (subject: Subject | undefined, consumer?: string): IdentityKey | undefined =>
  subject && 'consumerKey' in subject ? withConsumer(subject.consumerKey, consumer) : undefined

/** The result of one rule. */
export interface Verdict {
  rule: Rule
  /** A shadow never changes the outcome. */
  mode: 'enforce' | 'shadow'
  allowed: boolean
  /** Units left, after this request if it is admitted. */
  remaining: number
  /** The time until the whole budget is available again (µs). */
  resetAfter: number
  /** The time after which this cost would be admitted (µs); 0: now, -1: never. */
  retryAfter: number
  /** The time until an admitted request may depart (`leaky-bucket`, µs); else 0. */
  delay: number
  /** Of a rule with a settlement: the units that this request has reserved. */
  reserved?: number
  /** Of a rule with a settlement: the units above the limit. Nothing is admitted until they are worked off. */
  debt?: number
  /** Set for a candidate: whether it decides like the rule that it would replace. */
  agrees?: boolean
}

/** The result of one decision. */
export interface Outcome {
  /**
   * With `unknown-credential` the verdicts are those of rules `on: 'auth-failure'`. `other-mode`: the key has another mode than its
   * subject says, so the rules are bound to the wrong identities. Nothing was spent, and there are no verdicts.
   */
  status: 'admitted' | 'refused' | 'unknown-credential' | 'blocked' | 'other-mode'
  /** With `other-mode`: the mode of the key. */
  mode?: CallerMode
  /** The caller's plan; empty for an anonymous caller. */
  plan: string
  /** The consumer that the credential belongs to, if only the store knew it. */
  consumer?: string
  /** When it was decided, by the clock of the store (µs). */
  at: number
  /** With `blocked`: when the block ends (µs). Absent: it has no end. */
  blockedUntil?: number
  /** With `refused`, of a limit by name: it is paused until then (µs, by the clock of the store), whatever its rules say. */
  pausedUntil?: number
  /** One for each rule that applies to this caller. */
  verdicts: readonly Verdict[]
  /** For how many requests units were spent, including the admitted request itself. Absent: 1. The isolate may serve the others. */
  granted?: number
  /** Whether each slot of a cluster has decided by itself: one may have counted what another has refused. */
  isBySlot?: true
}

/** The verdicts of enforced rules. */
export function onlyEnforced(verdicts: readonly Verdict[]): readonly Verdict[] {
  return verdicts.filter(({ mode }) => mode === 'enforce')
}

/** Sets `agrees` of each candidate, if the rule that it would replace applies too. */
export function withAgreement(verdicts: readonly Verdict[]): readonly Verdict[] {
  if (!verdicts.some(({ rule }) => rule.candidateFor)) return verdicts
  const allowed = new Map(verdicts.map(verdict => [verdict.rule.name, verdict.allowed]))
  return verdicts.map(verdict => {
    const replaced = verdict.rule.candidateFor && allowed.get(verdict.rule.candidateFor)
    return typeof replaced === 'boolean' ? { ...verdict, agrees: verdict.allowed === replaced } : verdict
  })
}
