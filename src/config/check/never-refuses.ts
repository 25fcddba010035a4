/** Rules of the gateway that can never refuse a request, although nothing is wrong with them: what `check` warns of. */
import type { AlgorithmName } from '../../algorithms/index.ts'
import { formatFullAllowance } from '../allowance.ts'
import { ANONYMOUS } from '../compile-route.ts'
import type { GatewayRule } from '../compile-rule.ts'
import type { Mistake } from '../config-error.ts'
import type { By } from '../identity-parts.ts'
import type { RuleInput } from './rule-schema.ts'

/** A rule as it is written, and as it is for callers of no plan in particular. */
export interface Written {
  input: RuleInput
  rule: GatewayRule
}

/** How a request can come to the gateway: what is accepted somewhere, and routes on which nothing is counted. */
export interface Reach {
  accepted: ReadonlySet<string>
  /** Names of `credentials.jwt`. */
  issuers: ReadonlySet<string>
  uncounted: ReadonlySet<string>
}

/** No caller, and not all of them together, send so many requests a second through one rule. */
const MOST_PER_SECOND = 1e6

/** @returns for each rule that never refuses: the setting that is the reason, and why */
export function neverRefusing(rules: readonly Written[], reach: Reach): Mistake[] {
  return rules.flatMap((written, i): Mistake[] => {
    const reason = ownReason(written, reach) ?? reasonOfAnother(rules, i)
    return reason ? [{ path: `rules[${i}]${reason[0]}`, message: reason[1] }] : []
  })
}

type Reason = [key: string, message: string]

function ownReason({ input, rule }: Written, { accepted, issuers, uncounted }: Reach): Reason | undefined {
  if (rule.mode === 'off')
    return ['.mode', "'off': the rule counts and refuses nothing until it is switched on."]
  if (input.enforce === 0)
    return ['.enforce', '0: the rule is a shadow rule for all callers and never refuses.']
  if (rule.cost === 0) return ['.cost', '0: the rule counts nothing, so it never refuses.']
  if (rule.counting.state !== 'held' && perSecond(rule) > MOST_PER_SECOND) {
    return ['.limit', `${formatFullAllowance(rule)} is more than any caller sends: the rule never refuses.`]
  }
  const { routes, authenticated } = input.match ?? {}
  if (routes?.every(route => uncounted.has(route))) {
    return ['.match.routes', 'has only routes with limits: false: the rule never counts a request.']
  }
  if (authenticated === false && !accepted.has(ANONYMOUS)) {
    return [
      '.match.authenticated',
      "false: the rule never counts a request, since no route accepts 'anonymous' and callers without a credential get a 401.",
    ]
  }
  const isOfKeys = [...accepted].some(method => method !== ANONYMOUS && !issuers.has(method))
  if (rule.on === 'auth-failure' && !isOfKeys) {
    return ['.on', "'auth-failure' counts keys that the store does not know, and no route accepts keys."]
  }
  return undefined
}

/** Another rule refuses every request that this one would refuse. Of two equal rules, the first one counts. */
function reasonOfAnother(rules: readonly Written[], i: number): Reason | undefined {
  const here = rules[i]!
  const first = rules.find(
    (other, j) => j !== i && isReachedFirst(here, other) && !(i < j && isReachedFirst(other, here)),
  )
  if (!first) return undefined
  const { name } = first.rule
  return [
    '',
    `never refuses: '${name}' (${formatFullAllowance(first.rule)}) counts the same requests and is always reached first. Lower the limit, or remove one of the two.`,
  ]
}

/** Whether what `other` admits never reaches the limit of `here`. Where that is not sure, it does. */
function isReachedFirst(here: Written, other: Written): boolean {
  const most = mostAdmitted(other)
  const room = roomOf(here)
  return most !== undefined && room !== undefined && countsAllOf(other, here) && room(most)
}

/** Requests that are admitted in any stretch of t µs: at most `atOnce + rate × t`. */
interface Bound {
  atOnce: number
  rate: number
}

/** Of rules that enforce the same numbers for everybody; undefined where nothing is sure. */
function mostAdmitted({ input, rule }: Written): Bound | undefined {
  if (!isEnforcedForAll({ input, rule }) || rule.calendar) return undefined
  const atOnce = AT_ONCE[rule.algorithm]?.(rule)
  return atOnce === undefined ? undefined : { atOnce: atOnce / rule.cost, rate: rateOf(rule) }
}

/**
 * Units beside `rate × t`: in a stretch of no length, and where windows begin anew. docs/algorithms.md has the arithmetic. Of an
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

/** Whether all that a bound lets through is admitted. Undefined where a rule does more than refuse, or nothing is sure. */
function roomOf({ input, rule }: Written): ((most: Bound) => boolean) | undefined {
  if (rule.mode !== 'enforce' || input.plans !== undefined) return undefined
  const capacity = rule.limit / rule.cost
  // A month can be longer than its nominal period, and a day by an hour.
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
    // leaky-bucket holds requests back, concurrency counts how long they take; of others nothing is known.
    default:
      return undefined
  }
}

const rateOf = ({ limit, period, cost }: GatewayRule) => limit / period / cost
const perSecond = (rule: GatewayRule) => rateOf(rule) * 1e6

function isEnforcedForAll({ input, rule }: Written): boolean {
  return rule.mode === 'enforce' && (input.enforce ?? 1) === 1 && input.plans === undefined && rule.cost > 0
}

/** Whether `other` counts each request that `here` counts, for the same caller or for more of them together. */
function countsAllOf({ input, rule }: Written, here: Written): boolean {
  const { by } = here.rule
  const isOfAll = rule.by.length === 1 && rule.by[0] === ('global' satisfies By)
  if (rule.on !== here.rule.on || !(isOfAll || rule.by.every(part => by.includes(part)))) return false
  return Object.entries(input.match ?? {}).every(
    ([key, value]) =>
      value === undefined ||
      JSON.stringify(value) === JSON.stringify(here.input.match?.[key as keyof typeof here.input.match]),
  )
}
