/** Finds valid rules of the gateway that can never refuse a request. `check` warns about them. */
import type { AlgorithmName } from '../../algorithms/index.ts'
import { formatFullAllowance } from '../allowance.ts'
import { ANONYMOUS } from '../compile-route.ts'
import { countsInFlight, type GatewayRule, REQUESTS } from '../compile-rule.ts'
import type { Mistake } from '../config-error.ts'
import { type By, separatesModes } from '../identity-parts.ts'
import type { RuleInput } from './rule-schema.ts'

/** A rule as the user wrote it, and its compiled variant for all plans without numbers of their own. */
export interface CheckedRule {
  input: RuleInput
  rule: GatewayRule
}

/** How requests can reach the gateway. */
export interface Reach {
  /** Credentials that the config or a route accepts. */
  accepted: ReadonlySet<string>
  /** Names of `credentials.jwt`. */
  issuers: ReadonlySet<string>
  /** Names of routes on which no rule counts. */
  uncounted: ReadonlySet<string>
}

/** More requests per second than all callers together send under one rule. */
const MAX_PER_SECOND = 1e6

/** @returns for each rule that never refuses, the path of the setting that is the reason, and a message */
export function findRulesThatNeverRefuse(rules: readonly CheckedRule[], reach: Reach): Mistake[] {
  return rules.flatMap((checked, i): Mistake[] => {
    const reason = ownReason(checked, reach) ?? reasonOfAnother(rules, i)
    return reason ? [{ path: `rules[${i}]${reason[0]}`, message: reason[1] }] : []
  })
}

type Reason = [key: string, message: string]

function ownReason(
  { input, rule }: CheckedRule,
  { accepted, issuers, uncounted }: Reach,
): Reason | undefined {
  if (rule.mode === 'off')
    return ['.mode', "'off': the rule counts nothing and refuses nothing until it is switched on."]
  if (input.enforce === 0)
    return ['.enforce', '0: the rule is a shadow rule for all callers and never refuses.']
  if (rule.cost === 0) return ['.cost', '0: the rule counts nothing, so it never refuses.']
  if (!countsInFlight(rule) && rule.unit === REQUESTS && perSecond(rule) > MAX_PER_SECOND) {
    return ['.limit', `${formatFullAllowance(rule)} is more than any caller sends: the rule never refuses.`]
  }
  const { routes, authenticated } = input.match ?? {}
  if (routes?.every(route => uncounted.has(route))) {
    return ['.match.routes', 'has only routes with limits: false, so the rule never counts a request.']
  }
  if (authenticated === false && !accepted.has(ANONYMOUS)) {
    return [
      '.match.authenticated',
      "false: the rule never counts a request, since no route accepts 'anonymous' and callers without a credential get a 401.",
    ]
  }
  const isOfKeys = [...accepted].some(method => method !== ANONYMOUS && !issuers.has(method))
  if (rule.on === 'auth-failure' && !isOfKeys) {
    return [
      '.on',
      "'auth-failure' counts keys that the store does not know, and no route accepts keys: the rule never counts a request.",
    ]
  }
  return undefined
}

/**
 * Finds another rule that refuses every request that this one would refuse. Of two equal rules, only the second one is reported. Nothing
 * is certain about a rule whose costs differ from request to request.
 */
function reasonOfAnother(all: readonly CheckedRule[], index: number): Reason | undefined {
  const target = all[index]!
  const rules = all.filter(({ rule }) => rule.unit === REQUESTS && !rule.countIf)
  const i = rules.indexOf(target)
  if (i === -1) return undefined
  const first = rules.find(
    (other, j) => j !== i && isReachedFirst(target, other) && !(i < j && isReachedFirst(other, target)),
  )
  if (!first) return undefined
  const { name } = first.rule
  return [
    '',
    `never refuses: '${name}' (${formatFullAllowance(first.rule)}) counts the same requests, and its limit is always reached first. Lower the limit of this rule, or remove one of the two.`,
  ]
}

/** Whether `other` always refuses before the limit of `target` is reached. False if that is not certain. */
function isReachedFirst(target: CheckedRule, other: CheckedRule): boolean {
  const most = admissionBoundOf(other)
  const admitsAll = createAdmissionTest(target)
  return most !== undefined && admitsAll !== undefined && countsAllOf(other, target) && admitsAll(most)
}

/** A bound on admitted requests: in any interval of t µs, at most `atOnce + rate × t`. */
interface Bound {
  atOnce: number
  rate: number
}

/** The bound of a rule that enforces the same numbers for all callers. Undefined: no bound is certain. */
function admissionBoundOf({ input, rule }: CheckedRule): Bound | undefined {
  if (!isEnforcedForAll({ input, rule }) || rule.calendar) return undefined
  const atOnce = AT_ONCE[rule.algorithm]?.(rule)
  return atOnce === undefined ? undefined : { atOnce: atOnce / rule.cost, rate: rateOf(rule) }
}

/**
 * The units on top of `rate × t`: the burst, or the limit (twice the limit for `fixed-window`; docs/algorithms.md). For an
 * algorithm that is not listed, no bound is known.
 */
const AT_ONCE: { readonly [Name in AlgorithmName]?: (rule: GatewayRule) => number } = {
  gcra: ({ quota }) => quota.burst,
  'token-bucket': ({ quota }) => quota.burst,
  'leaky-bucket': ({ quota }) => quota.burst,
  'fixed-window': ({ limit }) => 2 * limit,
  'sliding-window': ({ limit }) => limit,
  'sliding-log': ({ limit }) => limit,
}

/**
 * Creates a test of whether the rule admits everything within a bound. Undefined: the rule is not enforced,
 * has numbers for plans, or nothing is certain.
 */
function createAdmissionTest({ input, rule }: CheckedRule): ((most: Bound) => boolean) | undefined {
  if (rule.mode !== 'enforce' || input.plans !== undefined) return undefined
  const capacity = rule.limit / rule.cost
  // A calendar period can be longer than its nominal length: a month by a day, a day by an hour.
  const period = rule.period * (rule.calendar ? 1.1 : 1)
  const inPeriod = ({ rate }: Bound) => rate * period
  switch (rule.algorithm) {
    case 'gcra':
    case 'token-bucket':
      return most => most.atOnce <= rule.quota.burst / rule.cost && most.rate <= rateOf(rule)
    case 'fixed-window':
    case 'sliding-log':
      return most => most.atOnce + inPeriod(most) <= capacity
    case 'sliding-window':
      return most => 2 * most.atOnce + inPeriod(most) <= capacity
    // leaky-bucket delays requests, and concurrency counts for as long as they take. For other algorithms, no bound is known.
    default:
      return undefined
  }
}

const rateOf = ({ limit, period, cost }: GatewayRule) => limit / period / cost
const perSecond = (rule: GatewayRule) => rateOf(rule) * 1e6

function isEnforcedForAll({ input, rule }: CheckedRule): boolean {
  return rule.mode === 'enforce' && (input.enforce ?? 1) === 1 && input.plans === undefined && rule.cost > 0
}

/** Whether the first rule counts every request that `target` counts, under the same identity or one that includes it. */
function countsAllOf({ input, rule }: CheckedRule, target: CheckedRule): boolean {
  const { by } = target.rule
  const isOfAll = rule.by.length === 1 && rule.by[0] === ('global' satisfies By)
  if (rule.on !== target.rule.on || !(isOfAll || rule.by.every(part => by.includes(part)))) return false
  if (target.rule.acrossModes && !rule.acrossModes && separatesModes(rule.by)) return false
  return Object.entries(input.match ?? {}).every(
    ([key, value]) =>
      value === undefined ||
      JSON.stringify(value) === JSON.stringify(target.input.match?.[key as keyof typeof target.input.match]),
  )
}
