/**
 * Hands over to the store the units that an isolate has admitted by itself, when the store answers again: those of an identity with its
 * next request, before its decision, and those of other identities in the background. They stay counted in the isolate as well, until
 * they refill. Otherwise, in a flood in which the store answers now and then, each answer would give every identity a new share.
 */
import type { Rule } from '../../config/compile-rule.ts'
import { GatewayError } from '../../errors.ts'
import type { BoundRule, Evaluation } from '../../script/evaluation.ts'
import type { Policy } from '../../script/policy-shape.ts'
import type { StoreCall } from '../../store/store.ts'
import type { Load, Rider } from '../../trips/rider.ts'
import { bindRule } from '../bind.ts'
import { decodeReplies, prepareDecide } from '../prepared-call.ts'
import type { LocalCounts, Spender, SpentRule } from './local-counts.ts'

/** A part of the units of one identity, under the rules of one caller, that the store has not counted yet. It becomes one call. */
interface HandOver extends Spender {
  key: string
  policy: Policy
  rules: readonly BoundRule[]
}

/** Identities in one hand-over request. */
const IDENTITIES_PER_REQUEST = 20

/**
 * @param now ms since the epoch
 * @param at returns the time to count by (µs); absent: the clock of the store
 */
export function createHandOvers(counts: LocalCounts, now: () => number, at?: () => number) {
  /** Keys of identities with units that are to be handed over. */
  const keysToHandOver = new Set<string>()
  /** Whether the store has decided the last request, and has refused no hand-over since. */
  let isDeciding = false

  function handOversOf(key: string): HandOver[] {
    const usage = counts.usageOf(key)
    if (!usage?.policy) return []
    const { policy, states, rules, handedOver } = usage
    const unspent = [...states.keys()].flatMap(tag => {
      const spent = rules.get(tag)
      const units = spent ? counts.unitsInUse(key, spent.rule) - (handedOver.get(tag) ?? 0) : 0
      return spent && units > 0 ? [{ ...spent, bound: toSpend(spent.rule, key, units) }] : []
    })
    // The variants of a rule for one plan only apply with this plan.
    const planOf = ({ plan, rule }: SpentRule) => rule.match.plans?.[0] ?? plan
    const byCaller = Map.groupBy(unspent, spent => [planOf(spent), spent.consumerKey].join(' '))
    return [...byCaller.values()].flatMap(all => {
      const [first] = all
      const caller = { plan: planOf(first!), consumerKey: first!.consumerKey }
      return halvesOf(all.map(({ bound }) => bound)).map(rules => ({ key, policy, rules, ...caller }))
    })
  }

  const toSpend = (rule: Rule, key: string, units: number): BoundRule => ({
    // Units that are already spent cannot be refused, so the rule is a shadow.
    ...bindRule(rule, key, units, now()),
    mode: 'shadow',
  })

  const prepare = ({ policy, plan, consumerKey, rules, key }: HandOver) => {
    // Overrides are for rules that count by consumer. The script looks them up, and treats the caller like that of a token: as verified.
    const hasOverrides = consumerKey !== undefined && slotOf(consumerKey) === slotOf(key)
    const evaluation: Evaluation = {
      ...{ policy, rules, plan },
      ...(hasOverrides && {
        subject: { kind: 'token', consumerKey, ...(plan !== undefined && { plan }) } as const,
      }),
      ...(at && { now: at() }),
    }
    return prepareDecide(evaluation)
  }

  function change(what: 'handedOver' | 'onTheWay', { key, rules }: HandOver, sign: 1 | -1): void {
    const units = counts.usageOf(key)?.[what]
    for (const { rule, cost } of units ? rules : []) {
      units!.set(rule.tag, Math.max(0, (units!.get(rule.tag) ?? 0) + sign * cost))
    }
  }

  /** Removes and returns what is to be handed over of these identities. It counts as handed over from now on. */
  function take(keys: readonly string[]): HandOver[] {
    for (const key of keys) keysToHandOver.delete(key)
    const handOvers = keys.flatMap(handOversOf)
    for (const handOver of handOvers) {
      change('handedOver', handOver, 1)
      change('onTheWay', handOver, 1)
    }
    return handOvers
  }

  /** The calls for what `take` has returned. */
  function loadOf(handOvers: readonly HandOver[]): Load | undefined {
    if (handOvers.length === 0) return undefined
    const prepared = handOvers.map(prepare)
    return {
      calls: prepared.map(({ call }) => call),
      isFirst: true,
      done(replies) {
        for (const [i, result] of decodeReplies(prepared, replies).entries()) {
          change('onTheWay', handOvers[i]!, -1)
          if (!(result instanceof GatewayError)) continue
          isDeciding = false
          retryIfNotCounted(handOvers[i]!, result)
        }
      },
    }
  }

  /** Hands over again later, unless the store may have counted the units. */
  function retryIfNotCounted(handOver: HandOver, { fate }: GatewayError): void {
    if (fate === 'may-have-run') return
    change('handedOver', handOver, -1)
    if (counts.usageOf(handOver.key)) keysToHandOver.add(handOver.key)
  }

  /**
   * Hands over, if the store has answered the last trip; after a lost trip, units could be lost with the next one. If the store has fewer
   * units left, it counts those that are left. Units that may have arrived are never sent again.
   */
  const rider: Rider = {
    load({ calls, isAlone, isAnswering }) {
      if (keysToHandOver.size === 0 || !isAnswering) return undefined
      const keys = isAlone
        ? [...keysToHandOver.keys().take(IDENTITIES_PER_REQUEST)]
        : keysIn(calls).filter(key => keysToHandOver.has(key))
      return loadOf(take(keys))
    },
    aloneAfterMs: () => (keysToHandOver.size > 0 && isDeciding ? 0 : undefined),
  }

  return {
    rider,

    /** Notes whether the store has decided the last request. Trips for hand-overs alone are made only if it has. */
    noteDecision(byStore: boolean) {
      isDeciding = byStore
    },
    /** Notes that an identity has spent units. */
    add: (key: string) => void keysToHandOver.add(key),
    /** Notes that the counts of an identity were dropped. */
    drop: (key: string) => void keysToHandOver.delete(key),

    /** Units in use that a reply of the store does not take into account yet. */
    unreportedUnits(key: string, rule: Rule): number {
      const usage = counts.usageOf(key)
      if (!usage?.states.has(rule.tag)) return 0
      const reported = (usage.handedOver.get(rule.tag) ?? 0) - (usage.onTheWay.get(rule.tag) ?? 0)
      return Math.max(0, counts.unitsInUse(key, rule) - reported)
    },

    /** Reduces the handed-over units to those that have not refilled. What refills here has also refilled in the store. */
    reduce({ key, rule }: BoundRule): void {
      const handedOver = counts.usageOf(key)?.handedOver
      const before = handedOver?.get(rule.tag)
      if (handedOver && before) handedOver.set(rule.tag, Math.min(before, counts.unitsInUse(key, rule)))
    },
  }
}

/**
 * Splits units into parts: a half, a half of the rest, and so on. The store spends a part only if all of it is left. So if it has fewer
 * units left than the sum, it spends exactly those that are left: a part that is too large is at most one unit larger than all parts
 * after it together.
 */
function halvesOf(rules: readonly BoundRule[]): BoundRule[][] {
  const parts: BoundRule[][] = []
  for (let rest = [...rules]; rest.length > 0; ) {
    parts.push(rest.map(bound => ({ ...bound, cost: Math.ceil(bound.cost / 2) })))
    rest = rest.map(bound => ({ ...bound, cost: Math.floor(bound.cost / 2) })).filter(({ cost }) => cost > 0)
  }
  return parts
}

/** The part of a key that determines its slot on a cluster (src/store/keys.ts). */
const slotOf = (key: string) => key.slice(0, key.indexOf('}'))

/** The state keys that the calls count under, each once. */
function keysIn(calls: readonly StoreCall[]): string[] {
  return [...new Set(calls.flatMap(call => ('keys' in call ? call.keys : [])))]
}
