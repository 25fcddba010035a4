/**
 * A policy: the rules that are decided together, as far as they are the same for every request. It is compiled to one Lua script
 * for decisions and one for refunds, so a config leaves in the script cache of Redis at most two for the gateway and two for
 * each limit by name, whatever requests come. Beside them are there the probe's, the one that resets, and a small one of src/ops;
 * a deployment with other rules adds its own.
 */
import type { GatewayRule, LimitRule, Rule } from '../config/compile-rule.ts'
import type { Policy, PolicyShape, ScriptsOf, Slot } from './policy-shape.ts'

/** A rule, and what it counts for: rules with the same text share their state. */
export interface PolicyRule {
  rule: Rule
  identity: string
}

/**
 * @param rules in their order, with one for each plan that has numbers of its own
 * @param scriptsOf compiles the scripts (scripts.ts), or finds those that were built (built-scripts.ts)
 */
export function createPolicy(
  rules: readonly PolicyRule[],
  { plans, hasSubject }: Pick<PolicyShape, 'plans' | 'hasSubject'>,
  scriptsOf: ScriptsOf,
): Policy {
  const identities = [...new Set(rules.map(({ identity }) => identity))]
  const places = new Map<string, number>()
  const slots: Slot[] = []
  for (const { rule, identity } of rules) {
    // The rows of several plans have one name.
    const name = `${rule.name} ${identity}`
    const at = places.get(name) ?? slots.length
    places.set(name, at)
    const slot = slotOf(rule, identities.indexOf(identity))
    const before = slots[at]
    slots[at] = before ? merged(before, slot) : slot
  }
  const shape = { slots, identities: identities.length, plans, hasSubject }
  const leases = rules.some(({ rule }) => rule.lease)
  return withScripts({ ...shape, ...(leases && { leases }) }, scriptsOf)
}

/**
 * The policy of the gateway.
 * @param config `rules` with those that are off: they can be switched on
 */
export function createGatewayPolicy(
  { rules, plans }: { rules: readonly GatewayRule[]; plans: readonly string[] },
  scriptsOf: ScriptsOf,
): Policy {
  const counted = rules.map(rule => ({ rule, identity: rule.identity }))
  return createPolicy(counted, { plans, hasSubject: true }, scriptsOf)
}

/** The policy of one limit by name. */
export function createLimitPolicy(rules: readonly LimitRule[], scriptsOf: ScriptsOf): Policy {
  const counted = rules.map(rule => ({ rule, identity: rule.by.join(' ') }))
  return createPolicy(counted, { plans: [], hasSubject: false }, scriptsOf)
}

function withScripts(shape: PolicyShape, scriptsOf: ScriptsOf): Policy {
  const places = new Map(shape.slots.flatMap(({ variants }, i) => variants.map(({ tag }) => [tag, i])))
  const scripts = scriptsOf(shape)
  return {
    ...shape,
    slotOf(rule) {
      const place = places.get(rule.tag)
      if (place === undefined) throw new Error(`The rule ${rule.name} is not in this policy.`)
      return place
    },
    get decide() {
      return scripts.decide
    },
    get refund() {
      return scripts.refund
    },
  }
}

function slotOf(rule: Rule, identity: number): Slot {
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
    ...(state === 'held' && { argument: 'holding', own: 'whole' }),
    ...(state === 'log' && { own: isLong(rule) ? 'parts' : 'whole' }),
    isApart: state === 'held',
    variants: [{ ...(plans && { plans }), tag: rule.tag, quota: rule.quota }],
  }
}

function merged(slot: Slot, { variants, own }: Slot): Slot {
  return { ...slot, ...(own === 'parts' && { own }), variants: [...slot.variants, ...variants] }
}

const isLong = ({ quota }: Rule) => quota.burst > MAX_SHORT_LOG
const MAX_SHORT_LOG = 100

/** Whether separate commands read a part of the log. */
export function readsLogInParts(rule: Rule): boolean {
  return rule.counting.state === 'log' && isLong(rule)
}
