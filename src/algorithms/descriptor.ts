/**
 * The properties of an algorithm that the rest of the project uses. Each algorithm has a file <name>.descriptor.ts with three exports:
 * `counting` for the Worker; `numbers` for a Worker that sets overrides; and `description`, which a built Worker leaves out: texts, checks
 * and the full model. None calls a function at the top level, so a bundler can leave out the last two.
 *
 * To add an algorithm, see docs/internals/architecture.md#an-algorithm.
 */
import type { Model, Quota, Standing } from './algorithm.ts'
import type { CalendarPeriod } from './calendar-period.ts'

/** The part of an algorithm that a Worker needs. */
export interface Counting<Input = QuotaInput> {
  state: StateKind
  /** Admitted requests may have to wait for their turn: the verdict has a delay. */
  isQueue?: true
  /**
   * Converts the parameters of a rule to the numbers that the algorithm computes with.
   * @param period length of the rule's period (µs); approximate for a calendar period
   */
  toQuota(input: Input, period: number): Quota
  /**
   * How long a cost above `remaining`, and not above the burst, is refused (µs; at most 1 too long). Absent: the standing does not say.
   */
  waitFor?(quota: Quota, standing: Standing, cost: number): number
  /** How an isolate counts in its own memory while the store does not answer. */
  local: {
    /** Its state must be two numbers, even if the algorithm keeps more in the store. */
    model: Model
    /**
     * The quota for a share of the limit.
     * @param burst the units at once in this share
     * @param share above 0 and up to 1
     */
    shareOf(quota: Quota, burst: number, share: number): Quota
  }
}

/** The algorithms that rules can be compiled with. */
export interface Algorithms {
  readonly countings: Readonly<Record<string, Counting>>
  /** The ends (µs) of four consecutive calendar windows (calendar.ts). */
  windowEnds(period: CalendarPeriod, timeZone: string, nowMs: number): readonly number[]
}

/**
 * How an algorithm stores its state. It decides whether a rule keeps its state when its limit changes.
 *
 * - `time`: an instant, which has a meaning only together with the limit and the burst. A rule that changes them starts with a new
 *   state.
 * - `counts`: the counts of windows. They stay valid under another limit.
 * - `log`: the requests that still count, in a key of the rule's own.
 * - `held`: the units in flight of each isolate, all in a key of the rule's own. They stay valid under another limit.
 */
export type StateKind = 'time' | 'counts' | 'log' | 'held'

/** What decides which numbers a rule can have, also from plans and overrides. */
export interface Numbers<Input = QuotaInput> {
  /** The highest limit, if the algorithm has one of its own. */
  maxLimit?: number
  /** What limits the cost of one request. Messages continue it with the number, as in `limit of 10`. */
  costBound: string
  /** The parameter that sets how many units can come at once. Absent: the limit does. Plans and overrides can set both. */
  atOnce?: {
    parameter: string
    /** Units of the burst that the parameter does not include: with `queue`, the one that departs. */
    notIncluded: 0 | 1
  }
  /** Finds numbers that are valid one by one, but not together. @param period µs */
  findFlaws?(input: Input, period: number): Flaw[]
  /** Finds an admitted request that could be delayed for too long. @param most of the delay (µs) */
  findDelayFlaws?(quota: Quota, rule: { limit: number; period: number }, most: number): Flaw[]
}

/** The parameters of an algorithm, and its texts for users. */
export interface Description<Input = QuotaInput> {
  /** A few words that describe the algorithm, for the command line. */
  label: string
  /** The model of <name>.lua. */
  model: Model
  /** The settings that a rule of this algorithm has in addition to those of every rule. Editors show their doc comments. */
  parameters: Parameters
  numbers: Numbers<Input>
  /** Why an isolate cannot lease units of such a rule, as a clause for messages. Absent: it can. */
  whyNoLease?: string
  /** Finds settings that are valid one by one, but not together. No plan and no override changes them. */
  findFlaws?(input: Input): Flaw[]
}

/** The parameter to change, and a message, which begins with the parameter's value. */
export type Flaw = [parameter: string, message: string]

export type Parameters = Readonly<Record<string, Parameter>>

export type Parameter =
  | { readonly kind: 'name'; readonly is: string }
  | Units
  /** A duration. */
  | { readonly kind: 'period' }
  /** A duration or a calendar period. */
  | { readonly kind: 'calendar-period' }
  | { readonly kind: 'time-zone'; readonly isOptional: true }
  /** One of a few words. `what` they are, for messages. */
  | {
      readonly kind: 'word'
      readonly what: string
      readonly words: readonly string[]
      readonly isOptional: true
    }
  /** How long units stay held after the last message of the isolate. */
  | { readonly kind: 'ttl'; readonly isOptional: true }

/** A whole number from `low` to `high` (default: a billion). */
export interface Units {
  readonly kind: 'units'
  readonly low: number
  readonly high?: number
  readonly isOptional?: true
  /** Present: plans and overrides can set this parameter (plan-units.ts). A few words that describe the units. */
  readonly forPlans?: string
}

/** The type of the values that a user writes for these parameters. */
export type InputOf<P extends Parameters> = {
  readonly [K in RequiredKeys<P>]: ValueOf<P[K]>
} & {
  readonly [K in Exclude<keyof P, RequiredKeys<P>>]?: ValueOf<P[K]> | undefined
}

type RequiredKeys<P extends Parameters> = {
  [K in keyof P]: P[K] extends { isOptional: true } ? never : K
}[keyof P]

type ValueOf<P extends Parameter> = P extends { kind: 'name'; is: infer Name }
  ? Name
  : P extends { kind: 'word'; words: readonly (infer Word)[] }
    ? Word
    : P extends Units
      ? number
      : string

/** The parameters that `Counting` reads, of any algorithm. */
export interface QuotaInput {
  readonly algorithm: string
  readonly limit: number
  /** A duration or a calendar period. Absent: the algorithm has no period. */
  readonly period?: string
  readonly ttl?: string | undefined
}
