/**
 * Counts in the memory of the isolate while the store does not answer: with the TypeScript models, a share of each limit, and the
 * clock of this machine. An identity has at most the units that the store has last reported. Memory is bounded: identities without
 * recent requests are dropped first, and then start with a whole budget.
 *
 * When the store answers again, the units that were spent meanwhile are handed over to it: those of an identity with its next decision,
 * before the decision itself, and those of other identities in the background. They stay counted here as well, until they refill.
 * Otherwise, in a flood in which the store answers now and then, each answer would give every identity a new share.
 */
import type { State } from '../algorithms/algorithm.ts'
import type { Rule } from '../config/compile-rule.ts'
import { GatewayError } from '../errors.ts'
import { Lru } from '../lru.ts'
import type { DecideVerb } from '../script/decide.ts'
import type { BoundRule, Evaluation, Outcome, Verdict } from '../script/evaluation.ts'
import { decideInMemory, type StateMemory } from '../script/memory.ts'
import type { Policy } from '../script/policy-shape.ts'
import type { Store, StoreCall } from '../store/store.ts'
import { bindRule } from './bind-rule.ts'
import { decodeReplies, prepareDecide, runCalls } from './prepared-call.ts'
import { createStoreReports } from './store-reports.ts'

/** About 500 bytes each. The LRU keeps up to twice as many. */
const MAX_IDENTITIES = 10_000

/** Identities in one hand-over request. */
const IDENTITIES_PER_REQUEST = 20

/** After this time another hand-over may start, because the platform may have ended the one before. */
const HAND_OVER_TIMEOUT_MS = 10_000

/** The model for counting in the isolate: its state has two numbers, also for algorithms that store more in Redis. */
const modelOf = ({ counting }: Rule) => counting.local.model

export interface LocalLimiter {
  /** Decides all rules together, all or nothing, as the store would. `peek` spends nothing. */
  decide(
    policy: Policy,
    rules: readonly BoundRule[],
    verb?: DecideVerb,
  ): { admitted: boolean; verdicts: Verdict[] }
  /** Notes an answer of the store. While the store does not answer, the isolate admits no more than it reported as remaining. */
  noteReport(rules: readonly BoundRule[], outcome: Outcome): void
  /** Forgets what the store has reported for these keys, because they were reset. */
  forgetReports(keys: readonly string[]): void
  /**
   * Wraps the store: if its last request has succeeded, a request to it first hands over the units of its identities. So the decisions
   * in it take into account what this isolate has admitted by itself. After a failed request, units could be lost with the next one.
   * @param at returns the time to count by (µs); absent: the clock of the store
   */
  withHandOvers(store: Store, at?: () => number): Store
  /** Whether units are to be handed over, and no hand-over is running. */
  isHandOverDue(): boolean
  /**
   * Hands over the units that the next identities have spent and that have not refilled, in one or two HTTP requests to a store that
   * has just answered. Units that may have arrived are never sent again. If the error shows that they were not counted (for example,
   * Redis answers but cannot write), they are sent again later.
   * @param at the time to count by (µs); absent: the clock of the store
   */
  handOver(store: Store, at?: number): Promise<void>
}

/** What an identity has spent in this isolate, by tag of the rule. The config bounds the number of tags. */
interface LocalUsage {
  /** The policy of the rules. */
  policy?: Policy
  states: Map<string, State>
  rules: Map<string, Rule>
  /** How many of the units that have not refilled were already handed over. */
  handedOver: Map<string, number>
}

/** Units of one identity, under the rules of one plan, that the store has not counted yet. */
interface HandOver {
  key: string
  policy: Policy
  plan?: string
  rules: readonly BoundRule[]
}

/**
 * Creates the local limiter of an isolate.
 * @param share the part of each limit that the isolate admits, above 0 and up to 1
 * @param now ms since the epoch
 */
export function createLocalLimiter(share: number, now: () => number): LocalLimiter {
  /** Keys of identities with units that are to be handed over. */
  const keysToHandOver = new Set<string>()
  const usages = new Lru<LocalUsage>({
    size: MAX_IDENTITIES,
    onEviction: key => keysToHandOver.delete(key),
  })
  let handOverStartedAt = Number.NEGATIVE_INFINITY
  const reports = createStoreReports()
  /** Units that are to be spent in the store although they are fewer than this isolate has spent. */
  let remainders: HandOver[] = []

  const memory: StateMemory = {
    get: key => usages.get(key)?.states,
    set: (key, states) => usages.set(key, { states, rules: new Map(), handedOver: new Map() }),
  }

  /** For reading only: using an entry would move it to the front of the LRU, which can push out others. */
  const readOnlyMemory: StateMemory = { ...memory, get: key => usages.peek(key)?.states }

  function decideLocally(rules: readonly BoundRule[], verb: DecideVerb, at = now()) {
    const counted = rules.map(bound => ({ bound: withShareOfLimit(bound, share), shown: bound.rule }))
    const isPeek = verb === 'peek'
    return decideInMemory(modelOf, isPeek ? readOnlyMemory : memory, counted, at * 1e3, isPeek)
  }

  function remainingUnits(key: string, rule: Rule, at: number): number {
    return decideLocally([bindRule(rule, key, 0, at)], 'peek', at).verdicts[0]!.remaining
  }

  /** Units that were spent and have not refilled, including those that only the store has counted. */
  function unitsInUse(key: string, rule: Rule, at = now()): number {
    const idle = withShareOfLimit(bindRule(rule, key, 0, at), share)
    return idle.rule.quota.burst - remainingUnits(key, rule, at)
  }

  /**
   * Spends the units that the store does not have left, by its last report. They count as handed over, because the store knows them.
   * The report does not include units that this isolate has spent and not handed over.
   */
  function applyReport(bound: BoundRule): void {
    const report = reports.take(bound)
    if (!report) return
    const { key, rule } = bound
    const at = report.answeredAt
    const notHandedOver = unitsInUse(key, rule, at) - (usages.peek(key)?.handedOver.get(rule.tag) ?? 0)
    const left = Math.max(0, report.remaining - Math.max(0, notHandedOver))
    const units = Math.floor(remainingUnits(key, rule, at) - left)
    if (units <= 0) return
    decideLocally([{ ...bindRule(rule, key, units, at), mode: 'enforce' }], 'decide', at)
    addHandedOver({ key, rules: [{ rule, cost: units }] }, 1)
  }

  /** Reduces the handed-over units to those that have not refilled. What refills here has also refilled in the store. */
  function reduceHandedOver({ key, rule }: BoundRule): void {
    const handedOver = usages.peek(key)?.handedOver
    const before = handedOver?.get(rule.tag)
    if (handedOver && before) handedOver.set(rule.tag, Math.min(before, unitsInUse(key, rule)))
  }

  function handOversOf(key: string): HandOver[] {
    const usage = usages.peek(key)
    if (!usage?.policy) return []
    const { policy, states, rules, handedOver } = usage
    const rulesToSpend = [...states.keys()].flatMap(tag => {
      const rule = rules.get(tag)
      const units = rule ? unitsInUse(key, rule) - (handedOver.get(tag) ?? 0) : 0
      return rule && units > 0 ? [toSpend(rule, key, units)] : []
    })
    const byPlan = Map.groupBy(rulesToSpend, ({ rule }) => rule.match.plans?.[0])
    return [...byPlan].map(([plan, rules]) => ({ key, policy, rules, ...(plan !== undefined && { plan }) }))
  }

  const toSpend = (rule: Rule, key: string, units: number): BoundRule => ({
    // Units that are already spent cannot be refused, so the rule is a shadow.
    ...bindRule(rule, key, units, now()),
    mode: 'shadow',
  })

  function addHandedOver(
    { key, rules }: { key: string; rules: readonly Pick<BoundRule, 'rule' | 'cost'>[] },
    sign: 1 | -1,
  ): void {
    const handedOver = usages.peek(key)?.handedOver
    for (const { rule, cost } of handedOver ? rules : []) {
      handedOver!.set(rule.tag, (handedOver!.get(rule.tag) ?? 0) + sign * cost)
    }
  }

  /** Hands over again later if the error shows that the store has not counted the units. After other errors they may have arrived. */
  function retryIfNotCounted(handOver: HandOver, { code }: GatewayError): void {
    if (!/^ERR_STORE_(REFUSED|QUOTA|BREAKER_OPEN)$/.test(code)) return
    addHandedOver(handOver, -1)
    if (usages.peek(handOver.key)) keysToHandOver.add(handOver.key)
  }

  const evaluationOf = (
    { policy, plan }: HandOver,
    rules: readonly BoundRule[],
    at: number | undefined,
  ): Evaluation => ({
    ...{ policy, rules },
    ...(plan !== undefined && { plan }),
    ...(at !== undefined && { now: at }),
  })

  /** Removes and returns what is to be handed over of these identities. It counts as handed over from now on. */
  function takeHandOvers(keys: readonly string[]): HandOver[] {
    for (const key of keys) keysToHandOver.delete(key)
    const handOvers = keys.flatMap(handOversOf)
    for (const handOver of handOvers) addHandedOver(handOver, 1)
    return handOvers
  }

  const prepareHandOver = (handOver: HandOver, at: number | undefined) =>
    prepareDecide(evaluationOf(handOver, handOver.rules, at))

  function retryAllIfNotCounted(handOvers: readonly HandOver[], error: unknown): void {
    if (error instanceof GatewayError) for (const handOver of handOvers) retryIfNotCounted(handOver, error)
  }

  /** If the store had fewer units left than were spent here, those that are left are spent next. */
  function settle(handOvers: readonly HandOver[], results: readonly (Outcome | GatewayError)[]): void {
    for (const [i, result] of results.entries()) {
      const handOver = handOvers[i]!
      if (result instanceof GatewayError) {
        retryIfNotCounted(handOver, result)
        continue
      }
      const left = remainderToSpend(result, handOver)
      if (left.length > 0) remainders.push({ ...handOver, rules: left })
    }
  }

  async function sendRemainders(store: Store, at: number | undefined): Promise<void> {
    const calls = remainders.map(remainder => prepareHandOver(remainder, at))
    remainders = []
    await runCalls(store, calls)
  }

  function remainderToSpend({ verdicts }: Outcome, { key, rules }: HandOver): BoundRule[] {
    return verdicts.flatMap(({ allowed, remaining }, i) =>
      allowed || remaining <= 0 ? [] : [toSpend(rules[i]!.rule, key, remaining)],
    )
  }

  return {
    decide(policy, rules, verb = 'decide') {
      rules.forEach(reduceHandedOver)
      rules.forEach(applyReport)
      const result = decideLocally(rules, verb)
      const isSpent = result.admitted && verb === 'decide'
      for (const { rule, key, role } of isSpent ? rules : []) {
        // A rule that only reports has spent nothing, and may have no entry that would remove its key from the set.
        if (role === 'report') continue
        const usage = usages.get(key)
        if (usage) usage.policy = policy
        usage?.rules.set(rule.tag, rule)
        keysToHandOver.add(key)
      }
      return result
    },

    noteReport: (rules, outcome) => reports.note(rules, outcome, now()),
    forgetReports: reports.forget,

    withHandOvers(store, at) {
      let isAnswering = true
      return {
        ...(store.isCluster !== undefined && { isCluster: store.isCluster }),
        ping: () => store.ping(),
        async run(calls) {
          const keys = keysToHandOver.size > 0 && isAnswering ? keysIn(calls) : []
          const handOvers = takeHandOvers(keys.filter(key => keysToHandOver.has(key)))
          const prepared = handOvers.map(handOver => prepareHandOver(handOver, at?.()))
          try {
            const replies = await store.run([...prepared.map(({ call }) => call), ...calls])
            isAnswering = true
            settle(handOvers, decodeReplies(prepared, replies))
            return replies.slice(prepared.length)
          } catch (error) {
            isAnswering = false
            retryAllIfNotCounted(handOvers, error)
            throw error
          }
        },
      }
    },

    // A clock that was set back must not block hand-overs.
    isHandOverDue: () =>
      (keysToHandOver.size > 0 || remainders.length > 0) &&
      Math.abs(now() - handOverStartedAt) > HAND_OVER_TIMEOUT_MS,

    async handOver(store, at) {
      handOverStartedAt = now()
      try {
        const handOvers = takeHandOvers([...keysToHandOver.keys().take(IDENTITIES_PER_REQUEST)])
        const calls = handOvers.map(handOver => prepareHandOver(handOver, at))
        settle(
          handOvers,
          await runCalls(store, calls).catch(error => {
            retryAllIfNotCounted(handOvers, error)
            throw error
          }),
        )
        await sendRemainders(store, at)
      } finally {
        handOverStartedAt = Number.NEGATIVE_INFINITY
      }
    },
  }
}

/** The state keys that the calls count under, each once. */
function keysIn(calls: readonly StoreCall[]): string[] {
  return [...new Set(calls.flatMap(call => ('keys' in call ? call.keys : [])))]
}

/**
 * The rule with a share of its limit. A request that costs more than the share, but at most the limit, takes the whole share. So the
 * state has the same meaning for every cost.
 */
function withShareOfLimit(bound: BoundRule, share: number): BoundRule {
  const { rule, cost } = bound
  const { quota } = rule
  const burst = Math.max(1, Math.floor(quota.burst * share))
  const fitting = cost > quota.burst ? cost : Math.min(cost, burst)
  const ofShare = rule.counting.local.shareOf(quota, burst, share)
  const { holding } = bound
  const limit = holding?.limit === undefined ? undefined : Math.max(1, Math.floor(holding.limit * share))
  return {
    ...{ ...bound, cost: fitting, rule: { ...rule, quota: { ...quota, ...ofShare } } },
    ...(holding && limit !== undefined && { holding: { ...holding, limit } }),
  }
}
