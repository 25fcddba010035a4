/**
 * Hands over to the store the units that an isolate has admitted by itself, when the store answers again: those of an identity with its
 * next request, before its decision, and those of other identities in the background. They stay counted in the isolate as well, until
 * they refill. Otherwise, in a flood in which the store answers now and then, each answer would give every identity a new share.
 */
import type { Rule } from '../../config/compile-rule.ts'
import { GatewayError } from '../../errors.ts'
import type { BoundRule } from '../../script/evaluation.ts'
import { hashTagOf } from '../../store/keys.ts'
import { keysOf, type Rider } from '../../trips/rider.ts'
import { bindRule } from '../bind.ts'
import { decodeReplies, prepareDecide } from '../prepared-call.ts'
import type { LocalCounts, Spender } from './local-counts.ts'

/** A part of the units of one identity, under the rules of one caller, that the store has not counted yet. It becomes one call. */
interface HandOver extends Spender {
  key: string
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
    const unspent = [...(counts.spentBy(key)?.values() ?? [])].flatMap(({ rule, spender, handedOver }) => {
      const units = spender ? counts.unitsInUse(key, rule) - handedOver : 0
      // The variants of a rule for one plan only apply with this plan.
      const plan = rule.match.plans?.[0] ?? spender?.plan
      // Units that are already spent cannot be refused, so the rule is a shadow.
      const bound = bindRule(rule, key, units, now(), 'shadow')
      return spender && units > 0 ? [{ ...spender, plan, bound }] : []
    })
    const bySpender = Map.groupBy(unspent, ({ plan, consumerKey }) => [plan, consumerKey].join(' '))
    return [...bySpender.values()].flatMap(all => {
      const { bound: _, ...spender } = all[0]!
      const parts = all.map(({ bound }) => halvesOf(bound.cost).map(cost => ({ ...bound, cost })))
      const length = Math.max(...parts.map(ofRule => ofRule.length))
      return Array.from({ length }, (_, i) => ({
        ...{ key, ...spender },
        rules: parts.flatMap(ofRule => ofRule[i] ?? []),
      }))
    })
  }

  const prepare = ({ ruleSet, plan, consumerKey, rules, key }: HandOver) => {
    // Overrides are for rules that count by consumer. The script looks them up, and treats the caller like that of a token: as verified.
    const hasOverrides = consumerKey !== undefined && hashTagOf(consumerKey) === hashTagOf(key)
    return prepareDecide({
      ...{ ruleSet, rules, plan },
      ...(hasOverrides && {
        subject: { kind: 'token', consumerKey, ...(plan !== undefined && { plan }) } as const,
      }),
      ...(at && { now: at() }),
    })
  }

  /** Changes how many units count as handed over, and how many of them are on their way. */
  function change({ key, rules }: HandOver, handedOver: -1 | 0 | 1, onTheWay: -1 | 1): void {
    for (const { rule, cost } of rules) {
      const spent = counts.spentUnder({ key, rule })
      if (!spent) continue
      spent.handedOver = Math.max(0, spent.handedOver + handedOver * cost)
      spent.onTheWay = Math.max(0, spent.onTheWay + onTheWay * cost)
    }
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
        : [...new Set(calls.flatMap(keysOf))].filter(key => keysToHandOver.has(key))
      for (const key of keys) keysToHandOver.delete(key)
      const handOvers = keys.flatMap(handOversOf)
      for (const handOver of handOvers) change(handOver, 1, 1)
      const prepared = handOvers.map(prepare)
      return {
        calls: prepared.map(({ call }) => call),
        isFirst: true,
        done(replies) {
          for (const [i, result] of decodeReplies(prepared, replies).entries()) {
            const handOver = handOvers[i]!
            const hasFailed = result instanceof GatewayError
            if (hasFailed) isDeciding = false
            const isRetried = hasFailed && result.fate !== 'may-have-run'
            change(handOver, isRetried ? -1 : 0, -1)
            if (isRetried && counts.spentBy(handOver.key)) keysToHandOver.add(handOver.key)
          }
        },
      }
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
    add(bound: BoundRule, spender: Spender): void {
      const spent = counts.spentUnder(bound)
      if (spent) Object.assign(spent, { rule: bound.rule, spender })
      keysToHandOver.add(bound.key)
    },
    /** Notes that the counts of an identity were dropped. */
    drop: (key: string) => void keysToHandOver.delete(key),

    /** Units in use that a reply of the store does not take into account yet. */
    unreportedUnits(key: string, rule: Rule): number {
      const spent = counts.spentBy(key)?.get(rule.tag)
      if (!spent) return 0
      return Math.max(0, counts.unitsInUse(key, rule) - (spent.handedOver - spent.onTheWay))
    },

    /** Reduces the handed-over units to those that have not refilled. What refills here has also refilled in the store. */
    reduce(bound: BoundRule): void {
      const spent = counts.spentUnder(bound)
      if (spent?.handedOver)
        spent.handedOver = Math.min(spent.handedOver, counts.unitsInUse(bound.key, bound.rule))
    },
  }
}

/**
 * Splits units into parts: a half, a half of the rest, and so on. The store spends a part only if all of it is left. So if it has fewer
 * units left than the sum, it spends exactly those that are left: a part that is too large is at most one unit larger than all parts
 * after it together.
 */
export const halvesOf = (units: number): number[] =>
  units === 0 ? [] : [Math.ceil(units / 2), ...halvesOf(Math.floor(units / 2))]
