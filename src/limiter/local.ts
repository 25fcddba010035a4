/**
 * Counts in the memory of the isolate while the store does not: the TypeScript models, a share of each limit, on the
 * clock of this machine. Bounded memory: those who have not come for long are forgotten first, and come back with a
 * whole budget. When the store is back, it is told what has been spent meanwhile.
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
import type { GatewayError } from '../errors.ts'
import type { Store } from '../store/store.ts'
import { type CountedRule, count } from './count.ts'
import { countInMemory } from './memory.ts'
import { ask, type Evaluation, type Outcome, type Verdict } from './wire.ts'

/** Identities: some 500 bytes each; up to twice as many are kept. */
const MOST_IDENTITIES = 10_000

/** So many go to the store in one request when it is back. */
const MOST_AT_ONCE = 50

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
  /** Whether the store is still to be told of something. */
  hasSpent(): boolean
  /**
   * Tells the store, in one or two requests, what the next few identities have spent and what has not come back since;
   * resolves when it is done. What is on its way when the store fails again is lost: it is never sent twice. What the
   * store refuses stays here, as by a Redis that answers and cannot write: each try would else give out the share anew.
   */
  handOver(store: Store): Promise<void>
}

/** @param share of each limit, above 0 and up to 1 */
export function createLocalLimiter(share: number, now: () => number = Date.now): LocalLimiter {
  const memory = new QuickLRU<string, Map<string, State>>({ maxSize: MOST_IDENTITIES })
  /** By tag: as many as the config has. */
  const rules = new Map<string, Rule>()

  /** What has been spent of it and not come back, rule by rule; nothing is refused by it. */
  function spentBy(key: string, states: ReadonlyMap<string, State>): CountedRule[] {
    return [...states.keys()].flatMap(tag => {
      const rule = rules.get(tag)
      if (!rule) return []
      const peek = { ...count(rule, key, 0, now()), rule: shared(rule, 0, share) }
      const [verdict] = countInMemory(
        ALGORITHMS,
        memory,
        [{ counted: peek, told: rule }],
        now() * 1e3,
      ).verdicts
      const units = peek.rule.quota.burst - verdict!.remaining
      return units > 0 ? [toSpend(rule, key, units)] : []
    })
  }

  const toSpend = (rule: Rule, key: string, units: number): CountedRule => ({
    // Its plan was looked at when it was counted.
    ...count({ ...rule, match: {} }, key, units, now()),
    mode: 'shadow',
  })

  return {
    count(asked) {
      const all = asked.map(counted => {
        const { rule, cost } = counted
        rules.set(rule.tag, rule)
        return { counted: { ...counted, rule: shared(rule, cost, share) }, told: rule }
      })
      return countInMemory(ALGORITHMS, memory, all, now() * 1e3)
    },

    hasSpent: () => memory.size > 0,

    async handOver(store) {
      const taken = [...memory.keys()].slice(0, MOST_AT_ONCE).flatMap(key => {
        const states = memory.get(key)!
        const counted = spentBy(key, states)
        memory.delete(key)
        return counted.length > 0 ? [{ key, states, evaluation: { rules: counted, plans: [] } }] : []
      })
      const answers = await ask(
        store,
        taken.map(({ evaluation }) => evaluation),
      ).catch(error => {
        for (const { key, states } of taken) keep(key, states, error)
        throw error
      })
      // Where others have left less than was spent here, what is left.
      const rest = answers.flatMap((answer, i): Evaluation[] => {
        const { key, states, evaluation } = taken[i]!
        if (!('verdicts' in answer)) {
          keep(key, states, answer)
          return []
        }
        const left = leftOf(answer, evaluation)
        return left.length > 0 ? [{ rules: left, plans: [] }] : []
      })
      await ask(store, rest)
    },
  }

  /** Of what the store has surely not done. */
  function keep(key: string, states: Map<string, State>, { code }: GatewayError): void {
    if (!/^ERR_STORE_(REFUSED|QUOTA|BREAKER_OPEN)$/.test(code)) return
    memory.set(key, new Map([...states, ...(memory.get(key) ?? [])]))
  }

  function leftOf({ verdicts }: Outcome, { rules }: Evaluation): CountedRule[] {
    return verdicts.flatMap(({ allowed, remaining }, i) => {
      const { rule, key } = rules[i]!
      return allowed || remaining <= 0 ? [] : [toSpend(rule, key, remaining)]
    })
  }
}

/** A rule with a share of its limit. One request that costs more than the share, and no more than the limit, still fits. */
function shared(rule: Rule, cost: number, share: number): Rule {
  const { quota } = rule
  const burst = Math.max(1, Math.floor(quota.burst * share), Math.min(cost, quota.burst))
  switch (rule.algorithm) {
    case 'gcra':
    case 'token-bucket':
    case 'leaky-bucket':
      return { ...rule, quota: { ...quota, burst, period: Math.round(quota.period / share) } }
    case 'fixed-window':
    case 'sliding-window':
      return { ...rule, quota: { ...quota, burst, limit: burst } }
    case 'sliding-log':
      return { ...rule, quota: asWindow(quota, burst) }
  }
}

/** In steps of a thousandth: finer than a fallback needs, and within exact arithmetic. */
function asWindow(quota: Quota, limit: number): Quota {
  const step = quota.period % 1000 === 0 ? quota.period / 1000 : quota.period
  return { ...quota, burst: limit, limit, step }
}
