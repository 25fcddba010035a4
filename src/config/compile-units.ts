/** Compiles `units`: what rules count besides requests, where its amounts come from, and how reservations end. Pure. */
import type { AmountSource } from '../usage/usage.ts'
import type { ConfigInput, LimitRuleInput, RuleInput, UnitInput } from './check/schema.ts'
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

/** What a rule has because the costs of its requests vary. */
export interface RuleOfUnit {
  fields: {
    unit: string
    quotaUnit?: string
    cost: number
    isEstimated: true
    settlement?: SettlementTerms
    /** A request counts only if the response has one of these statuses. */
    countIf?: { status: ReadonlySet<number> }
    /** Each call has to say its amount, because the unit has no fixed estimate. */
    needsAmount?: true
  }
  /** What its family has in addition. */
  family: readonly string[]
}

/** A rule that counts requests, whatever their response is, has nothing of this. */
export interface CompiledUnits {
  units: Units
  ofGatewayRule(rule: Pick<RuleInput, 'unit' | 'cost' | 'countIf'>): RuleOfUnit | undefined
  ofLimitRule(rule: Pick<LimitRuleInput, 'unit'>): RuleOfUnit | undefined
}

/** Whether what a request costs under a rule depends on more than the rule. */
export const hasVariableCost = ({ unit = REQUESTS, countIf }: Pick<RuleInput, 'unit' | 'countIf'>) =>
  unit !== REQUESTS || countIf !== undefined

/** With `countIf`, a request that costs more than the limit is refused, as by other rules of requests. */
const COUNT_IF_SETTLEMENT: SettlementTerms = {
  ttlMs: 600_000,
  onUnsettled: 'keep',
  aboveLimit: 'refuse',
}

/** A part that a built Worker carries only if its config has units or `countIf`. */
export function compileUnits(input: ConfigInput['units'] = {}): CompiledUnits {
  const entries = Object.entries(input).filter(([name]) => name !== REQUESTS)
  const units: Units = new Map(entries.map(([name, unit]) => [name, compileUnit(unit)]))
  return {
    units,

    ofGatewayRule({ unit: name = REQUESTS, cost, countIf }) {
      if (countIf) {
        const counted = { settlement: COUNT_IF_SETTLEMENT, countIf: { status: new Set(countIf.status) } }
        return ruleOfUnit(name, cost, counted)
      }
      if (name === REQUESTS) return undefined
      const unit = units.get(name)
      return ruleOfUnit(name, cost ?? fixedEstimateOf(unit), unit?.actual && { settlement: unit.settlement })
    },

    // Such a rule can always be settled, because the caller knows when it has an actual amount.
    ofLimitRule({ unit: name = REQUESTS }) {
      if (name === REQUESTS) return undefined
      const unit = units.get(name)
      const cost = fixedEstimateOf(unit)
      return ruleOfUnit(name, cost, {
        ...(unit && { settlement: unit.settlement }),
        ...(unit && cost === undefined && { needsAmount: true }),
      })
    },
  }
}

function ruleOfUnit(
  unit: string,
  cost = 1,
  more: Pick<RuleOfUnit['fields'], 'settlement' | 'countIf' | 'needsAmount'> = {},
): RuleOfUnit {
  const fields = { unit, cost, isEstimated: true as const, ...more }
  if (unit === REQUESTS) return { fields, family: [] }
  const quotaUnit = unit === 'bytes' ? 'content-bytes' : unit
  return { fields: { ...fields, quotaUnit }, family: [`unit ${unit}`] }
}

/** What a request without an amount of its own costs. Undefined: each request has one. */
function fixedEstimateOf(unit: Unit | undefined): number | undefined {
  return typeof unit?.estimate === 'number' ? unit.estimate : undefined
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
