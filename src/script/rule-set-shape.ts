/** The types of a rule set: the rules that can be decided together, without what differs from request to request. */
import type { Quota } from '../algorithms/algorithm.ts'
import type { AlgorithmName } from '../algorithms/all.ts'
import type { Rule, SettlementTerms } from '../config/compile-rule.ts'
import type { Script, ScriptCall } from '../store/store.ts'

/** Everything that the text of the scripts depends on. */
export interface RuleSetShape {
  entries: readonly RuleEntry[]
  /** The number of identities that the rules count for. */
  identities: number
  /** The plans of the config, the default plan first. */
  plans: readonly string[]
  /** Whether callers can have credentials, which the script looks up. */
  hasSubject: boolean
  /** Of a limit by name: the identities whose overrides are read, because one of their rules is `overridable`. Absent: none. */
  overridable?: readonly number[]
  /** Whether a decision can spend for several requests at once (lease.ts), because at least one rule has a lease. */
  leases?: boolean
}

/** What each reservation that a decision has settled adds to the status in its reply. */
export const PER_SETTLED = 4

/** A rule of a rule set, with its numbers for each plan. */
export interface RuleEntry {
  algorithm: AlgorithmName
  /** Number of its identity, from 0. Rules of one identity share one state. */
  identity: number
  family: string
  takesOverrides: boolean
  /** Whether it counts bad credentials (`on: 'auth-failure'`). */
  isGuess: boolean
  /** Whether it is a queue: an admitted request may be delayed, and the row in the reply has a delay. */
  isQueue: boolean
  /**
   * The argument that each request has for this rule: the ends of calendar windows, the units that the isolate holds, or how long it waits
   * for its turn in a queue.
   */
  argument?: 'ends' | 'holding' | 'wait'
  /** Set if the rule has a key of its own, which is read with the states. A log has a second key, for chunks, which is rarely read. */
  sideKey?: 'log' | 'held'
  /** Whether everything is stored under its side key, without a record in the state of its identity. */
  isApart: boolean
  /** Set if it reserves units that are settled later. */
  settlement?: SettlementTerms | undefined
  /** The numbers for each plan. The first are those of callers without a plan. */
  variants: readonly Variant[]
}

/** The numbers of a rule for some plans. */
export interface Variant {
  /** Absent: all plans. */
  plans?: readonly string[]
  tag: string
  quota: Quota
}

/** The scripts of one rule set. */
export interface RuleSetScripts {
  decide: Script
  refund: Script
  /** Absent: no rule has a settlement. */
  settle?: Script | undefined
  /** Absent: no rule has a settlement. */
  reservations?: ReservationWire | undefined
}

/** What reservations add to the wire format (reservation-wire.ts). */
export interface ReservationWire {
  /** The keys of the reservations, which follow all other keys of the rules. */
  keysOf(ruleSet: RuleSet, rules: readonly KeyedRule[]): string[]
  /** @param prepared a decision as it is for rules that reserve nothing */
  addTo<Outcome extends { verdicts: readonly { rule: Rule }[] }>(
    prepared: PreparedDecision<Outcome>,
    evaluation: { ruleSet: RuleSet; rules: readonly KeyedRule[]; reservationId?: string | undefined },
  ): PreparedDecision<Outcome>
}

interface KeyedRule {
  rule: Rule
  /** Of the state of its identity. */
  key: string
}

/** The call of a decision, and the decoder of its reply. */
interface PreparedDecision<Outcome> {
  call: ScriptCall & { keys: readonly string[]; args: readonly string[] }
  decode(reply: unknown): Outcome
}

/** Compiles the scripts of a rule set, or finds those that were built. */
export type ScriptsOf = (shape: RuleSetShape) => RuleSetScripts

export interface RuleSet extends RuleSetShape, RuleSetScripts {
  /** The index of a rule's entry. @throws Error for a rule of another rule set */
  entryOf(rule: Rule): number
}
