/** What a policy is: the rules that are decided together, as far as they are the same for every request. */
import type { Quota } from '../algorithms/algorithm.ts'
import type { AlgorithmName } from '../algorithms/all.ts'
import type { Rule } from '../config/compile-rule.ts'
import type { Script } from '../store/store.ts'

/** What the text of a script depends on. */
export interface PolicyShape {
  slots: readonly Slot[]
  /** How many identities the slots count for. */
  identities: number
  /** The plans that the config knows, the default one first. */
  plans: readonly string[]
  /** Callers have credentials, which the script looks up. */
  hasSubject: boolean
  /** A decision can spend for several requests at once (lease.ts): at least one rule has a lease. */
  leases?: boolean
}

/** One rule, with its numbers for each plan. */
export interface Slot {
  algorithm: AlgorithmName
  /** What it counts for, from 0: rules of one identity share one state. */
  identity: number
  family: string
  takesOverrides: boolean
  /** It counts bad credentials (`on: 'auth-failure'`). */
  isGuess: boolean
  /** An admitted request may have to wait for its turn: the row has a delay. */
  isQueue: boolean
  /** What travels with each request: the ends of the windows of a calendar, or what the isolate holds. */
  argument?: 'ends' | 'holding'
  /**
   * It has a key of its own, for its log or its holders. `whole`: it is read with the states. `parts`: it is long, and separate
   * commands read only the needed part.
   */
  own?: 'whole' | 'parts'
  /** It keeps all it knows under its own key, and has no record in the state of its identity. */
  isApart: boolean
  /** The numbers; the first are those of callers without a plan. */
  variants: readonly Variant[]
}

export interface Variant {
  /** Absent: every plan. */
  plans?: readonly string[]
  tag: string
  quota: Quota
}

/** The scripts of one policy. */
export interface PolicyScripts {
  decide: Script
  refund: Script
}

/** Where the scripts of a policy come from. */
export type ScriptsOf = (shape: PolicyShape) => PolicyScripts

export interface Policy extends PolicyShape, PolicyScripts {
  /** The place of a rule among the slots. */
  slotOf(rule: Rule): number
}
