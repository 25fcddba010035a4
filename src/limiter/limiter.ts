/**
 * Limits that are asked by name, for what never passes through the gateway: calls to third parties, background tasks.
 * The same engine and the same trip: every rule of the set is decided at once, all or nothing, on the store's clock.
 *
 *     const limiter = createLimiter(config, store)
 *     const { allowed, delayMs, retryAfterMs } = await limiter.limit('zendesk', { account: '42' }, { cost: 1 })
 */
import type { Config, LimitRule, Rule } from '../config/compile.ts'
import { withBreaker } from '../store/breaker.ts'
import { withInFlightLimit } from '../store/in-flight.ts'
import { limitStateKey } from '../store/keys.ts'
import type { Store } from '../store/store.ts'
import { type SwitchBoard, withSwitches } from '../switches/live.ts'
import { marked, relax, switchedMode } from '../switches/relax.ts'
import { NO_SWITCHES } from '../switches/switches.ts'
import { type CountedRule, count } from './count.ts'
import { type Allowed, type Decision, type Denied, decide, enforced, type Unavailable } from './decide.ts'
import { type Degraded, type DegradedCause, evaluate } from './evaluate.ts'
import { fallBack } from './fallback.ts'
import { checkCost, checkIdentity, checkRule } from './limit-checks.ts'
import { createLocalLimiter } from './local.ts'
import { probe } from './probe.ts'
import type { Evaluation, Verdict } from './wire.ts'

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
  /** One for each rule of the set that was asked, in µs; while degraded those that count in the isolate. */
  verdicts: readonly Verdict[]
  /** What each rule was asked for, by rule name; none where a refusal was switched off while it was made. */
  costs: Readonly<Record<string, number>>
  /**
   * Set when the store has not evaluated the limits: its rules say what happens then (`onStoreFailure`). Or all limits are
   * switched off.
   */
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
   * Waits until it may be done, then until its turn in a queue (`leaky-bucket`) has come. Without a queue in the set
   * those who wait race for what comes free, each with a trip: first come is not first served.
   * @returns the last decision: not allowed when it can never be, or not within `timeoutMs`
   */
  acquire(name: string, identity?: LimitIdentity, options?: AcquireOptions): Promise<LimitDecision>
  /**
   * Gives back what a decision has spent, or `cost` units of it: when the call was not made, or took less than was
   * thought. Never lifts anyone above the full budget, and never more is given back than is surely still missing. A
   * place in a queue (`leaky-bucket`) is not given back: those behind it have been told when they depart. Of a cost by
   * rule name, the others give nothing back. The limiter remembers what it has given back of a decision object: a copy
   * of it is another.
   * @returns how things stand; not allowed when the store did not do it
   */
  refund(decision: LimitDecision, options?: LimitOptions): Promise<LimitDecision>
  /**
   * Makes the whole budget of an identity available again: of all rules of the limit, or of one.
   * @returns how things stand; not allowed when the store did not do it
   */
  reset(name: string, identity?: LimitIdentity, options?: { rule?: string }): Promise<LimitDecision>
}

/** What the limiter needs of time; tests pass their own. */
export interface LimiterClock {
  /** µs to decide by; absent: the store's own clock. */
  now?: () => number
  sleep(ms: number): Promise<void>
}

/** Timers cannot be set for longer (24.8 days), and go off at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1

const REAL_TIME: LimiterClock = {
  async sleep(ms) {
    for (let left = ms; left > 0; left -= LONGEST_TIMER_MS) {
      await new Promise(resolve => setTimeout(resolve, Math.min(left, LONGEST_TIMER_MS)))
    }
  },
}

/** More than any rule can have spent: given back, it leaves the whole budget. */
export const EVERYTHING = 2 ** 52

/** Where the store must answer before anybody may pass, it is asked again after so long (µs). */
const UNAVAILABLE_RETRY = 1e6

/** @param board for limits that follow the live switches, under `<limit>/<rule>`: one for as long as the process lives */
export function createLimiter(
  config: Pick<Config, 'limits'> & Partial<Pick<Config, 'localShare' | 'breaker' | 'inFlight'>>,
  bare: Store,
  clock = REAL_TIME,
  board?: SwitchBoard,
): Limiter {
  const guarded = withBreaker(board ? withSwitches(bare, board) : bare, config.breaker, probe)
  const store = withInFlightLimit(guarded, config.inFlight)
  const local = createLocalLimiter(config.localShare ?? 1, clock.now && (() => clock.now!() / 1e3))

  function rulesOf(name: string): readonly LimitRule[] {
    const rules = config.limits.get(name)
    if (rules) return rules
    const names = [...config.limits.keys()].join(', ') || 'none'
    throw new TypeError(`There is no limit '${name}'. The limits of the config are: ${names}.`)
  }

  async function ask(
    name: string,
    identity: LimitIdentity,
    askedOf: (rule: LimitRule) => Asked | undefined,
    back?: { spentAt?: number },
  ): Promise<LimitDecision> {
    const rules = rulesOf(name)
    checkIdentity(name, identity, rules)
    // Giving back is no limiting: no switch keeps it from being done.
    const switches = () => (back ? NO_SWITCHES : (board?.current() ?? NO_SWITCHES))
    const switchedAs = (rule: Rule) => `${name}/${rule.name}`
    const nowMs = clock.now ? clock.now() / 1e3 : Date.now()
    const counted: CountedRule[] = []
    const costs: Record<string, number> = {}
    for (const rule of rules) {
      const asked = askedOf(rule)
      if (!asked) continue
      const parts = rule.by.map(part => [part, String(identity[part])] as const)
      const key = await limitStateKey(name, parts)
      const mode = switchedMode(rule, key, switches(), switchedAs(rule))
      // What was spent while it was switched on is given back.
      if (mode === 'off' && asked.spent === undefined) continue
      costs[rule.name] = asked.cost
      counted.push({
        ...count(rule, key, asked.cost, nowMs),
        ...(mode !== 'off' && { mode }),
        ...asked,
      })
    }

    const asking = { rules: counted, plans: [], ...(clock.now && { now: clock.now() }), ...back }
    const isOverdue = board?.isOverdue()
    const told = await evaluate(store, asking)
    // Where nothing is counted no trip brings the switches, and nobody would see them switched back.
    if (isOverdue && board?.isOverdue()) await store.run([]).catch(() => {})
    const outcome = told.status === 'degraded' ? told : relax(told, asking, switches(), switchedAs)
    const decision =
      outcome.status === 'degraded' ? withoutStore(asking, outcome) : marked(decide(outcome), switches())
    if (decision.kind === 'unauthenticated' || decision.kind === 'forbidden') {
      throw new Error('Nobody in particular asks for a limit by name.')
    }
    // Not awaited: nobody waits for the store to be found again, or for what it is told afterwards.
    if (store.isProbeDue()) void store.probe()
    const isHeard = outcome.status !== 'degraded' && outcome.at > 0
    if (isHeard && local.hasSpent()) void local.handOver(bare).catch(() => {})
    return {
      limit: name,
      identity,
      allowed: decision.kind === 'allowed',
      delayMs: decision.kind === 'allowed' ? milliseconds(decision.delay) : 0,
      retryAfterMs: milliseconds(retryAfterOf(decision)),
      at: outcome.status === 'degraded' ? 0 : outcome.at,
      verdicts: decision.kind === 'unavailable' ? [] : decision.verdicts,
      // What is admitted though it was refused has spent nothing, and gets nothing back.
      costs: outcome.status === told.status ? costs : {},
      ...(decision.degraded && { degraded: decision.degraded.cause }),
    }
  }

  /** What is given back is the store's alone to take. */
  function withoutStore(asking: Evaluation, degraded: Degraded): Decision {
    const rules = asking.rules.filter(({ cost }) => cost >= 0)
    return fallBack({ ...asking, rules }, degraded, undefined, { credentials: 'refuse', local, store })
  }

  const elapsedMs = () => (clock.now ? clock.now() / 1e3 : performance.now())

  /** Units given back of each decision, by rule name. */
  const refunded = new WeakMap<LimitDecision, Map<string, number>>()

  const limiter: Limiter = {
    limit: async (name, identity = {}, { cost = 1 } = {}) => {
      checkCost(name, cost, rulesOf(name))
      return await ask(name, identity, rule => ({ cost: costFor(rule, cost, 1) }))
    },

    peek: async (name, identity = {}) => await ask(name, identity, () => ({ cost: 0 })),

    async acquire(name, identity = {}, { timeoutMs = Number.POSITIVE_INFINITY, ...options } = {}) {
      const startedAt = elapsedMs()
      for (;;) {
        const left = timeoutMs - (elapsedMs() - startedAt)
        // A place in a queue cannot be given back, so none is taken that comes too late.
        if (Number.isFinite(left) && joinsQueue(rulesOf(name), options.cost)) {
          const standing = await limiter.peek(name, identity)
          const delayMs = milliseconds(queueOf(standing))
          if (delayMs > left) return { ...standing, allowed: false, retryAfterMs: delayMs }
        }
        const decision = await limiter.limit(name, identity, options)
        if (decision.allowed) {
          await clock.sleep(decision.delayMs)
          return decision
        }
        const { retryAfterMs } = decision
        if (retryAfterMs < 0 || retryAfterMs > timeoutMs - (elapsedMs() - startedAt)) return decision
        await clock.sleep(retryAfterMs)
      }
    },

    async refund(decision, { cost } = {}) {
      const { limit: name, identity, at, verdicts, costs } = decision
      if (cost !== undefined) checkCost(name, cost, rulesOf(name))
      // What the store has not spent it cannot give back.
      if (decision.degraded && at === 0) return { ...decision, allowed: false }
      // What refused has spent nothing, shadows included; and without a decision nothing was spent at all.
      const charged = new Set(decision.allowed ? verdicts.filter(v => v.allowed).map(v => v.rule.name) : [])
      const given = refunded.get(decision) ?? new Map<string, number>()
      refunded.set(decision, given)
      const back = (rule: LimitRule): Asked | undefined => {
        const before = given.get(rule.name) ?? 0
        const spent = charged.has(rule.name) ? (costs[rule.name] ?? 0) - before : 0
        const units = Math.min(spent, cost === undefined ? spent : costFor(rule, cost, 0))
        if (spent <= 0) return undefined
        given.set(rule.name, before + units)
        return units > 0 ? { cost: -units, spent } : { cost: 0 }
      }
      return done(await ask(name, identity, back, { spentAt: at }))
    },

    async reset(name, identity = {}, { rule: only } = {}) {
      if (only !== undefined) checkRule(name, only, rulesOf(name))
      const isReset = (rule: LimitRule) => only === undefined || rule.name === only
      return done(await ask(name, identity, rule => (isReset(rule) ? { cost: -EVERYTHING } : undefined), {}))
    },
  }
  return limiter
}

function retryAfterOf(decision: Allowed | Denied | Unavailable): number {
  switch (decision.kind) {
    case 'allowed':
      return 0
    case 'denied':
      return decision.retryAfter
    case 'unavailable':
      return UNAVAILABLE_RETRY
  }
}

/** What is asked of one rule. */
type Asked = Pick<CountedRule, 'cost' | 'spent'>

/** @param otherwise for rules that a cost by rule name does not name */
function costFor(rule: LimitRule, cost: NonNullable<LimitOptions['cost']>, otherwise: number): number {
  if (typeof cost === 'number') return cost
  return Object.hasOwn(cost, rule.name) ? cost[rule.name]! : otherwise
}

/** A change that was not made is not let through as a request would be. */
function done(decision: LimitDecision): LimitDecision {
  return decision.degraded ? { ...decision, allowed: false } : decision
}

/** Whether a request of this cost can come to wait in a queue. */
function joinsQueue(rules: readonly LimitRule[], cost: NonNullable<LimitOptions['cost']> = 1): boolean {
  return rules.some(rule => {
    const units = costFor(rule, cost, 1)
    return rule.algorithm === 'leaky-bucket' && units > 0 && units <= rule.quota.burst
  })
}

/** How long the queues are that a request would join (µs). */
function queueOf({ verdicts }: LimitDecision): number {
  const queues = enforced(verdicts).filter(({ rule }) => rule.algorithm === 'leaky-bucket')
  return Math.max(0, ...queues.map(({ resetAfter }) => resetAfter))
}

/** -1 stays -1. */
const milliseconds = (microseconds: number) => (microseconds < 0 ? -1 : Math.ceil(microseconds / 1e3))
