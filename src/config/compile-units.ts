/** Compiles `units`: what rules count besides requests, where its amounts come from, and how reservations end. Pure. */
import { type Model, modelOf } from '../algorithms/algorithm.ts'
import type { Counting } from '../algorithms/descriptor.ts'
import type { AmountSource } from '../usage/usage.ts'
import type { ConfigInput, RuleInput, UnitInput } from './check/schema.ts'
import { type GatewayRule, type LimitRule, REQUESTS, type Rule } from './compile-rule.ts'
import { milliseconds } from './duration.ts'
import type { FieldsOfUnit, SettlementTerms, Unit, Units } from './units-shape.ts'

/** The units of a config. */
export interface CompiledUnits {
  units: Units
  /**
   * Gives a rule what it has because of its unit. A rule that counts requests, whatever their response is, stays as it is.
   * @param input what the rule was compiled from
   */
  ofGatewayRule(input: Pick<RuleInput, 'cost' | 'countIf'>, rule: GatewayRule): GatewayRule
  ofLimitRule(rule: LimitRule): LimitRule
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

/** What units are for in a compiled config (compile.ts). */
interface ConfigOfRules {
  rules: readonly GatewayRule[]
  limits: ReadonlyMap<string, readonly LimitRule[]>
  units?: Units | undefined
  api?: { compiledUnits?: CompiledUnits }
}

/**
 * Gives the rules of a config their units. A part that a built Worker carries only if its config has units or `countIf`.
 * @param config compiled as if all rules counted requests
 * @param input what it was compiled from
 */
export function compileUnits<Config extends ConfigOfRules>(
  config: Config,
  { units, rules = [] }: Pick<ConfigInput, 'units' | 'rules'>,
): Config {
  const compiledUnits = unitsOf(units)
  const { ofGatewayRule, ofLimitRule } = compiledUnits
  const inputs = new Map(rules.map(rule => [rule.name, rule]))
  return {
    ...config,
    units: compiledUnits.units,
    rules: config.rules.map(rule => ofGatewayRule(inputs.get(rule.name) ?? {}, rule)),
    limits: new Map([...config.limits].map(([name, set]) => [name, set.map(ofLimitRule)])),
    ...(config.api && { api: { ...config.api, compiledUnits } }),
  }
}

export function unitsOf(input: ConfigInput['units'] = {}): CompiledUnits {
  const entries = Object.entries(input).filter(([name]) => name !== REQUESTS)
  const units: Units = new Map(entries.map(([name, unit]) => [name, compileUnit(unit)]))
  return {
    units,

    ofGatewayRule({ cost, countIf }, rule) {
      if (countIf) {
        const counted = { settlement: COUNT_IF_SETTLEMENT, countIf: { status: new Set(countIf.status) } }
        return withUnit(rule, cost, counted)
      }
      if (rule.unit === REQUESTS) return rule
      const unit = units.get(rule.unit)
      return withUnit(rule, cost ?? fixedEstimateOf(unit), unit?.actual && { settlement: unit.settlement })
    },

    // Such a rule can always be settled, because the caller knows when it has an actual amount.
    ofLimitRule(rule) {
      if (rule.unit === REQUESTS) return rule
      const unit = units.get(rule.unit)
      const cost = fixedEstimateOf(unit)
      return withUnit(rule, cost, {
        ...(unit && { settlement: unit.settlement }),
        ...(unit && cost === undefined && { needsAmount: true }),
      })
    },
  }
}

/** The rule without its lease, because leases are for requests that all cost the same. */
function withUnit<R extends Rule>(
  { lease: _, ...rule }: R,
  cost = 1,
  more: Pick<FieldsOfUnit, 'settlement' | 'countIf' | 'needsAmount'> = {},
): R {
  const { unit } = rule
  const { settlement } = more
  const fields: FieldsOfUnit = {
    ...{ cost, isEstimated: true, ...more },
    ...(unit !== REQUESTS && {
      quotaUnit: unit === 'bytes' ? 'content-bytes' : unit,
      unitSuffix: ` ${unit}`,
    }),
  }
  const counting = settlement ? settledCounting(rule.counting, settlement) : rule.counting
  return { ...rule, ...fields, counting } as R
}

/** How an isolate counts for a rule that is settled later, while the store does not answer. It counts no settlements, so it knows no debt. */
export function settledCounting(
  { local, ...counting }: Counting,
  { aboveLimit }: Pick<SettlementTerms, 'aboveLimit'>,
): Counting {
  const { sections } = local.model
  const model = modelOf({ ...sections, standing: kept => ({ ...sections.standing(kept), debt: 0 }) })
  const decide: Model['decide'] = ({ cost, ...input }) =>
    model.decide({ ...input, cost: aboveLimit === 'clamp' ? Math.min(cost, input.quota.burst) : cost })
  return { ...counting, local: { ...local, model: { ...model, decide } } }
}

/** What a request without an amount of its own costs. Undefined: each request has one. */
function fixedEstimateOf(unit: Unit | undefined): number | undefined {
  return typeof unit?.estimate === 'number' ? unit.estimate : undefined
}

function compileUnit(input: UnitInput): Unit {
  const { estimate, estimateUnreadable, actual, ttl, onUnsettled, aboveLimit } = input
  return {
    ...(estimate !== undefined && { estimate: estimate === 'llm' ? {} : estimate }),
    ...(estimateUnreadable !== undefined && { estimateUnreadable }),
    ...(actual !== undefined && { actual: typeof actual === 'string' ? actual : sourceOf(actual) }),
    includesUsage: typeof actual === 'object' && actual.includeUsage === true,
    ...(typeof actual === 'object' &&
      actual.errors !== 'problem' &&
      actual.usage && { errors: actual.usage }),
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
