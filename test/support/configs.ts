/**
 * Random configs for tests of properties that hold for every rule set. They have rules of all algorithms, for plans, consumers, addresses and
 * guesses. Some have few rules; others have more rules than a script can have local variables for.
 */
import * as fc from 'fast-check'
import { descriptionOf } from '../../src/algorithms/index.ts'
import { LOG_PLAIN } from '../../src/algorithms/sliding-log.ts'
import type { NumbersInput, PlanNumbersInput } from '../../src/config/check/rule-schema.ts'
import type { ConfigInput, LimitRuleInput, RuleInput } from '../../src/config/check/schema.ts'
import type { Config, GatewayRule, LimitRule, Rule } from '../../src/config/compile.ts'
import { ConfigError } from '../../src/config/config-error.ts'
import type { By } from '../../src/config/identity-parts.ts'
import { configOf } from './engines.ts'
import { anyNumbers } from './numbers.ts'
import { listOf } from './traffic.ts'

/** The first plan is the default. Two of the names also occur in scripts. */
export const PLANS = ['free', 'now', 'plan-2'] as const
export type Plan = (typeof PLANS)[number]

export const LIMIT = 'limit'

/** The parts of a random config. */
export interface ConfigPlan {
  rules: readonly RuleInput[]
  /** The same numbers as rules of a limit by name. */
  limit: readonly LimitRuleInput[]
  plans: readonly Plan[]
}

const upTo12 = fc.integer({ min: 1, max: 12 })

/** The numbers of a plan. Numbers that the algorithm does not have are dropped later. */
const planNumbers = fc.oneof(
  { weight: 1, arbitrary: fc.constant(false as const) },
  { weight: 3, arbitrary: fc.record({ limit: upTo12 }) },
  { weight: 1, arbitrary: fc.record({ limit: fc.constantFrom(40, 120) }) },
  { weight: 2, arbitrary: fc.record({ limit: upTo12, atOnce: upTo12 }) },
)
type AnyPlanNumbers = typeof planNumbers extends fc.Arbitrary<infer T> ? T : never

/** A log that can have chunks. */
const longLog: fc.Arbitrary<NumbersInput> = fc.record({
  algorithm: fc.constant('sliding-log' as const),
  limit: fc.constantFrom(101, 110),
  period: fc.constantFrom('1s' as const, '1h' as const),
})

const BYS: By[][] = [
  ...[['consumer'], ['consumer'], ['consumer'], ['address'], ['address'], ['global'], ['route']],
  ...[['credential'], ['consumer', 'route'], ['route', 'consumer'], ['address', 'consumer']],
  ...[['consumer', 'credential'], ['route', 'address'], ['address', 'route'], ['method']],
] as By[][]
const BYS_OF_GUESSES: By[][] = [['address'], ['address'], ['route', 'address'], ['global']]
const BYS_OF_LIMITS = [undefined, ['account'], ['account', 'user'], ['user', 'account']]

const rule = fc.record({
  numbers: fc.oneof({ weight: 9, arbitrary: anyNumbers }, { weight: 1, arbitrary: longLog }),
  by: fc.nat(BYS.length - 1),
  on: fc.constantFrom(...[...new Array<'request'>(7).fill('request'), 'auth-failure' as const]),
  mode: fc.constantFrom(undefined, undefined, undefined, undefined, 'shadow' as const, 'off' as const),
  cost: fc.constantFrom(1, 1, 1, 1, 1, 2, 3, 0),
  plans: fc.constantFrom<readonly Plan[] | undefined>(
    ...[undefined, undefined, undefined, ['now' as const], ['free' as const, 'now' as const]],
  ),
  own: fc.array(fc.tuple(fc.constantFrom(...PLANS), planNumbers), { maxLength: 3 }),
  hasOwn: fc.constantFrom(false, false, true),
  hasLease: fc.constantFrom(true, true, false),
  /** The limit is high enough for leases. */
  isRich: fc.constantFrom(true, true, true, true, false),
})
type AnyRule = typeof rule extends fc.Arbitrary<infer T> ? T : never

/** How many rules: a few, some, or more than a script has locals for. */
const rules = fc.oneof(
  { weight: 6, arbitrary: listOf(rule, 5) },
  { weight: 3, arbitrary: listOf(rule, 20, 6) },
  { weight: 1, arbitrary: listOf(rule, 36, 25) },
)

export const configPlans: fc.Arbitrary<ConfigPlan> = fc
  .record({
    rules,
    /** All rules count by the same identity, so that one state has many records. */
    isCrowded: fc.constantFrom(false, false, false, true),
    /** Higher limits. Otherwise many rules together would refuse most requests. */
    isGenerous: fc.constantFrom(true, true, false),
    plans: fc.constantFrom<readonly Plan[]>(PLANS, PLANS, PLANS, ['free']),
    hasLeases: fc.constantFrom(false, true),
  })
  .map(({ rules, isCrowded, isGenerous, plans, hasLeases }) => {
    const scaled = rules.map(each => {
      const hasLease = hasLeases && each.hasLease
      if (hasLeases && each.isRich) return { ...each, hasLease, numbers: times(100, each.numbers) }
      const isLarger = isGenerous && rules.length > 5
      return { ...each, hasLease, numbers: isLarger ? times(8, each.numbers) : each.numbers }
    })
    return {
      plans,
      rules: scaled.map((each, i) => ruleInput(isCrowded ? { ...each, by: 0 } : each, i, plans)),
      limit: scaled.map(({ numbers, by, mode, hasLease }, i): LimitRuleInput => {
        const parts = isCrowded ? ['account'] : BYS_OF_LIMITS[by % BYS_OF_LIMITS.length]
        return {
          ...{ ...numbers, name: `rule-${i}`, ...(parts && { by: parts }), ...(mode && { mode }) },
          ...(hasLease && leaseOf(numbers)),
        }
      }),
    }
  })

/** A lease, unless the algorithm cannot have one. */
const leaseOf = ({ algorithm }: NumbersInput) =>
  descriptionOf({ algorithm }).whyNoLease ? {} : { lease: { for: '250ms' } as const }

/** Multiplies the units. */
function times(factor: number, numbers: NumbersInput): NumbersInput {
  const { limit } = numbers
  if (limit > 100) return numbers
  const burst = 'burst' in numbers && numbers.burst !== undefined ? { burst: factor * numbers.burst } : {}
  const queue = 'queue' in numbers && numbers.queue !== undefined ? { queue: factor * numbers.queue } : {}
  return { ...numbers, limit: factor * limit, ...burst, ...queue }
}

function ruleInput(
  { numbers, by, on, mode, cost, plans, own, hasOwn, hasLease }: AnyRule,
  i: number,
  known: readonly Plan[],
): RuleInput {
  const common = { ...numbers, name: `rule-${i}`, ...(mode && { mode }) }
  if (on === 'auth-failure' && numbers.algorithm !== 'concurrency') {
    return { ...common, on, by: BYS_OF_GUESSES[by % BYS_OF_GUESSES.length]!, cost: Math.max(1, cost) }
  }
  const named = plans?.filter(plan => known.includes(plan)) ?? []
  const isNamed = (plan: Plan) => known.includes(plan) && (named.length === 0 || named.includes(plan))
  const ofPlans = own.flatMap(([plan, each]) => (isNamed(plan) ? [[plan, numbersFor(numbers, each)]] : []))
  return {
    ...common,
    by: BYS[by]!,
    cost,
    ...(hasLease && leaseOf(numbers)),
    ...(named.length > 0 && { match: { plans: named } }),
    ...(hasOwn && ofPlans.length > 0 && { plans: Object.fromEntries(ofPlans) }),
  }
}

/** The numbers of a plan or an override, under the parameter names of the algorithm. */
export function numbersFor(
  { algorithm }: NumbersInput,
  numbers: AnyPlanNumbers,
): Partial<Record<keyof PlanNumbersInput, number>> | false {
  if (numbers === false) return false
  const { limit, atOnce } = { atOnce: undefined, ...numbers }
  if (atOnce === undefined) return { limit }
  if (algorithm === 'gcra' || algorithm === 'token-bucket') return { limit, burst: atOnce }
  return algorithm === 'leaky-bucket' ? { limit, queue: atOnce - 1 } : { limit }
}

/** A config that the check has accepted, and its input. */
export interface Checked {
  input: Pick<ConfigInput, 'rules'> & { plans: string[] }
  config: Config
}

/** Compiles a config without the rules that the check refuses. @returns undefined if no rule is left */
export function checked({ rules, limit, plans }: ConfigPlan): Checked | undefined {
  let names = rules.map(({ name }) => name)
  for (;;) {
    const isLeft = ({ name }: { name: string }) => names.includes(name)
    const input = {
      rules: rules.filter(isLeft),
      plans: [...plans],
      limits: { [LIMIT]: limit.filter(isLeft) },
    }
    if (names.length === 0) return undefined
    try {
      return { input, config: configOf(input) }
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      const refused = new Set(error.mistakes.map(({ path }) => Number(/\[(\d+)\]/.exec(path)?.[1])))
      names = names.filter((_, i) => !refused.has(i))
      if (refused.size === 0 || refused.has(Number.NaN)) throw error
    }
  }
}

export const limitRulesOf = ({ limits }: Config): readonly LimitRule[] => limits.get(LIMIT)!

/** The traits of a rule that affect the text of its script. */
export function traitsOf(rule: Rule | GatewayRule): string[] {
  const { algorithm, calendar, on, match } = rule
  return [
    algorithm,
    ...(calendar ? ['calendar'] : []),
    ...(rule.quota.startsWithRequest ? ['from the first request'] : []),
    ...(on === 'auth-failure' ? ['guesses'] : []),
    ...(match.plans ? ['of plans'] : []),
    ...('isForOthers' in rule && rule.isForOthers ? ['for other plans'] : []),
    ...(rule.counting.state === 'log' && rule.quota.burst > LOG_PLAIN ? ['long log'] : []),
  ]
}
