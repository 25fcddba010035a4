/** The types of units: what rules count besides requests, where its amounts come from, and how reservations end. compile-units.ts makes them. */
import type { AmountSource, UsageFormat } from '../usage/usage.ts'

/** How a rule reserves units whose amount is known only afterwards. */
export interface SettlementTerms {
  /** How long a reservation lasts unless it is renewed (ms). */
  ttlMs: number
  /** What becomes of units that are not settled until then: they stay spent, or are given back. */
  onUnsettled: 'keep' | 'release'
  /** An estimate above the whole limit reserves the whole limit, or is refused. */
  aboveLimit: 'clamp' | 'refuse'
}

/** How the tokens of a request to a language model are estimated from its body (src/usage/llm-request.ts). */
export interface LlmEstimate {
  maxBytes?: number | undefined
  defaultOutput?: number | undefined
  maxOutput?: number | undefined
}

/** Where actual amounts come from: the response (src/usage/), the bytes of its body, its duration in ms, or the hook `actual`. */
export type ActualSource = AmountSource | 'bytes' | 'ms' | 'hook'

export interface Unit {
  /** What is reserved for a request that has no amount from elsewhere. */
  estimate?: number | LlmEstimate
  /** With an estimate from the body: what a request costs whose body is not JSON. Absent: it is refused. */
  estimateUnreadable?: number
  /** Absent: a request to the gateway costs what was estimated. */
  actual?: ActualSource
  /** Whether the gateway asks the origin to report usage in streams. */
  includesUsage: boolean
  settlement: SettlementTerms
  /** The shape of the gateway's own replies to requests that cost this unit. Absent: problem details. */
  errors?: UsageFormat | undefined
}

/** The units of a config by name, without requests. */
export type Units = ReadonlyMap<string, Unit>

/** What a rule has because the costs of its requests vary. */
export interface FieldsOfUnit {
  quotaUnit?: string
  unitSuffix?: string
  cost: number
  isEstimated: true
  settlement?: SettlementTerms
  /** A request counts only if the response has one of these statuses. */
  countIf?: { status: ReadonlySet<number> }
  /** Each call has to say its amount, because the unit has no fixed estimate. */
  needsAmount?: true
}
