/**
 * Counts in the memory of the isolate while the store does not: the TypeScript models, a share of each limit, on the
 * clock of this machine. Bounded memory: those who have not come for long are forgotten first, and come back with a
 * whole budget. When the store answers again, it is told what was spent meanwhile. That stays counted here as well until it comes
 * back by itself: in a flood the store answers in between, and each time would bring a share anew.
 */
import QuickLRU from 'quick-lru'
import type { Algorithm, Quota, State } from '../algorithms/algorithm.ts'
import { fixedWindow } from '../algorithms/fixed-window.ts'
import { gcra } from '../algorithms/gcra.ts'
import type { AlgorithmName } from '../algorithms/index.ts'
import { leakyBucket } from '../algorithms/leaky-bucket.ts'
import { slidingWindow } from '../algorithms/sliding-window.ts'
import { tokenBucket } from '../algorithms/token-bucket.ts'
import type { Rule } from '../config/compile-rule.ts'
import { GatewayError } from '../errors.ts'
import type { Store } from '../store/store.ts'
import { type CountedRule, count } from './count.ts'
import { countInMemory, type StateMemory } from './memory.ts'
import { ask, type Evaluation, type Outcome, type Verdict } from './wire.ts'

/** Identities: some 500 bytes each; up to twice as many are kept. */
const MOST_IDENTITIES = 10_000

/** So many identities the store is told of in one request. */
const MOST_AT_ONCE = 20

/** One that hands over may be ended by the platform; after so long another does. */
const HAND_OVER_MS = 10_000

/** A log is counted as a sliding window, whose memory is two numbers. */
const ALGORITHMS: Record<AlgorithmName, Algorithm> = {
  gcra,
  'token-bucket': tokenBucket,
  'leaky-bucket': leakyBucket,
  'fixed-window': fixedWindow,
  'sliding-window': slidingWindow,
  'sliding-log': slidingWindow,
}

export interface LocalLimiter {
  /** All or nothing, as the store would. */
  count(rules: readonly CountedRule[]): { admitted: boolean; verdicts: Verdict[] }
  /** Whether the store is still to be told of something, and no hand-over is running. */
  hasSpent(): boolean
  /**
   * Tells a store that has just answered, in one or two requests, what the next few identities have spent and what has not
   * come back since; resolves when it is done. What it may have heard is never told again; what it has not, and what it
   * refuses (a Redis that answers and cannot write), goes on counting here.
   */
  handOver(store: Store): Promise<void>
}

/** What an identity has spent here. By tag of the rule, of which there are as many as the config has. */
interface Spender {
  states: Map<string, State>
  rules: Map<string, Rule>
  /** Of the units that have not come back, those that the store has been told of. */
  told: Map<string, number>
}

/** Units of one identity that the store is told of. */
interface Debt {
  key: string
  owed: readonly CountedRule[]
}

/** @param share of each limit, above 0 and up to 1 */
export function createLocalLimiter(share: number, now: () => number = Date.now): LocalLimiter {
  /** Who has spent something that the store is still to be told of. */
  const owing = new Set<string>()
  const spenders = new QuickLRU<string, Spender>({
    maxSize: MOST_IDENTITIES,
    onEviction: key => owing.delete(key),
  })
  let busySince = Number.NEGATIVE_INFINITY

  const memory: StateMemory = {
    get: key => spenders.get(key)?.states,
    set: (key, states) => spenders.set(key, { states, rules: new Map(), told: new Map() }),
  }

  /** For looking: what is read does not count as used of late, and so pushes nothing out. */
  const untouched: StateMemory = { ...memory, get: key => spenders.peek(key)?.states }

  function countHere(asked: readonly CountedRule[], where = memory) {
    const all = asked.map(counted => ({ counted: shared(counted, share), told: counted.rule }))
    return countInMemory(ALGORITHMS, where, all, now() * 1e3)
  }

  /** Units that have been spent here and have not come back. */
  function unitsOf(key: string, rule: Rule): number {
    const peek = count(rule, key, 0, now())
    return shared(peek, share).rule.quota.burst - countHere([peek], untouched).verdicts[0]!.remaining
  }

  /** What has come back by itself, the store has got back too. */
  function forgetReturned({ key, rule }: CountedRule): void {
    const told = spenders.peek(key)?.told
    const before = told?.get(rule.tag)
    if (told && before) told.set(rule.tag, Math.min(before, unitsOf(key, rule)))
  }

  function debtOf(key: string): Debt {
    const spender = spenders.peek(key)
    if (!spender) return { key, owed: [] }
    const { states, rules, told } = spender
    const owed = [...states.keys()].flatMap(tag => {
      const rule = rules.get(tag)
      const units = rule ? unitsOf(key, rule) - (told.get(tag) ?? 0) : 0
      return rule && units > 0 ? [toSpend(rule, key, units)] : []
    })
    return { key, owed }
  }

  const toSpend = (rule: Rule, key: string, units: number): CountedRule => ({
    // Its plan was looked at when it was counted, and nothing is refused by what has been spent.
    ...count({ ...rule, match: {} }, key, units, now()),
    mode: 'shadow',
  })

  function note({ key, owed }: Debt, sign: 1 | -1): void {
    const told = spenders.peek(key)?.told
    for (const { rule, cost } of told ? owed : []) {
      told!.set(rule.tag, (told!.get(rule.tag) ?? 0) + sign * cost)
    }
  }

  /** A call that was lost may have arrived: what it said is not told again. */
  function failed(debt: Debt, { code }: GatewayError): void {
    if (!/^ERR_STORE_(REFUSED|QUOTA|BREAKER_OPEN)$/.test(code)) return
    note(debt, -1)
    if (spenders.has(debt.key)) owing.add(debt.key)
  }

  async function tell(store: Store, debts: readonly Debt[]): Promise<void> {
    for (const debt of debts) note(debt, 1)
    const questions = debts.map(({ owed }) => ({ rules: owed, plans: [] }))
    const answers = await ask(store, questions).catch(error => {
      for (const debt of debts) if (error instanceof GatewayError) failed(debt, error)
      throw error
    })
    // Where others have left less than was spent here, what is left.
    const rest = answers.flatMap((answer, i): Evaluation[] => {
      const debt = debts[i]!
      if (answer instanceof GatewayError) {
        failed(debt, answer)
        return []
      }
      const left = leftOf(answer, debt)
      return left.length > 0 ? [{ rules: left, plans: [] }] : []
    })
    await ask(store, rest)
  }

  function leftOf({ verdicts }: Outcome, { key, owed }: Debt): CountedRule[] {
    return verdicts.flatMap(({ allowed, remaining }, i) =>
      allowed || remaining <= 0 ? [] : [toSpend(owed[i]!.rule, key, remaining)],
    )
  }

  return {
    count(asked) {
      asked.forEach(forgetReturned)
      const result = countHere(asked)
      for (const { rule, key } of result.admitted ? asked : []) {
        spenders.get(key)?.rules.set(rule.tag, rule)
        owing.add(key)
      }
      return result
    },

    // A clock that is set back must not keep it busy.
    hasSpent: () => owing.size > 0 && Math.abs(now() - busySince) > HAND_OVER_MS,

    async handOver(store) {
      busySince = now()
      try {
        const keys = [...owing.keys().take(MOST_AT_ONCE)]
        for (const key of keys) owing.delete(key)
        const debts = keys.map(debtOf)
        await tell(
          store,
          debts.filter(({ owed }) => owed.length > 0),
        )
      } finally {
        busySince = Number.NEGATIVE_INFINITY
      }
    },
  }
}

/**
 * A rule with a share of its limit. A request that costs more than the share, and no more than the limit, takes all of the
 * share: so the state means the same whatever was asked.
 */
function shared(counted: CountedRule, share: number): CountedRule {
  const { rule, cost } = counted
  const { quota } = rule
  const burst = Math.max(1, Math.floor(quota.burst * share))
  const fitting = cost > quota.burst ? cost : Math.min(cost, burst)
  return { ...counted, cost: fitting, rule: { ...rule, quota: shareOf(rule, burst, share) } }
}

function shareOf({ algorithm, quota }: Rule, burst: number, share: number): Quota {
  switch (algorithm) {
    case 'gcra':
    case 'token-bucket':
    case 'leaky-bucket':
      return { ...quota, burst, period: Math.round(quota.period / share) }
    case 'fixed-window':
    case 'sliding-window':
      return { ...quota, burst, limit: burst }
    case 'sliding-log':
      return asWindow(quota, burst)
  }
}

/** In steps of a thousandth: finer than a fallback needs, and within exact arithmetic. */
function asWindow(quota: Quota, limit: number): Quota {
  const step = quota.period % 1000 === 0 ? quota.period / 1000 : quota.period
  return { ...quota, burst: limit, limit, step }
}
