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
  /** It has the windows of a calendar. */
  hasEnds: boolean
  /** It keeps a log: a short one is read as a whole, with the states; of a long one, separate commands read only the needed part. */
  log?: 'short' | 'long'
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
