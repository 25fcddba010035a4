/** Overrides of any config: with every algorithm, and with the checks of the config. */
import * as v from 'valibot'
import { ALL_ALGORITHMS } from '../algorithms/all.ts'
import type { Flaw } from '../algorithms/descriptor.ts'
import { didYouMean } from '../config/check/did-you-mean.ts'
import { mistakeOf } from '../config/check/mistake.ts'
import { mistakesOfSettlement } from '../config/check/mistakes-of-settlement.ts'
import { limitRule, rule as ruleSchema } from '../config/check/rule-schema.ts'
import type { ConfigInput } from '../config/check/schema.ts'
import type { Config } from '../config/compile.ts'
import { compileGatewayRule } from '../config/compile-rule.ts'
import { unitsOf } from '../config/compile-units.ts'
import { withUniqueTags } from '../config/tags.ts'
import { anyOverridable } from '../limiter/needs.ts'
import { ALL_NUMBERS } from '../set-ups/limits/all-numbers.ts'
import type { Override } from '../store/records.ts'
import type { AdminStore } from './admin-store-shape.ts'
import type { CheckedConfig } from './context.ts'
import type { LimitOverridesDocument } from './documents/switches.ts'
import { listLimitOverrides } from './limit-overrides.ts'
import { limitOf } from './limits.ts'
import { type OverrideChange, type SetOptions, setOverride as set } from './override-changes.ts'
import {
  type CompiledRules,
  createOverrideRules,
  type OverrideInput,
  type OverrideRules,
  type RulesInput,
  type RuleTools,
} from './override-rules.ts'

export { type OverrideChange, removeOverride } from './override-changes.ts'
export { type OverrideInput, type OverrideRules, type OverrideStatus, untilOf } from './override-rules.ts'

/** For the rules of any config. */
const ALL_TOOLS: RuleTools = {
  ruleNumbers: ALL_NUMBERS,
  mistakesOfSettlement,
  nameOf: option => `--${option}`,
  suggest: didYouMean,
  findFlaws: rule => flawsOf(v.safeParse(ruleSchema, rule)),
}

const flawsOf = ({ issues = [] }: { issues?: readonly v.BaseIssue<unknown>[] | undefined }): Flaw[] =>
  issues.map(mistakeOf).map(({ path, message }) => [path, message])

/** A consumer can have many overrides, so the rules are compiled once. */
const known = new WeakMap<RulesInput, OverrideRules>()

export function overrideRulesOf(config: RulesInput): OverrideRules {
  const rules = known.get(config) ?? createOverrideRules(compileRules(config), ALL_TOOLS)
  known.set(config, rules)
  return rules
}

function compileRules({ rules: written = [], plans = ['free'], units }: RulesInput): CompiledRules {
  const compiledUnits = unitsOf(units)
  const rules = written.flatMap(rule =>
    compileGatewayRule(rule, plans, ALL_ALGORITHMS).map(each => compiledUnits.ofGatewayRule(rule, each)),
  )
  return { written, rules: withUniqueTags(rules), plans, algorithms: ALL_ALGORITHMS, compiledUnits }
}

/** The rules of a limit by name. @throws AdminError for an unknown limit */
export function limitOverrideRules(
  { limits, input }: Pick<Config, 'limits'> & { input: Pick<ConfigInput, 'limits' | 'units'> },
  limit: string,
): OverrideRules {
  const rules = limitOf({ limits }, limit)
  const compiled = {
    limit,
    rules,
    written: input.limits![limit],
    plans: [],
    compiledUnits: unitsOf(input.units),
  }
  const tools = { ...ALL_TOOLS, findFlaws: (rule: unknown) => flawsOf(v.safeParse(limitRule, rule)) }
  return createOverrideRules({ ...compiled, algorithms: ALL_ALGORITHMS }, tools)
}

/** The overrides of all limits by name that can have some. Those that have ended are left out. */
export async function listOverridesOfLimits(
  store: AdminStore,
  config: CheckedConfig,
): Promise<LimitOverridesDocument[]> {
  const names = [...config.limits].flatMap(([name, rules]) => (anyOverridable(rules) ? name : []))
  const listed = await Promise.all(
    names.map(async limit => {
      const overrides = limitOverrideRules(config, limit)
      const all = await listLimitOverrides({ store, config, overrides }, limit)
      return { limit, overrides: all.overrides.filter(({ status }) => status !== 'over') }
    }),
  )
  return listed.filter(({ overrides }) => overrides.length > 0)
}

/** A compiled config with what it was compiled from. @param input checked */
export const withInput = <C extends Config>(config: C, input: ConfigInput) => ({
  ...config,
  input,
  overrides: overrideRulesOf(input),
})

/** As in override-changes.ts. @param options.config whose overrides are not stale */
export const setOverride = (
  store: AdminStore,
  consumer: string,
  override: Override,
  { config, ...options }: Omit<SetOptions, 'rules'> & { config?: RulesInput } = {},
): Promise<OverrideChange> =>
  set(store, consumer, override, { ...options, ...(config && { rules: overrideRulesOf(config) }) })

export const compileOverride = (config: RulesInput, input: OverrideInput): Override =>
  overrideRulesOf(config).compile(input)

export const findOverridable = (config: RulesInput, name: string) => overrideRulesOf(config).find(name)

export const atOnceOf = (override: Override, config: RulesInput) => overrideRulesOf(config).atOnceOf(override)

/** @param now ms since the epoch */
export const statusOf = (override: Override, config: RulesInput, now?: number) =>
  overrideRulesOf(config).statusOf(override, now)
