/**
 * The rules of a config, as overrides are compiled together with them: the script uses the stored numbers directly (src/store/records.ts). What
 * differs between algorithms is passed in, so that a Worker need not carry all of them.
 */
import type { Algorithms, Flaw, Numbers } from '../algorithms/descriptor.ts'
import type { PlanUnits } from '../algorithms/plan-units.ts'
import { unitsAtOnce } from '../algorithms/units-at-once.ts'
import { mistakesOfGatewayNumbers, mistakesOfNumbers } from '../config/check/mistakes-of-numbers.ts'
import type { CallLimitRuleInput, ConfigInput, LimitRuleInput, RuleInput } from '../config/check/schema.ts'
import type { Config } from '../config/compile.ts'
import {
  compileGatewayRule,
  compileLimitRule,
  type GatewayRule,
  type LimitRule,
  type Rule,
  withMax,
  withNumbers,
} from '../config/compile-rule.ts'
import type { CompiledUnits } from '../config/compile-units.ts'
import { findFreeTag } from '../config/tags.ts'
import type { NumbersParts } from '../set-ups/limits/numbers.ts'
import type { Override, OverrideNumbers } from '../store/records.ts'
import { AdminError, type Suggest, unknownName } from './admin-error.ts'

/** An override as a user writes it. Numbers that are absent are those of the rule. */
export interface OverrideInput extends Partial<Record<PlanUnits, number>> {
  /** Name of a rule that counts by consumer, or of an `overridable` one of a limit by name. */
  rule: string
  mode?: 'enforce' | 'shadow' | 'off'
  until?: Date
}

export type RulesInput = Pick<ConfigInput, 'rules' | 'plans' | 'units'>

/** Whether an override has an effect: it must not have ended, and the config must still have its rule. */
export type OverrideStatus = 'applies' | 'over' | 'rule-changed' | 'rule-gone' | 'rule-off'

type WrittenRule = RuleInput | LimitRuleInput

/** The rules of a config, and what they were compiled with: the numbers of an override are compiled in the same way. */
export interface CompiledRules extends Pick<Config, 'plans'> {
  /** The name of their limit. Absent: they are those of the gateway. */
  limit?: string
  rules: readonly Rule[]
  written: readonly (WrittenRule | CallLimitRuleInput)[] | undefined
  algorithms: Algorithms
  /** Absent: all rules count requests. */
  compiledUnits?: CompiledUnits | undefined
}

/** What is known of the algorithms of the rules. */
export interface RuleTools extends NumbersParts {
  /** More than the bounds of the numbers. */
  findFlaws?(rule: WrittenRule): Flaw[]
  /** How messages name a number. Default: as it is. */
  nameOf?(option: string): string
  suggest?: Suggest
}

export interface OverrideRules {
  /** @throws AdminError that lists every number that the rule cannot have */
  compile(input: OverrideInput): Override
  /** @throws AdminError `not-found` or `refused` that lists the rules that can be overridden */
  find(name: string): { rule: WrittenRule; compiled: Rule }
  /** @param now ms since the epoch */
  statusOf(override: Override, now?: number): OverrideStatus
  /** Whether the rules have none of its family any more, or one with another algorithm or period. */
  isStale(override: Override): boolean
  /**
   * What an override lets the consumer spend at once, under the name that the algorithm has for it. If the config no longer has the rule,
   * only the stored numbers are known. For windows and logs, their `burst` is the limit.
   */
  atOnceOf(override: Override): { parameter: string; units: number } | undefined
}

export const hasEnded = ({ until }: Override, now: number) => until !== undefined && until <= now * 1000

/** When an override ends. Undefined: it has no end. @param override.until µs since the epoch */
export const untilOf = ({ until }: { until?: number | undefined }) =>
  until === undefined ? undefined : new Date(until / 1000)

export function createOverrideRules(
  { limit, written: all = [], rules, plans, algorithms, compiledUnits }: CompiledRules,
  tools: RuleTools,
): OverrideRules {
  const { nameOf = String, ruleNumbers } = tools
  const written = all.map(rule => ('max' in rule ? withMax(rule) : rule))
  const canBeOverridden = ({ takesOverrides, isOverridable }: Rule) =>
    limit === undefined ? takesOverrides : isOverridable === true
  const which =
    limit === undefined ? 'that counts by consumer' : `in the limit '${limit}' that is overridable`

  /** Each rule with its first variant: the one for all plans without numbers of their own. */
  const pairs = written.map(rule => ({ rule, compiled: rules.find(({ name }) => name === rule.name)! }))

  function find(name: string): { rule: WrittenRule; compiled: Rule } {
    const found = pairs.find(({ rule }) => rule.name === name)
    if (found && canBeOverridden(found.compiled)) return found
    const names = pairs.filter(({ compiled }) => canBeOverridden(compiled)).map(({ rule }) => rule.name)
    const known = [limit === undefined ? 'Rules by consumer' : 'Overridable rules', names] as const
    throw found
      ? unknownName('refused', `Rule '${name}' cannot be overridden${reasonOf(found.compiled)}`, name, known)
      : unknownName('not-found', `The config has no rule '${name}' ${which}.`, name, known, tools.suggest)
  }

  function reasonOf(rule: Rule): string {
    if (limit === undefined) return ', because it does not count by consumer.'
    return 'atCall' in rule
      ? ": each call gives its numbers (numbers: 'call'). Change them where the calls get them."
      : '. Write overridable: true in the config, and deploy it.'
  }

  /** @returns the rule with its unit, and what is wrong with its numbers in the gateway */
  function compileRule(rule: WrittenRule, numbers: Numbers): [GatewayRule | LimitRule, Flaw[]] {
    if (limit !== undefined) {
      const counted = compileLimitRule(rule as LimitRuleInput, algorithms)
      return [compiledUnits?.ofLimitRule(counted) ?? counted, []]
    }
    const [counted] = compileGatewayRule(rule as RuleInput, plans, algorithms) as [GatewayRule]
    const compiled = compiledUnits?.ofGatewayRule(rule as RuleInput, counted) ?? counted
    return [compiled, mistakesOfGatewayNumbers(numbers, compiled)]
  }

  function numbersOf(rule: WrittenRule): OverrideNumbers {
    const { numbers, third } = ruleNumbers[rule.algorithm]!
    const refuse = (flaws: readonly Flaw[]) => {
      if (flaws.length === 0) return
      const lines = flaws.map(([key, message]) => `\n  ${key}: ${message}`)
      throw new AdminError('usage', `Rule '${rule.name}' cannot have these numbers:${lines.join('')}`)
    }
    if (tools.findFlaws) refuse(tools.findFlaws(rule))
    refuse(mistakesOfNumbers(rule, numbers))
    const [compiled, flaws] = compileRule(rule, numbers)
    refuse([...(compiled.isEstimated ? tools.mistakesOfSettlement(compiled) : []), ...flaws])
    const { rate, period, burst } = compiled.quota
    const burstOrStep = third && compiled.quota[third]
    // The numbers of a rule that depends on time have a tag of their own. It must not be the tag of another rule.
    const owners = new Map(rules.map(({ tag, name }) => [tag, name]))
    return {
      tag: findFreeTag(rule.name, compiled.tag, owners),
      rate,
      period,
      ...(burstOrStep !== undefined && { burstOrStep }),
      limit: compiled.limit,
      burst,
    }
  }

  function statusOf(override: Override, now = Date.now()): OverrideStatus {
    if (hasEnded(override, now)) return 'over'
    const { family, rule: name } = override
    const same = pairs.find(({ compiled }) => compiled.family === family)
    if (same && canBeOverridden(same.compiled)) return same.rule.mode === 'off' ? 'rule-off' : 'applies'
    return pairs.some(({ rule }) => rule.name === name) ? 'rule-changed' : 'rule-gone'
  }

  return {
    find,
    statusOf,
    isStale: override => ['rule-changed', 'rule-gone'].includes(statusOf(override)),

    atOnceOf({ rule: name, numbers }) {
      if (!numbers) return undefined
      const rule = written.find(rule => rule.name === name)
      if (!rule)
        return numbers.burst === numbers.limit ? undefined : { parameter: 'burst', units: numbers.burst }
      return unitsAtOnce(ruleNumbers[rule.algorithm]!.numbers, numbers.burst)
    },

    compile({ rule: name, mode, until, ...units }) {
      const { rule, compiled } = find(name)
      const given = Object.keys(units).filter(option => units[option as PlanUnits] !== undefined)
      const { atOnce } = ruleNumbers[rule.algorithm]!.numbers
      const settable = ['limit', ...(atOnce ? [atOnce.parameter] : [])]
      const useless = given.find(option => !settable.includes(option))
      if (useless !== undefined)
        throw new AdminError(
          'usage',
          `${nameOf(useless)} has no effect on rule '${name}', whose algorithm is ${rule.algorithm}. Use ${settable.map(nameOf).join(' or ')}.`,
        )
      if (given.length === 0 && mode === undefined)
        throw new AdminError(
          'usage',
          `No change is given. Use ${settable.map(nameOf).join(' or ')}, or ${nameOf('mode')}.`,
        )
      const base = {
        family: compiled.family,
        rule: name,
        ...(mode && { mode }),
        ...(until && { until: until.getTime() * 1000 }),
      }
      if (given.length === 0) return base
      if (units.limit === undefined) {
        const others = Object.entries(('plans' in rule && rule.plans) || {}).flatMap(([plan, numbers]) =>
          numbers && numbers.limit !== undefined ? `${plan}: ${numbers.limit}` : [],
        )
        if (others.length > 0)
          throw new AdminError(
            'usage',
            `Rule '${name}' has other limits for plans (${others.join(', ')}): an override needs ${nameOf('limit')} too.`,
          )
      }
      // An override applies with every plan.
      const { plans: _, ...plain } = { plans: undefined, ...withNumbers(rule, units) }
      return { ...base, numbers: numbersOf(plain as WrittenRule) }
    },
  }
}
