/** Finds valid lease settings that have no effect, because no request is ever served from the lease. `check` warns about them. */
import { ALL_ALGORITHMS } from '../../algorithms/all.ts'
import { canBeLeased, withMax } from '../compile-rule.ts'
import { hasVariableCost } from '../compile-units.ts'
import type { Mistake } from '../config-error.ts'
import { needsCredential, needsToken } from '../identity-parts.ts'
import type { LimitRuleInput, RuleInput } from './rule-schema.ts'
import type { ConfigInput } from './schema.ts'
import { listed } from './values.ts'

/** @returns the path of each setting without effect, or of the rule that is the reason, and a message with the reason */
export function findUnusedLeases({ lease, rules = [], limits = {}, shedding }: ConfigInput): Mistake[] {
  const hasLease = (rule: RuleInput) => rule.mode !== 'off' && canLease(rule) && Boolean(rule.lease ?? lease)
  const leases = rules.filter(hasLease)
  return [
    ...(shedding?.fleetUsage && leases.length > 0 ? [warnAboutFleet(leases)] : []),
    ...(lease ? findUnusedDefault([...rules, ...Object.values(limits).flat().map(withMax)]) : []),
    ...groupWarnings(
      rules.flatMap((rule, i) => {
        if (hasLease(rule) || !isAlwaysCounted(rule)) return []
        const leased = rules.filter(other => hasLease(other) && countsAllOf(rule, other))
        return leased.length > 0 ? [{ path: `rules[${i}]`, rule, leased }] : []
      }),
    ),
  ]
}

const canLease = (rule: RuleInput | LimitRuleInput) =>
  !hasVariableCost(rule) && canBeLeased(rule, ALL_ALGORITHMS.countings[rule.algorithm]!)

/** Finds a `lease` of the config without effect, because every rule has its own setting or cannot have a lease. */
function findUnusedDefault(rules: readonly (RuleInput | LimitRuleInput)[]): Mistake[] {
  if (rules.some(rule => rule.lease === undefined && canLease(rule))) return []
  const message =
    "has no effect: every rule has a lease setting of its own, or cannot have a lease (sliding-log, concurrency, on: 'auth-failure', countIf, unit). Leave it out."
  return [{ path: 'lease', message }]
}

/** Warns about fleetUsage, which counts every request in flight, so that each of them goes to the store. */
function warnAboutFleet(leased: readonly RuleInput[]): Mistake {
  const message = `counts each request when it begins and when it ends, so each one goes to the store and none is served from the leases of ${namesOf(leased)}. Remove the leases, or fleetUsage.`
  return { path: 'shedding.fleetUsage', message }
}

/** A rule without a lease that counts every request of rules with a lease. */
interface UnleasedRule {
  path: string
  rule: RuleInput
  leased: readonly RuleInput[]
}

/** One warning for all rules that make the same leases useless and need the same fix: a lease, or another algorithm. */
function groupWarnings(all: readonly UnleasedRule[]): Mistake[] {
  const groups = Map.groupBy(all, ({ rule, leased }) => `${canLease(rule)} ${namesOf(leased)}`)
  return [...groups.values()].map(group => {
    const [{ path, rule, leased }] = group as [UnleasedRule]
    const isOne = group.length === 1
    const names = namesOf(group.map(each => each.rule))
    const [verb, them] = isOne ? ['has', 'it'] : ['have', 'them']
    const fix = canLease(rule) ? `Give ${them} one` : `Use another algorithm for ${them}`
    const message = `the lease of ${namesOf(leased)} saves nothing, because ${names} ${verb} none and ${isOne ? 'counts' : 'count'} the same requests. ${fix}, or remove the lease from ${namesOf(leased)}.`
    return { path, message }
  })
}

/** Whether every matching request is counted by the rule, so that it always needs the store. Rules with cost 0 do not. */
function isAlwaysCounted({ on = 'request', mode, cost, plans = {} }: RuleInput): boolean {
  return on === 'request' && mode !== 'off' && cost !== 0 && !Object.values(plans).includes(false)
}

/** Whether `rule` counts all requests that `other` counts: it has no `match`, and needs no credential that `other` does not need. */
function countsAllOf({ by, match }: RuleInput, other: RuleInput): boolean {
  const isForAll = Object.values(match ?? {}).every(value => value === undefined)
  const needs = [needsCredential, needsToken].filter(need => [by].flat().some(need))
  return isForAll && needs.every(need => [other.by].flat().some(need))
}

function namesOf(rules: readonly RuleInput[]): string {
  const names = rules.map(({ name }) => `'${name}'`)
  return names.length > 1 ? listed(names, 'and') : names.join()
}
