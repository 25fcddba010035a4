/**
 * Counts in the memory of the isolate while the store does not: with the TypeScript models, a share of each limit, and the
 * clock of this machine. Memory is bounded: identities without recent requests are forgotten first, and start with a whole
 * budget again. When the store answers again, the units spent meanwhile are handed over to it. They stay counted here as well
 * until they come back by themselves: in a flood the store answers in between, and each answer would bring a new share.
 */
import type { State } from '../algorithms/algorithm.ts'
import type { Rule } from '../config/compile-rule.ts'
import { GatewayError } from '../errors.ts'
import { Lru } from '../lru.ts'
import type { DecideVerb } from '../script/decide.ts'
import type { BoundRule, Evaluation, Outcome, Verdict } from '../script/evaluation.ts'
import { decideInMemory, type StateMemory } from '../script/memory.ts'
import type { Policy } from '../script/policy-shape.ts'
import type { Store } from '../store/store.ts'
import { askAll, toDecide } from './ask.ts'
import { bindRule } from './bind-rule.ts'

/** Some 500 bytes each; up to twice as many are kept. */
const MAX_IDENTITIES = 10_000

/** Identities in one hand-over request. */
const IDENTITIES_PER_REQUEST = 20

/** The platform may end a hand-over; after this long another one starts. */
const HAND_OVER_MS = 10_000

/** The model with a state of two numbers, also for algorithms that keep more in the store. */
const modelOf = ({ counting }: Rule) => counting.local.model

export interface LocalLimiter {
  /** All or nothing, as the store would decide. `peek` spends nothing. */
  decide(
    policy: Policy,
    rules: readonly BoundRule[],
    verb?: DecideVerb,
  ): { admitted: boolean; verdicts: Verdict[] }
  /** Whether something is still to be handed over, and no hand-over is running. */
  hasSpent(): boolean
  /**
   * Hands over to a store that has just answered, in one or two requests, the units that the next few identities have spent
   * and that have not come back since; resolves when it is done. Units that may have arrived are never sent again; others,
   * and those that the store refuses (a Redis that answers and cannot write), are sent again later.
   * @param at µs to count it by; absent: the clock of the store
   */
  handOver(store: Store, at?: number): Promise<void>
}

/** The units that an identity has spent here, by tag of the rule. There are as many tags as the config has rules. */
interface Spender {
  /** That the rules belong to. */
  policy?: Policy
  states: Map<string, State>
  rules: Map<string, Rule>
  /** Of the units that have not come back, those that were handed over. */
  handedOver: Map<string, number>
}

/** Units of one identity, under the rules for one plan, that the store has not counted. */
interface Debt {
  key: string
  policy: Policy
  plan?: string
  owed: readonly BoundRule[]
}

/**
 * @param share of each limit, above 0 and up to 1
 * @param now ms since the epoch
 */
export function createLocalLimiter(share: number, now: () => number): LocalLimiter {
  /** Keys of identities that have spent something that is still to be handed over. */
  const owing = new Set<string>()
  const spenders = new Lru<Spender>({
    size: MAX_IDENTITIES,
    onEviction: key => owing.delete(key),
  })
  let busySince = Number.NEGATIVE_INFINITY

  const memory: StateMemory = {
    get: key => spenders.get(key)?.states,
    set: (key, states) => spenders.set(key, { states, rules: new Map(), handedOver: new Map() }),
  }

  /** For reading without use: an entry that is used moves to the front, which can push out others. */
  const untouched: StateMemory = { ...memory, get: key => spenders.peek(key)?.states }

  function decideHere(rules: readonly BoundRule[], verb: DecideVerb) {
    const counted = rules.map(bound => ({ bound: shared(bound, share), shown: bound.rule }))
    const isPeek = verb === 'peek'
    return decideInMemory(modelOf, isPeek ? untouched : memory, counted, now() * 1e3, isPeek)
  }

  /** Units that have been spent here and have not come back. */
  function unitsOf(key: string, rule: Rule): number {
    const report = bindRule(rule, key, 0, now())
    const { remaining } = decideHere([report], 'peek').verdicts[0]!
    return shared(report, share).rule.quota.burst - remaining
  }

  /** Units that have come back here by themselves have come back in the store too. */
  function forgetReturned({ key, rule }: BoundRule): void {
    const handedOver = spenders.peek(key)?.handedOver
    const before = handedOver?.get(rule.tag)
    if (handedOver && before) handedOver.set(rule.tag, Math.min(before, unitsOf(key, rule)))
  }

  function debtsOf(key: string): Debt[] {
    const spender = spenders.peek(key)
    if (!spender?.policy) return []
    const { policy, states, rules, handedOver } = spender
    const owed = [...states.keys()].flatMap(tag => {
      const rule = rules.get(tag)
      const units = rule ? unitsOf(key, rule) - (handedOver.get(tag) ?? 0) : 0
      return rule && units > 0 ? [toSpend(rule, key, units)] : []
    })
    const byPlan = Map.groupBy(owed, ({ rule }) => rule.match.plans?.[0])
    return [...byPlan].map(([plan, owed]) => ({ key, policy, owed, ...(plan !== undefined && { plan }) }))
  }

  const toSpend = (rule: Rule, key: string, units: number): BoundRule => ({
    // Units that are spent cannot be refused.
    ...bindRule(rule, key, units, now()),
    mode: 'shadow',
  })

  function note({ key, owed }: Debt, sign: 1 | -1): void {
    const handedOver = spenders.peek(key)?.handedOver
    for (const { rule, cost } of handedOver ? owed : []) {
      handedOver!.set(rule.tag, (handedOver!.get(rule.tag) ?? 0) + sign * cost)
    }
  }

  /** A call that failed may have arrived, unless the error says that it has not: only then is it sent again. */
  function failed(debt: Debt, { code }: GatewayError): void {
    if (!/^ERR_STORE_(REFUSED|QUOTA|BREAKER_OPEN)$/.test(code)) return
    note(debt, -1)
    if (spenders.peek(debt.key)) owing.add(debt.key)
  }

  async function send(store: Store, debts: readonly Debt[], at?: number): Promise<void> {
    const spending = ({ policy, plan }: Debt, rules: readonly BoundRule[]): Evaluation => ({
      ...{ policy, rules },
      ...(plan !== undefined && { plan }),
      ...(at !== undefined && { now: at }),
    })
    for (const debt of debts) note(debt, 1)
    const questions = debts.map(debt => toDecide(spending(debt, debt.owed)))
    const answers = await askAll(store, questions).catch(error => {
      for (const debt of debts) if (error instanceof GatewayError) failed(debt, error)
      throw error
    })
    // Where other isolates have left less than was spent here, the rest is spent.
    const rest = answers.flatMap((answer, i): Evaluation[] => {
      const debt = debts[i]!
      if (answer instanceof GatewayError) {
        failed(debt, answer)
        return []
      }
      const left = leftOf(answer, debt)
      return left.length > 0 ? [spending(debt, left)] : []
    })
    await askAll(
      store,
      rest.map(evaluation => toDecide(evaluation)),
    )
  }

  function leftOf({ verdicts }: Outcome, { key, owed }: Debt): BoundRule[] {
    return verdicts.flatMap(({ allowed, remaining }, i) =>
      allowed || remaining <= 0 ? [] : [toSpend(owed[i]!.rule, key, remaining)],
    )
  }

  return {
    decide(policy, rules, verb = 'decide') {
      rules.forEach(forgetReturned)
      const result = decideHere(rules, verb)
      const isSpent = result.admitted && verb === 'decide'
      for (const { rule, key, role } of isSpent ? rules : []) {
        // An identity that has spent nothing owes nothing, and nothing would remove it here.
        if (role === 'report') continue
        const spender = spenders.get(key)
        if (spender) spender.policy = policy
        spender?.rules.set(rule.tag, rule)
        owing.add(key)
      }
      return result
    },

    // A clock that is set back must not keep it busy.
    hasSpent: () => owing.size > 0 && Math.abs(now() - busySince) > HAND_OVER_MS,

    async handOver(store, at) {
      busySince = now()
      try {
        const keys = [...owing.keys().take(IDENTITIES_PER_REQUEST)]
        for (const key of keys) owing.delete(key)
        await send(store, keys.flatMap(debtsOf), at)
      } finally {
        busySince = Number.NEGATIVE_INFINITY
      }
    },
  }
}

/**
 * A rule with a share of its limit. A request that costs more than the share, and no more than the limit, takes all of the
 * share, so that the state means the same for every cost.
 */
function shared(bound: BoundRule, share: number): BoundRule {
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
