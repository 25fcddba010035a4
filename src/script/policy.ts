/**
 * A policy: the rules that are decided together, as far as they are the same for every request. It is compiled to one Lua script
 * for decisions and one for refunds, so a config leaves in the script cache of Redis at most two for the gateway and two for
 * each limit by name, whatever requests come.
 */
import { countings } from '../algorithms/index.ts'
import type { AlgorithmLua } from '../algorithms/lua.ts'
import type { GatewayRule, LimitRule, Rule } from '../config/compile-rule.ts'
import { identityOf } from '../config/identity-parts.ts'
import { sha1 } from '../sha1.ts'
import type { Script } from '../store/store.ts'
import type { Policy, PolicyShape, Slot, Variant } from './policy-shape.ts'
import { decideText, refundText } from './policy-text.ts'

/** A rule, and what it counts for: rules with the same text share their state. */
export interface PolicyRule {
  rule: Rule
  identity: string
}

/**
 * @param rules in their order, with one for each plan that has numbers of its own
 * @param plans that the config knows, the default one first
 */
export function createPolicy(
  rules: readonly PolicyRule[],
  { plans, hasSubject }: Pick<PolicyShape, 'plans' | 'hasSubject'>,
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
  return withScripts({ slots, identities: identities.length, plans, hasSubject })
}

/**
 * The policy of the gateway, made once for a config.
 * @param config `rules` with those that are off: they can be switched on
 */
export function gatewayPolicy({
  rules,
  plans,
}: {
  rules: readonly GatewayRule[]
  plans: readonly string[]
}): Policy {
  return remembered(rules, () =>
    createPolicy(
      rules.map(rule => ({ rule, identity: identityOf(rule.by) })),
      { plans, hasSubject: true },
    ),
  )
}

/** The policy of one limit by name, made once for a config. */
export function limitPolicy(rules: readonly LimitRule[]): Policy {
  return remembered(rules, () =>
    createPolicy(
      rules.map(rule => ({ rule, identity: rule.by.join(' ') })),
      { plans: [], hasSubject: false },
    ),
  )
}

/** The policy of rules that no config holds together: they share an identity where they share a key. */
export function policyOf(
  rules: readonly { rule: Rule; key: string }[],
  { plans = [], hasSubject = false }: Partial<Pick<PolicyShape, 'plans' | 'hasSubject'>> = {},
): Policy {
  return createPolicy(
    rules.map(({ rule, key }) => ({ rule, identity: key })),
    { plans, hasSubject },
  )
}

/** Plain data, for as long as the config lives. */
const policies = new WeakMap<readonly Rule[], Policy>()

function remembered(rules: readonly Rule[], make: () => Policy): Policy {
  const policy = policies.get(rules) ?? make()
  policies.set(rules, policy)
  return policy
}

function withScripts(shape: PolicyShape): Policy {
  const places = new Map(shape.slots.flatMap(({ variants }, i) => variants.map(({ tag }) => [tag, i])))
  let decide: Script | undefined
  let refund: Script | undefined
  return {
    ...shape,
    slotOf(rule) {
      const place = places.get(rule.tag)
      if (place === undefined) throw new Error(`The rule ${rule.name} is not in this policy.`)
      return place
    },
    // Made when first needed: many isolates never give anything back.
    get decide() {
      decide ??= scriptOf(decideText(shape))
      return decide
    },
    get refund() {
      refund ??= scriptOf(refundText(shape))
      return refund
    },
  }
}

function slotOf(rule: Rule, identity: number): Slot {
  const { lua, state, isQueue = false } = countings[rule.algorithm]
  return {
    lua,
    identity,
    family: rule.family,
    takesOverrides: rule.takesOverrides,
    isGuess: rule.on === 'auth-failure',
    isQueue,
    hasEnds: rule.calendar !== undefined,
    ...(state === 'log' && { log: isLong(rule) ? 'long' : 'short' }),
    variants: [variantOf(rule, lua)],
  }
}

function variantOf({ tag, quota, match: { plans } }: Rule, { numbers }: AlgorithmLua): Variant {
  const values = numbers.map(name => {
    if (name === 'limit') return quota.burst
    return name === 'ends' || name === 'log_key' ? 0 : quota[name]!
  })
  return { ...(plans && { plans }), tag, values }
}

function merged(slot: Slot, { variants, log }: Slot): Slot {
  return { ...slot, ...(log === 'long' && { log }), variants: [...slot.variants, ...variants] }
}

const isLong = ({ quota }: Rule) => quota.burst > MAX_SHORT_LOG
const MAX_SHORT_LOG = 100

/** Whether separate commands read a part of the log. */
export function readsLogInParts(rule: Rule): boolean {
  return countings[rule.algorithm].state === 'log' && isLong(rule)
}

/** In two builds; the plain one keeps the place of the first line empty: lines count the same in both. */
export function scriptOf(text: string): Script {
  const build = (firstLine: string) => {
    const source = `${firstLine}\n${text}`
    return { source, sha1: sha1(source) }
  }
  const builds: Partial<Script> = {}
  return {
    get keyLocking() {
      builds.keyLocking ??= build('#!lua flags=allow-key-locking')
      return builds.keyLocking
    },
    get plain() {
      builds.plain ??= build('')
      return builds.plain
    },
  }
}
