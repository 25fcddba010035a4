/**
 * What the rest of the project knows of an algorithm. Each has a file <name>.descriptor.ts with two exports: `counting`,
 * which the Worker needs, and `description`, which it must not carry: words, checks, and the model in full. Both are
 * plain data and pure functions without calls at the top level, so that a bundler can leave the second out.
 *
 * To add an algorithm: its twins <name>.ts and <name>.lua, its descriptor, its line in list.ts, its page in the docs.
 */
import type { Model, Quota } from './algorithm.ts'
import type { CalendarPeriod } from './calendar-period.ts'

/** What the Worker needs to count by the rules of one algorithm. */
export interface Counting<Input = RuleInput> {
  state: StateKind
  /** Admitted requests may have to wait for their turn: the verdict has a delay. */
  isQueue?: true
  /**
   * From what the user wrote to the numbers that the twins work with.
   * @param period of the rule (µs); of a calendar period what it lasts, give or take
   */
  numbers(input: Input, period: number): Quota
  /** How one isolate counts by itself, in its memory, while the store does not answer. */
  local: {
    /** Its state must be two numbers, whatever the algorithm keeps in the store. */
    model: Model
    /**
     * The numbers for a share of the limit.
     * @param burst the units at once that are left of the rule's
     * @param share above 0 and up to 1
     */
    shareOf(quota: Quota, burst: number, share: number): Quota
  }
}

/** The algorithms that rules can be compiled with. */
export interface Algorithms {
  readonly countings: Readonly<Record<string, Counting>>
  /** The ends (µs) of four windows of a calendar (calendar.ts). */
  windowEnds(period: CalendarPeriod, timeZone: string, nowMs: number): readonly number[]
}

/**
 * - `time`: an instant that only the numbers it was made with can read. So it belongs to the rule's limit and burst
 *   too, and a rule that changes them starts afresh.
 * - `counts`: counts of a window, which go on under another limit.
 * - `log`: each request that still counts, under a key of its own.
 * - `held`: what is in flight, by isolate, under a key of its own and nowhere else. It goes on under another limit.
 */
export type StateKind = 'time' | 'counts' | 'log' | 'held'

/** What people write and read about one algorithm. */
export interface Description<Input = RuleInput> {
  /** What it is, in a few words. */
  label: string
  /** Lua twin: <name>.lua. */
  model: Model
  /** What a rule has beside its name, its modes and what it is for. The doc comments are what an editor shows. */
  parameters: Parameters
  /** What bounds the cost of one request, in messages that go on with `of 10`. */
  costBound: string
  /** Why no isolate can take units of it for several requests at once, as a clause; absent: it can. */
  whyNoLease?: string
  /** Where the user chooses how many units can come at once. */
  atOnce?: {
    parameter: string
    /** Units of the burst that the parameter does not count: the one that departs. */
    beside: 0 | 1
  }
  /** What is wrong with numbers that are right one by one. */
  flaws?(input: Input, period: number): Flaw[]
  /** How long an admitted request may have to wait (µs). */
  longestDelay?(quota: Quota): number
}

/** The parameter to change, and a message that begins with its value. */
export type Flaw = [parameter: string, message: string]

export type Parameters = Readonly<Record<string, Parameter>>

export type Parameter =
  | { readonly kind: 'name'; readonly is: string }
  | Units
  /** A duration. */
  | { readonly kind: 'period' }
  /** A duration, or a period of the calendar. */
  | { readonly kind: 'calendar-period' }
  | { readonly kind: 'time-zone'; readonly isOptional: true }
  /** How long units stay held without another message of the isolate. */
  | { readonly kind: 'ttl'; readonly isOptional: true }

/** A whole number from `low` to `high` (default: a billion). */
export interface Units {
  readonly kind: 'units'
  readonly low: number
  readonly high?: number
  /** Why there is a lower bound than elsewhere, as a clause. */
  readonly why?: string
  readonly isOptional?: true
  /** A plan, and an override of a consumer, can have other units (plan-units.ts). In a few words what they are. */
  readonly forPlans?: string
}

/** What a user writes for these parameters, as far as the numbers of a rule hang on it. */
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
  : P extends Units
    ? number
    : string

/** What every rule has. */
export interface RuleInput {
  readonly algorithm: string
  readonly limit: number
  /** A duration, or a period of the calendar; absent where the algorithm has none. */
  readonly period?: string
  readonly ttl?: string | undefined
}
