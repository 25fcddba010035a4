/**
 * Limits that are asked by name, for what never passes through the gateway: calls to third parties, background tasks.
 * The same engine and the same trip: every rule of the set is decided at once, all or nothing, on the store's clock.
 *
 *     const limiter = createLimiter(config, store)
 *     const { allowed, delayMs, retryAfterMs } = await limiter.limit('zendesk', { account: '42' }, { cost: 1 })
 */
import type { Config, LimitRule } from '../config/compile.ts'
import { limitStateKey } from '../store/keys.ts'
import type { Store } from '../store/store.ts'
import { type CountedRule, count } from './count.ts'
import { decide, enforced } from './decide.ts'
import { type DegradedCause, evaluate } from './evaluate.ts'
import type { Verdict } from './wire.ts'

/** Who is counted: a value for every part that the rules of the limit are counted by. */
export type LimitIdentity = Readonly<Record<string, string | number>>

export interface LimitOptions {
  /** Units (default 1), or units by rule name where rules count different things. 0 peeks. */
  cost?: number | Readonly<Record<string, number>>
}

export interface LimitDecision {
  limit: string
  identity: LimitIdentity
  /** Nothing was spent when it is false. */
  allowed: boolean
  /** Wait this long before the call (`leaky-bucket`; else 0). Whole ms, rounded up. */
  delayMs: number
  /** Ask again after this long; 0 when allowed, -1 when this cost can never be allowed. Whole ms, rounded up. */
  retryAfterMs: number
  /** When it was decided, by the store's clock (µs); 0 while degraded. */
  at: number
  /** One for each rule of the set, in µs; empty while degraded. */
  verdicts: readonly Verdict[]
  /** What each rule was asked for, by rule name. */
  costs: Readonly<Record<string, number>>
  /** Set when it is allowed only because the limits could not be evaluated. */
  degraded?: DegradedCause
}

export interface AcquireOptions extends LimitOptions {
  /**
   * Give up when it would take longer than this (default: wait as long as it takes). A queue that others join in the
   * same moment can make it longer than that.
   */
  timeoutMs?: number
}

export interface Limiter {
  /**
   * May this be done now? Spends when it may.
   * @throws TypeError for a limit, a part of an identity or a cost that does not exist
   */
  limit(name: string, identity?: LimitIdentity, options?: LimitOptions): Promise<LimitDecision>
  /** How things stand; spends nothing and is always allowed. */
  peek(name: string, identity?: LimitIdentity): Promise<LimitDecision>
  /**
   * Waits until it may be done, then until its turn has come.
   * @returns the last decision: not allowed when it can never be, or not within `timeoutMs`
   */
  acquire(name: string, identity?: LimitIdentity, options?: AcquireOptions): Promise<LimitDecision>
  /**
   * Gives back what a decision has spent, or `cost` units of it: when the call was not made, or took less than was
   * thought. Never lifts anyone above the full budget, and never more is given back than is surely still missing. A
   * place in a queue (`leaky-bucket`) is not given back: those behind it have been told when they depart.
   */
  refund(decision: LimitDecision, options?: LimitOptions): Promise<LimitDecision>
  /** Makes the whole budget of an identity available again: of all rules of the limit, or of one. */
  reset(name: string, identity?: LimitIdentity, options?: { rule?: string }): Promise<LimitDecision>
}

/** What the limiter needs of time; tests pass their own. */
export interface LimiterClock {
  /** µs to decide by; absent: the store's own clock. */
  now?: () => number
  sleep(ms: number): Promise<void>
}

const REAL_TIME: LimiterClock = { sleep: ms => new Promise(resolve => setTimeout(resolve, ms)) }

/** More than any rule can have spent: given back, it leaves the whole budget. */
const EVERYTHING = 2 ** 52

export function createLimiter(config: Pick<Config, 'limits'>, store: Store, clock = REAL_TIME): Limiter {
  function rulesOf(name: string): readonly LimitRule[] {
    const rules = config.limits.get(name)
    if (rules) return rules
    const names = [...config.limits.keys()].join(', ') || 'none'
    throw new TypeError(`There is no limit '${name}'. The limits of the config are: ${names}.`)
  }

  async function ask(
    name: string,
    identity: LimitIdentity,
    costOf: (rule: LimitRule) => number | undefined,
    spentAt?: number,
  ): Promise<LimitDecision> {
    const rules = rulesOf(name)
    checkIdentity(name, identity, rules)
    const nowMs = clock.now ? clock.now() / 1e3 : Date.now()
    const counted: CountedRule[] = []
    const costs: Record<string, number> = {}
    for (const rule of rules) {
      const cost = costOf(rule)
      if (cost === undefined) continue
      costs[rule.name] = cost
      const parts = rule.by.map(part => [part, String(identity[part])] as const)
      counted.push(count(rule, await limitStateKey(name, parts), cost, nowMs))
    }

    const outcome = await evaluate(store, {
      rules: counted,
      plans: [],
      ...(clock.now && { now: clock.now() }),
      ...(spentAt !== undefined && { spentAt }),
    })
    const decision = decide(outcome)
    if (decision.kind === 'unauthenticated') throw new Error('A limit has no credential.')
    const { degraded } = decision.kind === 'allowed' ? decision : {}
    return {
      limit: name,
      identity,
      allowed: decision.kind === 'allowed',
      delayMs: decision.kind === 'allowed' ? milliseconds(decision.delay) : 0,
      retryAfterMs: decision.kind === 'denied' ? milliseconds(decision.retryAfter) : 0,
      at: outcome.status === 'degraded' ? 0 : outcome.at,
      verdicts: decision.verdicts,
      costs,
      ...(degraded && { degraded: degraded.cause }),
    }
  }

  const limiter: Limiter = {
    limit: async (name, identity = {}, { cost = 1 } = {}) => {
      checkCost(name, cost, rulesOf(name))
      return await ask(name, identity, rule => costFor(rule, cost))
    },

    peek: async (name, identity = {}) => await ask(name, identity, () => 0),

    async acquire(name, identity = {}, { timeoutMs = Number.POSITIVE_INFINITY, ...options } = {}) {
      let left = timeoutMs
      for (;;) {
        // A place in a queue cannot be given back, so none is taken that comes too late.
        if (Number.isFinite(left) && rulesOf(name).some(({ algorithm }) => algorithm === 'leaky-bucket')) {
          const standing = await limiter.peek(name, identity)
          const delayMs = milliseconds(queueOf(standing))
          if (delayMs > left) return { ...standing, allowed: false, retryAfterMs: delayMs }
        }
        const decision = await limiter.limit(name, identity, options)
        if (decision.allowed) {
          await clock.sleep(decision.delayMs)
          return decision
        }
        if (decision.retryAfterMs < 0 || decision.retryAfterMs > left) return decision
        left -= decision.retryAfterMs
        await clock.sleep(decision.retryAfterMs)
      }
    },

    async refund(decision, { cost } = {}) {
      const { limit: name, identity, at, verdicts, costs } = decision
      if (cost !== undefined) checkCost(name, cost, rulesOf(name))
      // What refused has spent nothing, shadows included; and without a decision nothing was spent at all.
      const spent = new Set(decision.allowed ? verdicts.filter(v => v.allowed).map(v => v.rule.name) : [])
      const back = (rule: LimitRule) => {
        const most = costs[rule.name] ?? 0
        return spent.has(rule.name) && most > 0
          ? -Math.min(most, cost === undefined ? most : costFor(rule, cost))
          : undefined
      }
      return await ask(name, identity, back, at)
    },

    async reset(name, identity = {}, { rule: only } = {}) {
      const rules = rulesOf(name)
      if (only !== undefined && !rules.some(rule => rule.name === only)) {
        const names = rules.map(rule => rule.name).join(', ')
        throw new TypeError(`The limit '${name}' has no rule '${only}'. Its rules are: ${names}.`)
      }
      return await ask(name, identity, rule =>
        only === undefined || rule.name === only ? -EVERYTHING : undefined,
      )
    },
  }
  return limiter
}

function checkIdentity(name: string, identity: LimitIdentity, rules: readonly LimitRule[]): void {
  const parts = new Set(rules.flatMap(rule => rule.by))
  const missing = [...parts].filter(part => !/^(string|number)$/.test(typeof identity[part]))
  const unknown = Object.keys(identity).filter(part => !parts.has(part))
  if (missing.length === 0 && unknown.length === 0) return
  const asked = parts.size > 0 ? `by ${[...parts].join(' and ')}` : 'for everybody together'
  const wrong =
    missing.length > 0 ? `${missing.join(', ')} is missing` : `${unknown.join(', ')} is no part of it`
  throw new TypeError(`The limit '${name}' counts ${asked}: ${wrong}.`)
}

function checkCost(
  name: string,
  cost: number | Readonly<Record<string, number>>,
  rules: readonly LimitRule[],
): void {
  const costs = typeof cost === 'number' ? { cost } : cost
  for (const [key, units] of Object.entries(costs)) {
    if (typeof cost !== 'number' && !rules.some(rule => rule.name === key)) {
      const names = rules.map(rule => rule.name).join(', ')
      throw new TypeError(`The limit '${name}' has no rule '${key}'. Its rules are: ${names}.`)
    }
    if (Number.isInteger(units) && units >= 0 && units <= 1e9) continue
    throw new TypeError(`${key} is ${units}: a cost is a whole number from 0 to 1000000000.`)
  }
}

function costFor(rule: LimitRule, cost: number | Readonly<Record<string, number>>): number {
  if (typeof cost === 'number') return cost
  return Object.hasOwn(cost, rule.name) ? cost[rule.name]! : 1
}

/** How long the queues are that a request would join (µs). */
function queueOf({ verdicts }: LimitDecision): number {
  const queues = enforced(verdicts).filter(({ rule }) => rule.algorithm === 'leaky-bucket')
  return Math.max(0, ...queues.map(({ resetAfter }) => resetAfter))
}

/** -1 stays -1. */
const milliseconds = (microseconds: number) => (microseconds < 0 ? -1 : Math.ceil(microseconds / 1e3))
