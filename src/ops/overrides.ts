/**
 * Overrides: other numbers, or another mode, for one rule and one consumer. They are compiled together with the rule of the config,
 * so that the script can use the stored numbers directly (src/store/records.ts).
 */

import * as v from 'valibot'
import { ALL_ALGORITHMS } from '../algorithms/all.ts'
import { descriptionOf } from '../algorithms/index.ts'
import { luaOf } from '../algorithms/lua-of.ts'
import { hasPlanUnits, type PlanUnits, planUnits, unitsAtOnce } from '../algorithms/plan-units.ts'
import { didYouMean } from '../config/check/did-you-mean.ts'
import { mistakeOf } from '../config/check/mistake.ts'
import { mistakesOfGatewayNumbers, mistakesOfNumbers } from '../config/check/mistakes-of-rules.ts'
import { rule as ruleSchema } from '../config/check/rule-schema.ts'
import type { ConfigInput, RuleInput } from '../config/check/schema.ts'
import { compileGatewayRule, type GatewayRule, withNumbers } from '../config/compile-rule.ts'
import { compileUnits } from '../config/compile-units.ts'
import type { Mistake } from '../config/config-error.ts'
import { findFreeTag, withUniqueTags } from '../config/tags.ts'
import {
  type ConsumerRecord,
  formatConsumer,
  MAX_CONSUMER_LENGTH,
  type Override,
  type OverrideNumbers,
} from '../store/records.ts'
import { readStoreTime } from './admin-connection.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store.ts'
import { type ConsumerChange, changeConsumer, showConsumer } from './consumers.ts'

/** An override as a user writes it. Numbers that are absent are those of the rule. */
export interface OverrideInput extends Partial<Record<PlanUnits, number>> {
  /** Name of a rule that counts by consumer. */
  rule: string
  mode?: 'enforce' | 'shadow' | 'off'
  until?: Date
}

type RulesInput = Pick<ConfigInput, 'rules' | 'plans' | 'units'>

export interface OverrideChange extends ConsumerChange {
  /** The other overrides that were removed: those that had ended, and stale ones if that was wished. */
  removed: readonly Override[]
}

interface SetOptions {
  /** An override is stale if this config has no rule of its family any more. Another deployment can still have it. */
  config?: RulesInput
  /** Removes stale overrides too. */
  removeStale?: boolean | undefined
}

/**
 * Sets an override. It replaces another override of the same rule, and removes overrides that have ended by the clock of the store.
 * @throws AdminError `refused` if the record of the consumer would become too long
 */
export async function setOverride(
  store: AdminStore,
  consumer: string,
  override: Override,
  { config, removeStale = false }: SetOptions = {},
): Promise<OverrideChange> {
  const now = await readStoreTime(store)
  const isStale = (other: Override) => config !== undefined && STALE.has(statusOf(other, config))
  const isRemoved = (other: Override) => hasEnded(other, now) || (removeStale && isStale(other))
  let removed: readonly Override[] = []
  const change = await changeConsumer(store, consumer, record => {
    const others = record.overrides.filter(({ rule }) => rule !== override.rule)
    removed = others.filter(isRemoved)
    const kept = others.filter(other => !isRemoved(other))
    const changed = { ...record, overrides: [...kept, withUniqueTag(override, kept)] }
    checkLength(consumer, record, changed, kept.filter(isStale).length)
    return changed
  })
  return { ...change, removed }
}

/** Refuses a change that lengthens a record beyond the maximum. A record that is longer already can still become shorter. */
function checkLength(consumer: string, before: ConsumerRecord, after: ConsumerRecord, stale: number): void {
  const { length } = formatConsumer(after)
  if (length <= MAX_CONSUMER_LENGTH || length <= formatConsumer(before).length) return
  const problem =
    `Consumer '${consumer}' would have ${after.overrides.length} overrides, and its record ${length} bytes. The maximum is ` +
    `${MAX_CONSUMER_LENGTH} bytes, because Redis reads the record for every request of the consumer. Nothing was changed.`
  const ofStale =
    stale > 0
      ? `\nOr repeat the command with --remove-stale: it removes the ${stale} that have no effect with this config, even if another deployment uses them.`
      : ''
  throw new AdminError('refused', problem, `${howToRemove(consumer)}${ofStale}`)
}

/** How to make the record of a consumer shorter. */
export const howToRemove = (consumer: string) =>
  `Remove overrides: npx sluicegate consumers override ${consumer} <rule> --remove. For other numbers in many rules, use a plan.`

/** The override with a tag that no other override of the consumer has. */
function withUniqueTag(override: Override, others: readonly Override[]): Override {
  const { rule, numbers } = override
  if (!numbers) return override
  const owners = new Map(others.flatMap(other => (other.numbers ? [[other.numbers.tag, other.rule]] : [])))
  return { ...override, numbers: { ...numbers, tag: findFreeTag(rule, numbers.tag, owners) } }
}

/** @throws AdminError `not-found` for an unknown consumer: the name is misspelled, and the intended consumer still has its override */
export async function removeOverride(
  store: AdminStore,
  consumer: string,
  rule: string,
): Promise<ConsumerChange> {
  const result = await changeConsumer(store, consumer, record => ({
    ...record,
    overrides: record.overrides.filter(other => other.rule !== rule),
  }))
  if (!result.isChanged) await showConsumer(store, consumer)
  return result
}

/** @throws AdminError that lists every number that the rule cannot have */
export function compileOverride(config: RulesInput, input: OverrideInput): Override {
  const { rule: name, mode, until, ...units } = input
  const { rule, compiled } = findOverridable(config, name)
  const given = [...planUnits].filter(([option]) => units[option] !== undefined)
  for (const [option, { algorithms }] of given) {
    if (hasPlanUnits(rule, option)) continue
    const problem = `--${option} has no effect on rule '${name}', whose algorithm is ${rule.algorithm}.`
    throw new AdminError('usage', `${problem} It is for ${algorithms.join(' and ')}.`)
  }
  if (given.length === 0 && mode === undefined) {
    const options = [...planUnits.keys()].map(option => `--${option}`)
    throw new AdminError('usage', `No change is given. Use ${options.join(', ')} or --mode.`)
  }
  const base = {
    family: compiled.family,
    rule: name,
    ...(mode && { mode }),
    ...(until && { until: until.getTime() * 1000 }),
  }
  if (given.length === 0) return base

  if (units.limit === undefined) {
    const others = Object.entries(rule.plans ?? {}).filter(
      ([, numbers]) => numbers && numbers.limit !== undefined,
    )
    const list = others.map(([plan, numbers]) => `${plan}: ${numbers ? numbers.limit : ''}`).join(', ')
    if (list)
      throw new AdminError(
        'usage',
        `Rule '${name}' has other limits for plans (${list}): an override needs --limit too.`,
      )
  }
  // An override applies with every plan.
  const { plans: _, ...plain } = withNumbers(rule, units)
  return { ...base, numbers: numbersOf(plain, config) }
}

function numbersOf(rule: RuleInput, config: RulesInput): OverrideNumbers {
  const parsed = v.safeParse(ruleSchema, rule)
  if (!parsed.success) throw numbersError(rule, parsed.issues.map(mistakeOf))
  const mistakes = mistakesOfNumbers(rule).map(([path, message]) => ({ path, message }))
  if (mistakes.length > 0) throw numbersError(rule, mistakes)
  const compiled = compileGatewayRule(
    rule,
    config.plans ?? [],
    ALL_ALGORITHMS,
    compileUnits(config.units),
  )[0]!
  const atGateway = mistakesOfGatewayNumbers(rule, compiled, '')
  if (atGateway.length > 0) throw numbersError(rule, atGateway)
  const { rate, period, burst } = compiled.quota
  const burstOrStep = burstOrStepOf(compiled)
  // The numbers of a rule that depends on time have a tag of their own. It must not be the tag of another rule.
  const owners = new Map(compileRules(config).map(({ tag, name }) => [tag, name]))
  return {
    tag: findFreeTag(rule.name, compiled.tag, owners),
    rate,
    period,
    ...(burstOrStep !== undefined && { burstOrStep }),
    limit: compiled.limit,
    burst,
  }
}

/** The third number of the algorithm's script (`burst` or `step`). Undefined: it does not depend on the numbers of the rule. */
function burstOrStepOf({ algorithm, quota }: GatewayRule): number | undefined {
  const [, , name] = luaOf(algorithm)!.numbers
  return name === 'burst' || name === 'step' ? quota[name] : undefined
}

function numbersError({ name }: RuleInput, mistakes: readonly Mistake[]): AdminError {
  const lines = mistakes.map(({ path, message }) => `  ${path.replace(/^\./, '')}: ${message}`)
  return new AdminError('usage', [`Rule '${name}' cannot have these numbers:`, ...lines].join('\n'))
}

/** Compiles the rules, with the tags that they have in the gateway. */
function compileRules({ rules = [], plans = ['free'], units }: RulesInput): GatewayRule[] {
  const compiled = compileUnits(units)
  return withUniqueTags(rules.flatMap(rule => compileGatewayRule(rule, plans, ALL_ALGORITHMS, compiled)))
}

interface CompiledPair {
  rule: RuleInput
  compiled: GatewayRule
}

/** A consumer can have many overrides, so the rules are compiled once. */
const pairsOfConfigs = new WeakMap<RulesInput, readonly CompiledPair[]>()

/** Each rule with its first variant: the one for all plans without numbers of their own. */
function compiledPairs(config: RulesInput): readonly CompiledPair[] {
  const known = pairsOfConfigs.get(config)
  if (known) return known
  const variants = compileRules(config)
  const pairs = (config.rules ?? []).map(rule => ({
    rule,
    compiled: variants.find(({ name }) => name === rule.name)!,
  }))
  pairsOfConfigs.set(config, pairs)
  return pairs
}

/** @throws AdminError `not-found` or `refused` that lists the rules that can be overridden */
export function findOverridable(
  config: RulesInput,
  name: string,
): { rule: RuleInput; compiled: GatewayRule } {
  const all = compiledPairs(config)
  const found = all.find(({ rule }) => rule.name === name)
  if (found?.compiled.takesOverrides) return found
  const names = all.filter(({ compiled }) => compiled.takesOverrides).map(({ rule }) => rule.name)
  const problem = found
    ? `Rule '${name}' cannot be overridden, because it does not count by consumer.`
    : `The config has no rule '${name}' that counts by consumer.${didYouMean(name, names)}`
  throw new AdminError(
    found ? 'refused' : 'not-found',
    `${problem} Rules by consumer: ${names.join(', ') || 'none'}.`,
  )
}

/** When an override ends. Undefined: it has no end. @param override.until µs since the epoch */
export const untilOf = ({ until }: { until?: number | undefined }) =>
  until === undefined ? undefined : new Date(until / 1000)

/**
 * What an override lets the consumer spend at once, under the name that the algorithm has for it. If the config no longer has the rule, only
 * the stored numbers are known. For windows and logs, their `burst` is the limit.
 */
export function atOnceOf(
  { rule: name, numbers }: Override,
  { rules }: Pick<ConfigInput, 'rules'>,
): { parameter: string; units: number } | undefined {
  if (!numbers) return undefined
  const rule = rules?.find(rule => rule.name === name)
  if (rule) return unitsAtOnce(descriptionOf(rule), numbers.burst)
  return numbers.burst === numbers.limit ? undefined : { parameter: 'burst', units: numbers.burst }
}

const hasEnded = ({ until }: Override, now: number) => until !== undefined && until <= now * 1000

/** Whether an override has an effect: it must not have ended, and the config must still have its rule. */
export type OverrideStatus = 'applies' | 'over' | 'rule-changed' | 'rule-gone' | 'rule-off'

/** The statuses of overrides whose rule this config no longer has, or has with another algorithm or period. */
const STALE: ReadonlySet<OverrideStatus> = new Set(['rule-changed', 'rule-gone'])

/** @param now ms since the epoch */
export function statusOf(override: Override, config: RulesInput, now = Date.now()): OverrideStatus {
  if (hasEnded(override, now)) return 'over'
  const { family, rule: name } = override
  const all = compiledPairs(config)
  const same = all.find(({ compiled }) => compiled.family === family)
  if (same?.compiled.takesOverrides) return same.rule.mode === 'off' ? 'rule-off' : 'applies'
  return all.some(({ rule }) => rule.name === name) ? 'rule-changed' : 'rule-gone'
}
