/**
 * The counts of an isolate, for the time in which the store does not answer: with the TypeScript models, a share of each limit, and the
 * clock of this machine. Memory is bounded: identities without recent requests are dropped first, and then start with a whole budget.
 */
import type { State } from '../../algorithms/algorithm.ts'
import type { Rule } from '../../config/compile-rule.ts'
import { Lru } from '../../lru.ts'
import type { DecideVerb } from '../../script/decide.ts'
import type { BoundRule } from '../../script/evaluation.ts'
import { decideInMemory, type StateMemory } from '../../script/memory.ts'
import type { RuleSet } from '../../script/rule-set-shape.ts'
import { bindRule } from '../bind.ts'

/** What an identity has spent in this isolate, by tag of the rule. The config bounds the number of tags. */
interface LocalUsage {
  states: Map<string, State>
  spent: Map<string, SpentUnits>
}

/** The units of one rule that have not refilled. */
interface SpentUnits {
  rule: Rule
  /** The caller of the last request that spent units here: its numbers are those of the store. */
  spender?: Spender
  /** How many were already handed over, or were spent in the store. */
  handedOver: number
  /** How many of these are on their way to the store. */
  onTheWay: number
}

/** The caller of a request, as far as the store needs it to count units later with the same numbers. */
export interface Spender {
  ruleSet: RuleSet
  /** Key of the record of the consumer, whose overrides apply. */
  consumerKey?: string | undefined
  /** The plan that a hook of the config names for an anonymous caller. */
  plan?: string | undefined
}

export type LocalCounts = ReturnType<typeof createLocalCounts>

/** About 500 bytes each. The LRU keeps up to twice as many. */
const MAX_IDENTITIES = 10_000

/** The model for counting in the isolate: its state has two numbers, also for algorithms that store more in Redis. */
const modelOf = ({ rule: { counting } }: { rule: Rule }) => counting.local.model

/**
 * Creates the counts of an isolate.
 * @param share the part of each limit that the isolate admits, above 0 and up to 1
 * @param now ms since the epoch
 * @param onEviction called with the key of each identity that is dropped
 */
export function createLocalCounts(share: number, now: () => number, onEviction: (key: string) => void) {
  const usages = new Lru<LocalUsage>({ size: MAX_IDENTITIES, onEviction })

  const memory: StateMemory = {
    get: key => usages.get(key)?.states,
    set: (key, states) => usages.set(key, { states, spent: new Map() }),
  }

  /** For reading only: using an entry would move it to the front of the LRU, which can push out others. */
  const readOnlyMemory: StateMemory = { ...memory, get: key => usages.peek(key)?.states }

  /** Decides all rules together, all or nothing. `peek` spends nothing. @param at ms */
  function decide(rules: readonly BoundRule[], verb: DecideVerb, at = now()) {
    const counted = rules.map(bound => ({ bound: withShareOfLimit(bound, share), shown: bound.rule }))
    const isPeek = verb === 'peek'
    return decideInMemory(modelOf, isPeek ? readOnlyMemory : memory, counted, at * 1e3, isPeek)
  }

  /** What an identity has spent under a rule; undefined if nothing is known about the identity. */
  function spentUnder({ key, rule }: Pick<BoundRule, 'key' | 'rule'>): SpentUnits | undefined {
    const spent = usages.peek(key)?.spent
    if (spent && !spent.has(rule.tag)) spent.set(rule.tag, { rule, handedOver: 0, onTheWay: 0 })
    return spent?.get(rule.tag)
  }

  function remainingOf(key: string, rule: Rule, at: number): number {
    return decide([bindRule(rule, key, 0, at)], 'peek', at).verdicts[0]!.remaining
  }

  return {
    decide,
    spentUnder,
    /** What an identity has spent, by tag of the rule; undefined if nothing is known. */
    spentBy: (key: string): ReadonlyMap<string, SpentUnits> | undefined => usages.peek(key)?.spent,
    /** The cost of a request as it is counted: at most the share of the limit, unless it is more than the whole limit. */
    costOf: (bound: BoundRule): number => withShareOfLimit(bound, share).cost,

    /** Units that were spent and have not refilled, including those that only the store has counted. */
    unitsInUse(key: string, rule: Rule): number {
      const at = now()
      const idle = withShareOfLimit(bindRule(rule, key, 0, at), share)
      return idle.rule.quota.burst - remainingOf(key, rule, at)
    },

    /** Spends units that only the store has counted, until at most `remaining` are left. @param at ms */
    lowerTo(remaining: number, bound: BoundRule, at: number): void {
      const { key, rule } = bound
      const units = Math.floor(remainingOf(key, rule, at) - remaining)
      if (units <= 0) return
      decide([bindRule(rule, key, units, at, 'enforce')], 'decide', at)
      const spent = spentUnder(bound)
      if (spent) spent.handedOver += units
    },
  }
}

/**
 * The rule with a share of its limit. A request that costs more than the share, but at most the limit, takes the whole share. So the
 * state has the same meaning for every cost.
 */
function withShareOfLimit(bound: BoundRule, share: number): BoundRule {
  const { rule, cost, holding } = bound
  const { quota } = rule
  const partOf = (limit: number) => Math.max(1, Math.floor(limit * share))
  const burst = partOf(quota.burst)
  const fitting = cost > quota.burst ? cost : Math.min(cost, burst)
  const ofShare = rule.counting.local.shareOf(quota, burst, share)
  return {
    ...{ ...bound, cost: fitting, rule: { ...rule, quota: { ...quota, ...ofShare } } },
    ...(holding?.limit !== undefined && { holding: { ...holding, limit: partOf(holding.limit) } }),
  }
}
