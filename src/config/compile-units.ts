/** Compiles `units`: what rules count besides requests, where its amounts come from, and how reservations end. Pure. */
import type { AmountSource } from '../usage/usage.ts'
import type { UnitInput } from './check/units-schema.ts'
import { milliseconds } from './duration.ts'

/** The unit of rules that name none: a request has as many of it as it costs. */
export const REQUESTS = 'requests'

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
  /** Absent: a request to the gateway costs what was estimated. */
  actual?: ActualSource
  /** Whether the gateway asks the origin to report usage in streams. */
  includesUsage: boolean
  settlement: SettlementTerms
}

/** The units of a config by name, without requests. */
export type Units = ReadonlyMap<string, Unit>

export const NO_UNITS: Units = new Map()

/** With `countIf`, a request that costs more than the limit is refused, as by other rules of requests. */
export const COUNT_IF_SETTLEMENT: SettlementTerms = {
  ttlMs: 600_000,
  onUnsettled: 'keep',
  aboveLimit: 'refuse',
}

export function compileUnits(input: Readonly<Record<string, UnitInput>> = {}): Units {
  return new Map(Object.entries(input).map(([name, unit]) => [name, compileUnit(unit)]))
}

function compileUnit({ estimate, actual, ttl, onUnsettled, aboveLimit }: UnitInput): Unit {
  return {
    ...(estimate !== undefined && { estimate: estimate === 'llm' ? {} : estimate }),
    ...(actual !== undefined && { actual: typeof actual === 'string' ? actual : sourceOf(actual) }),
    includesUsage: typeof actual === 'object' && actual.includeUsage === true,
    settlement: {
      ttlMs: milliseconds(ttl ?? '10m'),
      onUnsettled: onUnsettled ?? 'keep',
      aboveLimit: aboveLimit ?? 'clamp',
    },
  }
}

type SourceInput = Exclude<NonNullable<UnitInput['actual']>, string>

/** The check has accepted exactly one of the sources. */
function sourceOf({ usage, weights, header, keep, json }: SourceInput): AmountSource {
  if (usage !== undefined) return { usage, ...(weights && { weights }) }
  return header === undefined ? { json: json! } : { header, ...(keep && { keep }) }
}
