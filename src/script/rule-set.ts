/**
 * Creates rule sets. A rule set has the rules that can be decided together, and two Lua scripts: one for decisions, one for refunds. So a
 * config adds at most two scripts for the gateway and two for each limit by name to the script cache of Redis, whatever requests
 * arrive. In addition there are the scripts of the probe, resets, signals and units in flight (sync.ts), and small ones of src/ops.
 * A deployment with other rules adds its own.
 */
import { countsInFlight, type GatewayRule, type LimitRule, type Rule } from '../config/compile-rule.ts'
import type { RuleEntry, RuleSet, RuleSetShape, ScriptsOf } from './rule-set-shape.ts'

/** A rule and its identity. Rules with the same identity text share their state. */
export interface RuleOfSet {
  rule: Rule
  identity: string
}

/**
 * Creates a rule set.
 * @param rules in their order. A rule with numbers for several plans is there once for each of them
 * @param scriptsOf compiles the scripts (scripts.ts), or finds those that were built (built-scripts.ts)
 */
export function createRuleSet(
  rules: readonly RuleOfSet[],
  { plans, hasSubject }: Pick<RuleSetShape, 'plans' | 'hasSubject'>,
  scriptsOf: ScriptsOf,
): RuleSet {
  const identities = [...new Set(rules.map(({ identity }) => identity))]
  const places = new Map<string, number>()
  const entries: RuleEntry[] = []
  for (const { rule, identity } of rules) {
    // A rule with numbers for several plans comes once for each of them, with the same name. These become variants of one entry.
    const name = `${rule.name} ${identity}`
    const at = places.get(name) ?? entries.length
    places.set(name, at)
    const entry = createEntry(rule, identities.indexOf(identity), hasSubject)
    const earlier = entries[at]
    entries[at] = earlier ? mergeEntries(earlier, entry) : entry
  }
  const shape = { entries, identities: identities.length, plans, hasSubject }
  const leases = rules.some(({ rule }) => rule.lease)
  const overridable = identities.flatMap((_, i) =>
    rules.some(({ rule, identity }) => rule.isOverridable && identity === identities[i]) ? i : [],
  )
  const more = { ...(leases && { leases }), ...(overridable.length > 0 && { overridable }) }
  return withScripts({ ...shape, ...more }, scriptsOf)
}

/**
 * Creates the rule set of the gateway.
 * @param config `rules` includes rules that are off, because a live switch can turn them on
 */
export function createGatewayRuleSet(
  { rules, plans }: { rules: readonly GatewayRule[]; plans: readonly string[] },
  scriptsOf: ScriptsOf,
): RuleSet {
  const counted = rules.map(rule => ({ rule, identity: rule.identity }))
  return createRuleSet(counted, { plans, hasSubject: true }, scriptsOf)
}

/** Creates the rule set of one limit by name. */
export function createLimitRuleSet(rules: readonly LimitRule[], scriptsOf: ScriptsOf): RuleSet {
  const counted = rules.map(rule => ({ rule, identity: rule.by.join(' ') }))
  return createRuleSet(counted, { plans: [], hasSubject: false }, scriptsOf)
}

function withScripts(shape: RuleSetShape, scriptsOf: ScriptsOf): RuleSet {
  const places = new Map(shape.entries.flatMap(({ variants }, i) => variants.map(({ tag }) => [tag, i])))
  const own = {
    ...shape,
    entryOf(rule: Rule) {
      const place = places.get((rule.ofCall?.base ?? rule).tag)
      if (place === undefined) throw new Error(`The rule ${rule.name} is not in this rule set.`)
      return place
    },
  }
  // Inherited, because a script may be compiled when it is first read.
  return Object.setPrototypeOf(own, scriptsOf(shape))
}

function createEntry(rule: Rule, identity: number, hasSubject: boolean): RuleEntry {
  const { state, isQueue = false } = rule.counting
  const { plans } = rule.match
  return {
    algorithm: rule.algorithm,
    identity,
    family: rule.family,
    takesOverrides: rule.takesOverrides,
    isGuess: rule.on === 'auth-failure',
    isQueue,
    ...(rule.calendar && { argument: 'ends' }),
    ...(countsInFlight(rule) && { argument: 'holding' }),
    // Requests to the gateway wait as long as their queue is.
    ...(isQueue && !hasSubject && { argument: 'wait' }),
    ...((state === 'log' || state === 'held') && { sideKey: state }),
    isApart: countsInFlight(rule),
    settlement: rule.settlement,
    variants: [{ ...(plans && { plans }), tag: rule.tag, quota: rule.quota }],
  }
}

function mergeEntries(entry: RuleEntry, { variants }: RuleEntry): RuleEntry {
  return { ...entry, variants: [...entry.variants, ...variants] }
}
