/**
 * The schema of a rule, and its types. Editors and docs/config.md show the doc comments (`npm run reference`). Each message
 * is the second half of a sentence that mistake.ts begins with the path and the value.
 */
import * as v from 'valibot'
import { ALGORITHM_NAMES, type AlgorithmName } from '../../algorithms/index.ts'
import { type PlanUnits, planUnits } from '../../algorithms/plan-units.ts'
import type { By } from '../identity-parts.ts'
import { adaptive } from './adaptive-schema.ts'
import { by } from './by-schema.ts'
import { didYouMean } from './did-you-mean.ts'
import { ruleLease } from './lease-schema.ts'
import { type MatchInput, match } from './match-schema.ts'
import { type AlgorithmEntries, algorithmEntries } from './parameter-schema.ts'
import { ruleUnit } from './units-schema.ts'
import { flag, listed, name, oneOf, record, settings, share, units } from './values.ts'

export type { By, MatchInput }

/** The algorithm of a rule and its parameters (docs/algorithms.md). */
export type NumbersInput = {
  [Name in AlgorithmName]: v.InferInput<v.StrictObjectSchema<AlgorithmEntries<Name>, undefined>>
}[AlgorithmName]

/** A rule of the gateway. */
export type RuleInput = v.InferInput<typeof rule>

/** A rule of a limit by name (`limits`) that has its numbers in the config. */
export type LimitRuleInput = v.InferInput<typeof fixedLimitRule>

/** One whose numbers each call gives. */
export type CallLimitRuleInput = {
  [Name in AlgorithmName]: v.InferInput<v.StrictObjectSchema<CallRuleEntries<Name>, undefined>>
}[AlgorithmName]

/** The `adaptive` setting of a rule. Undefined: its limit is fixed. */
export const adaptiveOf = (rule: RuleInput) => ('adaptive' in rule ? rule.adaptive : undefined)

/** The numbers of a rule for one plan. A number that is left out is that of the rule. */
export interface PlanNumbersInput extends v.InferInput<typeof numbersOfPlan> {}

/**
 * What happens to a request while the store does not answer: `local` counts it in the isolate, `closed` refuses it with a 503, `open`
 * lets it pass uncounted.
 */
export type OnStoreFailure = v.InferInput<ReturnType<typeof onStoreFailure>>

export function onStoreFailure() {
  return oneOf(['open', 'closed', 'local'], 'is not a fallback')
}

const named = {
  /** The name of the rule in headers, logs and state. Unique. */
  name: name('rule name'),
  /**
   * What the rule counts: requests, or one of `units` (default `'requests'`). A unit is only for `fixed-window`, `sliding-window`, `gcra`
   * and `token-bucket`.
   */
  unit: v.optional(ruleUnit),
}

export const modes = {
  /**
   * `enforce` (default), `shadow` (evaluated and counted, but refuses nothing; its verdict shows what it would have done), or
   * `off` (not evaluated). A rule with `candidateFor` is a shadow.
   */
  mode: v.optional(oneOf(['enforce', 'shadow', 'off'], 'is not a mode')),
  /**
   * The share of callers for which the rule is enforced, 0 to 1 (default `1`). For the others it is a shadow. A hash of the identity
   * and the rule's name selects the callers, so they stay selected when the share grows.
   */
  enforce: v.optional(share(0)),
  /**
   * The name of the rule that this rule would replace. Makes this rule a shadow, and compares its verdicts with those of that rule.
   * Default: none.
   */
  candidateFor: v.optional(name('rule name')),
  /**
   * What happens to a request while the store does not answer: the isolate counts it in its own memory (`'local'`, within
   * `store.localShare`), it is refused with a 503 (`'closed'`), or it passes uncounted (`'open'`). Risk of `'open'`: anyone who can make
   * the store fail has no limit. Until an outage is confirmed, `'open'` acts as `'local'`. Default: that of the config.
   */
  onStoreFailure: v.optional(onStoreFailure()),
}

const leasing = {
  /**
   * An isolate takes units for several requests in one decision, at most one sixteenth of the remaining units, and then serves requests
   * without a trip to the store. Never more than the limit is spent, but a request can be counted in one window and reach the
   * origin in the next (docs/hot-callers.md). A request that is also counted by a rule without a lease always goes to the store. Not for
   * `sliding-log`, `concurrency`, `on: 'auth-failure'`, `countIf` and `unit`. `false`: no lease, even if the config has one. Default: that of the config.
   */
  lease: v.optional(ruleLease),
}

const unitsOfPlan = (name: PlanUnits) => v.optional(units(planUnits.get(name)!.low))

const unitsForPlan = {
  /** How many units per period. Default: that of the rule. */
  limit: unitsOfPlan('limit'),
  /** The burst, for algorithms that have one. Default: that of the rule, or the limit if it has none. */
  burst: unitsOfPlan('burst'),
  /** The queue, for algorithms that have one. Default: that of the rule, or the limit if it has none. */
  queue: unitsOfPlan('queue'),
} satisfies Record<PlanUnits, v.GenericSchema<number | undefined>>

const numbersOfPlan = settings(unitsForPlan, '')

const planNumbers = v.union([v.literal(false), numbersOfPlan], ({ input }) => {
  const other = Object.keys(input ?? {}).find(key => !Object.hasOwn(unitsForPlan, key))
  const what = other && typeof input === 'object' ? `cannot have ${other}:` : 'is neither numbers nor false:'
  return `${what} a plan can have ${PLAN_NUMBERS} of its own. Write it like { limit: 1200 }.`
})

/** `a limit, a burst (gcra, token-bucket) and a queue (leaky-bucket)` */
const PLAN_NUMBERS = listed(
  [...planUnits].map(([name, { algorithms }]) =>
    algorithms.length === ALGORITHM_NAMES.length ? `a ${name}` : `a ${name} (${algorithms.join(', ')})`,
  ),
  'and',
)

const countIf = settings(
  {
    /** The statuses of responses to requests that count. */
    status: v.pipe(
      v.array(units(100, 599), 'is not a list of statuses. Write it like [401, 403].'),
      v.minLength(1, 'is empty, so no request would count. Name a status.'),
    ),
  },
  'is not an object. Write it like { status: [401, 403] }.',
)

const gatewayOnly = {
  /** Which requests are counted together: `'consumer'`, `'address'`, or a combination: `['consumer', 'route']`. */
  by,
  /**
   * Count live and test callers together (default `false`: rules by `consumer`, `credential` or a claim count test keys and test
   * tokens separately, so that they never spend a live budget).
   */
  acrossModes: v.optional(flag),
  /**
   * What is counted: each `request` (default), or each `auth-failure` (a key that the store does not know). When the limit of an
   * `auth-failure` rule is reached, all keys from the same identity are refused, even valid ones, so that guessing cannot succeed.
   */
  on: v.optional(oneOf(['request', 'auth-failure'], 'is not an event to count')),
  /** Units that one request spends (default `1`). 0 reports what is left and spends nothing. */
  cost: v.optional(units(0)),
  /**
   * A request counts only if the response has one of these statuses, as in `{ status: [401, 403] }`. Each request reserves its cost
   * first, so that no more requests than the limit can be under way at once. Default: every request counts.
   */
  countIf: v.optional(countIf),
  /** Which requests the rule is for. A request must meet all conditions. Default: every request. */
  match: v.optional(match),
  /** Other numbers for plans, as in `{ pro: { limit: 1200 } }`; `false`: the rule does not apply to that plan. Default: none. */
  plans: v.optional(
    record(name('plan name'), planNumbers, 'is not an object. Write it like { pro: { limit: 1200 } }.'),
  ),
}

/** The settings that only `concurrency` rules of the gateway have. */
const concurrencyOnly = {
  /**
   * With `by: 'global'`: the limit follows how fast the origin answers and whether it fails, up to `limit`. Requests
   * above it get a 503 (docs/load-shedding.md). Default: the limit is fixed.
   */
  adaptive: v.optional(adaptive),
}

const limitOnly = {
  /** Parts of the identity, as in `['account']`. Each combination has its own count. Default: all callers together. */
  by: v.optional(
    v.pipe(
      v.array(name('part of an identity'), "is not a list. Write it like ['account']."),
      v.minLength(1, 'is empty. Name a part of the identity, or leave it out to count all callers together.'),
      v.check(parts => new Set(parts).size === parts.length, 'names a part twice. Leave one out.'),
    ),
  ),
}

const fixedOnly = {
  ...limitOnly,
  /**
   * Whether operators can give single identities other numbers without a deployment (docs/limits-by-name.md#overrides). Each call then
   * reads one key more, in the same trip (default `false`).
   */
  overridable: v.optional(flag),
}

const RULE =
  "is not a rule. Write { name: 'second', by: 'consumer', algorithm: 'gcra', limit: 10, period: '1s' }."
const CALL_RULE =
  "is not a rule. Write { name: 'quota', algorithm: 'gcra', numbers: 'call', max: { limit: 10000, period: '1m' } }."
const LIMIT_RULE = "is not a rule. Write { name: 'second', algorithm: 'gcra', limit: 10, period: '1s' }."

type RuleEntries<Own, OfConcurrency, Name extends AlgorithmName> = typeof named &
  Own &
  AlgorithmEntries<Name> &
  (Name extends 'concurrency' ? OfConcurrency : unknown) &
  typeof modes &
  typeof leasing

/** The schema of a rule: one variant for each algorithm. */
type RuleVariant<Own, OfConcurrency> = {
  [Name in AlgorithmName]: v.StrictObjectSchema<
    RuleEntries<Own, OfConcurrency, Name>,
    v.ErrorMessage<v.StrictObjectIssue>
  >
}[AlgorithmName]

function ruleOf<const Own extends v.ObjectEntries, const OfConcurrency extends v.ObjectEntries>(
  own: Own,
  ofConcurrency: OfConcurrency,
  fix: string,
) {
  const variants = ALGORITHM_NAMES.map(algorithm => {
    const more = algorithm === 'concurrency' ? ofConcurrency : {}
    return settings({ ...named, ...own, ...algorithmEntries(algorithm), ...more, ...modes, ...leasing }, fix)
  })
  return v.variant('algorithm', variants as unknown as RuleVariant<Own, OfConcurrency>[], issue =>
    issue.expected === 'Object' ? fix : unknownAlgorithm(issue.input),
  )
}

const unknownAlgorithm = (input: unknown) =>
  `is not an algorithm.${didYouMean(input, ALGORITHM_NAMES)} Use ${ALGORITHMS}.`

const ALGORITHMS = listed(
  ALGORITHM_NAMES.map(algorithm => `'${algorithm}'`),
  'or',
)

export const rule = ruleOf(gatewayOnly, concurrencyOnly, RULE)
const fixedLimitRule = ruleOf(fixedOnly, {}, LIMIT_RULE)

/** The parameters that a call gives. All others stay in the rule. */
const OF_CALL = ['limit', 'period', 'burst', 'queue'] as const
type OfCall = (typeof OF_CALL)[number]

const MAX = "is not an object. Write the most that a call may ask for, as in { limit: 10000, period: '1m' }."

const ofCall = {
  /** `'call'`: each call gives the numbers (docs/limits-by-name.md#numbers-at-the-call). Default: they are in the rule. */
  numbers: v.literal('call', "is not where numbers come from. Write 'call', or leave it out."),
}

type CallRuleEntries<Name extends AlgorithmName> = typeof named &
  typeof limitOnly &
  Omit<AlgorithmEntries<Name>, OfCall> &
  typeof ofCall & {
    /** With `numbers: 'call'`: the most that a call may ask for. No call gets more in a period, a higher rate, or more at once. */
    max: v.StrictObjectSchema<Pick<AlgorithmEntries<Name>, OfCall & keyof AlgorithmEntries<Name>>, undefined>
  } & typeof modes &
  typeof leasing

const callLimitRule = v.variant(
  'algorithm',
  ALGORITHM_NAMES.map(algorithm => {
    const entries = Object.entries<v.GenericSchema>(algorithmEntries(algorithm))
    const isOfCall = ([name]: [string, unknown]) => (OF_CALL as readonly string[]).includes(name)
    const max = settings(Object.fromEntries(entries.filter(isOfCall)), MAX)
    const others = Object.fromEntries(entries.filter(entry => !isOfCall(entry)))
    return settings({ ...named, ...limitOnly, ...others, ...ofCall, max, ...modes, ...leasing }, CALL_RULE)
  }) as never[],
  ({ input }) => unknownAlgorithm(input),
) as unknown as v.GenericSchema<CallLimitRuleInput>

export const limitRule = v.lazy(input =>
  typeof input === 'object' && input !== null && ('numbers' in input || 'max' in input)
    ? callLimitRule
    : fixedLimitRule,
) as v.GenericSchema<LimitRuleInput | CallLimitRuleInput>
