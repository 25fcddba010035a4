/** Finds mistakes in rules that the schema cannot find: in their numbers, in what they match, and between rules. */
import type { Flaw } from '../../algorithms/descriptor.ts'
import { descriptionOf } from '../../algorithms/index.ts'
import { hasPlanUnits, planUnits } from '../../algorithms/plan-units.ts'
import { compileRanges } from '../address-ranges.ts'
import { ANONYMOUS } from '../compile-route.ts'
import { countsInFlight, type GatewayRule, type LimitRule, REQUESTS, withNumbers } from '../compile-rule.ts'
import type { Mistake } from '../config-error.ts'
import { isOfConsumer, needsCredential, needsToken, separatesModes } from '../identity-parts.ts'
import { didYouMean } from './did-you-mean.ts'
import { mistakesOfGatewayNumbers, mistakesOfNumbers } from './mistakes-of-numbers.ts'
import { mistakesOfSettlement } from './mistakes-of-settlement.ts'
import { mistakesOfCounted, mistakesOfEstimates } from './mistakes-of-units.ts'
import type { LimitRuleInput, MatchInput, RuleInput } from './rule-schema.ts'
import type { ConfigInput } from './schema.ts'

/** This is 200 rules with the numbers of 60 plans: a script of 320 kB, nearly all of it numbers. */
const MAX_PLAN_NUMBERS = 12_000

/** Finds configs with more numbers for plans than one script can hold. */
export function mistakesOfPlans({ rules = [], plans = ['free'] }: ConfigInput): Mistake[] {
  const ofPlans = rules.filter(({ plans, match }) => plans !== undefined || match?.plans !== undefined).length
  const numbers = Math.max(1, ofPlans) * plans.length
  if (numbers <= MAX_PLAN_NUMBERS) return []
  const message = `${plans.length} plans × ${Math.max(1, ofPlans)} rules that depend on the plan (plans, match.plans) = ${numbers} combinations, and one script holds ${MAX_PLAN_NUMBERS}. Use fewer plans, or fewer such rules.`
  return [{ path: 'plans', message }]
}

/** Finds mistakes between rules that are decided together. @param path of the list of rules */
export function mistakesOfSet(set: readonly (RuleInput | LimitRuleInput)[], path: string): Mistake[] {
  return set.flatMap((rule, i) => {
    const mistakes: Mistake[] = []
    const report = (key: string, message: string) => mistakes.push({ path: `${path}[${i}].${key}`, message })
    const { numbers, findFlaws } = descriptionOf(rule)
    for (const [key, message] of [...mistakesOfNumbers(rule, numbers), ...(findFlaws?.(rule) ?? [])])
      report(key, message)

    const twin = set.findIndex(other => other.name === rule.name)
    if (twin < i) {
      report('name', `'${rule.name}' is already the name of ${path}[${twin}]. Give each rule its own name.`)
    }

    const whyNoLease = rule.lease && reasonAgainstLease(rule)
    if (whyNoLease) report('lease', whyNoLease)

    const { candidateFor, mode, enforce } = rule
    if (enforce !== undefined && (mode === 'shadow' || candidateFor !== undefined)) {
      report('enforce', `${enforce} has no effect on a shadow rule. Leave it out, or enforce the rule.`)
    }
    if (candidateFor !== undefined) {
      const replaced = set.find(other => other.name === candidateFor)
      const candidates = set.flatMap(other => (isReplaceable(other) && other !== rule ? [other.name] : []))
      if (mode === 'enforce') {
        report(
          'mode',
          `'enforce' cannot be combined with candidateFor: a candidate is a shadow rule. Leave one of them out.`,
        )
      }
      if (!replaced || replaced === rule || !isReplaceable(replaced)) {
        report(
          'candidateFor',
          `'${candidateFor}' is not a rule that can be replaced: it must be another rule in ${path}, not off, and not a candidate itself.${didYouMean(candidateFor, candidates) || ' Name the rule to replace.'}`,
        )
      }
    }
    return mistakes
  })
}

/** Why a rule cannot have a lease. @returns undefined if it can */
function reasonAgainstLease(rule: RuleInput | LimitRuleInput): string | undefined {
  const { whyNoLease } = descriptionOf(rule)
  if (whyNoLease) {
    return `cannot be combined with ${rule.algorithm}: ${whyNoLease}. Leave it out, or use another algorithm.`
  }
  if (!('on' in rule) || rule.on !== 'auth-failure') return undefined
  return "cannot be combined with on: 'auth-failure': each failure is counted when it happens. Leave it out."
}

/** Whether a candidate can be compared with this rule. */
const isReplaceable = ({ candidateFor, mode }: RuleInput | LimitRuleInput) =>
  candidateFor === undefined && mode !== 'off'

/** Finds mistakes in the numbers of a compiled rule. */
const mistakesOfCompiled = (compiled: GatewayRule, path: string): Mistake[] =>
  mistakesAt(path, [
    ...mistakesOfSettlement(compiled),
    ...mistakesOfGatewayNumbers(descriptionOf(compiled).numbers, compiled),
  ])

const mistakesAt = (path: string, flaws: readonly Flaw[]): Mistake[] =>
  flaws.map(([key, message]) => ({ path: `${path}.${key}`, message }))

/** Finds mistakes in one rule of the gateway. @param compiled its variants */
export function mistakesOfGatewayRule(
  rule: RuleInput,
  compiled: readonly GatewayRule[],
  path: string,
  config: ConfigInput,
): Mistake[] {
  const mistakes = [
    ...mistakesOfCompiled(compiled[0]!, path),
    ...mistakesOfCounted(rule, compiled[0]!, path, config),
    ...mistakesOfEstimates(rule, path, config),
  ]
  const report = (key: string, message: string) => mistakes.push({ path: `${path}.${key}`, message })
  if (rule.on === 'auth-failure' && countsInFlight(compiled[0]!)) {
    report(
      'on',
      `'auth-failure' cannot be combined with ${rule.algorithm}: a request with a bad credential is never in flight. Use another algorithm.`,
    )
  }
  const plans = config.plans ?? ['free']
  const by = [rule.by].flat()
  const ofPlans = rule.match?.plans !== undefined || rule.plans !== undefined
  const named = new Set(rule.match?.plans ?? plans)
  for (const [plan, numbers] of Object.entries(rule.plans ?? {})) {
    if (!named.has(plan)) {
      const [list, known] = plans.includes(plan) ? ['match.plans', [...named]] : ['plans', plans]
      report(
        `plans.${plan}`,
        `is not in ${list} (${known.join(', ')}).${didYouMean(plan, known) || ' Add it there.'}`,
      )
    }
    if (!numbers) continue
    const own = withNumbers(rule, numbers)
    const variant = compiled.find(({ match }) => match.plans?.length === 1 && match.plans[0] === plan)
    for (const key of planUnits.keys()) {
      if (numbers[key] === undefined || hasPlanUnits(rule, key)) continue
      report(`plans.${plan}.${key}`, `${numbers[key]} has no effect with ${rule.algorithm}. Leave it out.`)
    }
    for (const [key, message] of mistakesOfNumbers(own, descriptionOf(own).numbers))
      report(`plans.${plan}.${key}`, message)
    if (!variant) continue
    for (const mistake of mistakesOfCompiled(variant, `${path}.plans.${plan}`)) {
      // A plan has no cost of its own: its limit is too low for the cost of the rule.
      const isCost = mistake.path.endsWith('.cost')
      const { burst } = variant.quota
      const bound = descriptionOf(rule).numbers.costBound
      const message = `admits ${burst} at once, but a request costs ${rule.cost}. Raise its ${bound} to ${rule.cost}, or lower cost to ${burst}.`
      mistakes.push(isCost ? { path: `${path}.plans.${plan}`, message } : mistake)
    }
  }
  const isOffForAll = [...named].every(plan => rule.plans?.[plan] === false)
  if (isOffForAll && (rule.match?.plans || by.some(needsCredential))) {
    report(
      'plans',
      `is false for every plan, so the rule would apply to no caller. Use mode: 'off', or keep a plan.`,
    )
  }
  const ofTokens = by.find(needsToken)
  if (ofTokens && Object.keys(config.credentials?.jwt ?? {}).length === 0) {
    report('by', `'${ofTokens}' needs tokens, and credentials.jwt has no issuer. Add one.`)
  }
  if (rule.acrossModes && !separatesModes(by)) {
    const why = by.includes('mode')
      ? "contradicts 'mode' in by. Leave one of them out."
      : 'has no effect: without a part that needs a credential, modes are counted together anyway. Leave it out.'
    report('acrossModes', why)
  }
  if (rule.on === 'auth-failure' && (by.includes('mode') || rule.match?.mode !== undefined)) {
    report(
      rule.match?.mode === undefined ? 'by' : 'match.mode',
      "cannot be combined with on: 'auth-failure': a bad credential has no mode. Leave one of them out.",
    )
  }
  if (rule.on === 'auth-failure') {
    if (by.some(needsCredential)) {
      report(
        'by',
        `needs a valid credential, and on: 'auth-failure' counts callers without one. Use a part that every caller has, such as 'address'.`,
      )
    }
    if (ofPlans)
      report(
        'on',
        `'auth-failure' cannot be combined with plans: a bad credential has no plan. Leave one of them out.`,
      )
    if (rule.match?.authenticated !== undefined) {
      report('match.authenticated', "has no effect with on: 'auth-failure'. Leave it out.")
    }
    if (rule.cost === 0) report('cost', '0 counts no failures, so the rule would never refuse. Leave it out.')
  }
  if (rule.match?.authenticated === false) {
    if (by.some(needsCredential)) {
      report(
        'by',
        'needs a credential, and match.authenticated: false is for callers without one. Change one of them.',
      )
    }
    if (ofPlans)
      report(
        'match.authenticated',
        'false cannot be combined with plans: a caller without a credential has no plan. Leave one of them out.',
      )
  }
  if (config.store?.cluster && ofPlans && !isOfConsumer(by)) {
    report(
      rule.plans ? 'plans' : 'match.plans',
      `needs by: 'consumer' on a cluster, because plans are stored in the slot of the consumer. Count by consumer, or leave the plans out.`,
    )
  }
  return [...mistakes, ...mistakesOfMatch(rule.match, path, config)]
}

/** Finds routes and plans in a match that the config does not have. */
export function mistakesOfMatch(match: MatchInput | undefined, path: string, config: ConfigInput): Mistake[] {
  const plans = config.plans ?? ['free']
  const routes = (config.routes ?? []).map(({ name }) => name)
  const missing = (key: 'routes' | 'plans', known: readonly string[]) =>
    (match?.[key] ?? [])
      .filter(name => !known.includes(name))
      .map(name => ({
        path: `${path}.match.${key}`,
        message: `'${name}' is not in ${key} (${known.join(', ') || 'which is empty'}).${didYouMean(name, known) || ' Add it there.'}`,
      }))
  const contradiction =
    match?.mode === 'test' && match.authenticated === false
      ? [
          {
            path: `${path}.match.mode`,
            message:
              "'test' needs a credential, and match.authenticated: false is for callers without one. Change one of them.",
          },
        ]
      : []
  return [...missing('routes', routes), ...missing('plans', plans), ...contradiction]
}

/** Finds routes whose cost is above the burst of a rule that certainly applies, so that no request would ever be admitted. */
export function mistakesOfRouteCosts(
  { routes = [], rules = [] }: ConfigInput,
  compiled: readonly (readonly GatewayRule[])[],
): Mistake[] {
  return routes.flatMap(({ name, cost: factor = 1, limits = true, accept }, i): Mistake[] => {
    const isOnlyAnonymous = accept?.length === 1 && accept[0] === ANONYMOUS
    const at = compiled.findIndex(([rule], j) => {
      const { routes, ...others } = rules[j]!.match ?? {}
      const isForAll = Object.values(others).every(value => value === undefined)
      const counts = !isOnlyAnonymous || !rule!.by.some(needsCredential)
      const isFor = isForAll && counts && (routes === undefined || routes.includes(name))
      const { mode, on, quota, cost, unit } = rule!
      const costs = mode === 'enforce' && on === 'request' && unit === REQUESTS
      return isFor && costs && cost * factor > quota.burst
    })
    if (factor === 1 || !limits || at === -1) return []
    const { cost, quota } = compiled[at]![0]!
    const { burst } = quota
    const message = `${factor} times the cost of rules[${at}] (${cost}) is above its ${descriptionOf(rules[at]!).numbers.costBound} of ${burst}: no request here would ever be admitted. Lower it.`
    return [{ path: `routes[${i}].cost`, message }]
  })
}

/** Finds ranges in `allow` and `block` that cover all addresses, which is always a mistake. */
export function mistakesOfLists({ allow, block }: ConfigInput): Mistake[] {
  const rangesOfAll = (name: string, list: readonly string[] = [], fix: string) =>
    compileRanges(list).flatMap(({ prefix }, i): Mistake[] =>
      prefix > 0
        ? []
        : [{ path: `${name}.addresses[${i}]`, message: `'${list[i]}' covers all addresses. ${fix}` }],
    )
  return [
    ...rangesOfAll(
      'allow',
      allow?.addresses,
      "To turn limiting off, set mode: 'off' or 'shadow' in the rules.",
    ),
    ...rangesOfAll('block', block?.addresses, 'Every request would be refused. Name the ranges.'),
  ]
}

/** Finds mistakes in one rule of a limit by name. */
export function mistakesOfLimitRule(
  rule: LimitRuleInput,
  compiled: LimitRule,
  path: string,
  config: ConfigInput,
): Mistake[] {
  const { by, enforce } = rule
  const mistakes = [
    ...mistakesAt(path, mistakesOfSettlement(compiled)),
    ...mistakesOfCounted(rule, compiled, path, config),
  ]
  if (by !== undefined || enforce === undefined || enforce === 0 || enforce === 1) return mistakes
  const message = `${enforce} is a share of callers, and this rule counts all callers together. Leave it out, or add a by, such as by: ['account'].`
  return [...mistakes, { path: `${path}.enforce`, message }]
}

/** The preset is for rules that say nothing else. */
export function mistakesOfFailOpen({
  failOpen,
  onStoreFailure,
}: Pick<ConfigInput, 'failOpen' | 'onStoreFailure'>): Mistake[] {
  if (!failOpen || onStoreFailure === undefined || onStoreFailure === 'open') return []
  const message = `contradicts onStoreFailure: '${onStoreFailure}' of the config. Leave one of them out. Single rules can have their own onStoreFailure.`
  return [{ path: 'failOpen', message }]
}
