/**
 * Limits by name, for work that never passes through the gateway: calls to third parties, background tasks. The same engine
 * and the same trip: every rule of the set is decided at once, all or nothing, on the store's clock.
 *
 *     const limiter = limiterOnStore(config, store, { scriptsOf })
 *     const { allowed, delayMs, retryAfterMs } = await limiter.limit('zendesk', { account: '42' }, { cost: 1 })
 */
import { type Background, detached } from '../../background.ts'
import { SYSTEM_CLOCK, SYSTEM_TIMER, type Timer } from '../../clock.ts'
import type { Config, LimitRule } from '../../config/compile.ts'
import { toRefund, toReset } from '../../limiter/ask.ts'
import type { DemandedRule } from '../../limiter/bind.ts'
import { bindRule } from '../../limiter/bind-rule.ts'
import type { Allowed, Decision, DegradedCause, Denied, Unavailable } from '../../limiter/decision.ts'
import { createEngine } from '../../limiter/engine.ts'
import type { Degraded } from '../../limiter/evaluate.ts'
import { createHoldings } from '../../limiter/keep-holdings.ts'
import { createLeases } from '../../limiter/leases.ts'
import { createLocalLimiter } from '../../limiter/local.ts'
import { createOwnAnswers } from '../../limiter/own-answers.ts'
import { createProbe } from '../../limiter/probe.ts'
import { createRefusalMemory } from '../../limiter/refusals.ts'
import { evaluateOnCluster } from '../../limiter/slots.ts'
import { limitPolicy } from '../../script/compiled.ts'
import { enforced, type Verdict } from '../../script/evaluation.ts'
import { createLimitPolicy } from '../../script/policy.ts'
import type { ScriptsOf } from '../../script/policy-shape.ts'
import type { Changed, RefundedRule } from '../../script/refund.ts'
import { compileScripts } from '../../script/scripts.ts'
import { syncScript } from '../../script/sync-text.ts'
import { limitStateKey } from '../../store/keys.ts'
import type { Store } from '../../store/store.ts'
import { NO_BOARD, type SwitchBoard } from '../../switches/live.ts'
import { checkCost, checkIdentity, checkRule, type LimitIdentity, type LimitOptions } from './arguments.ts'

export type { LimitIdentity, LimitOptions }

export interface LimitDecision {
  limit: string
  identity: LimitIdentity
  /** Nothing was spent when it is false. */
  allowed: boolean
  /** Wait this long before the call (`leaky-bucket`; else 0). Whole ms, rounded up. */
  delayMs: number
  /** Ask again after this long; 0 when allowed, -1 when this cost can never be allowed. Whole ms, rounded up. */
  retryAfterMs: number
  /** When it was decided, by the store's clock (µs); 0 where the store was not asked: while degraded, and for a remembered refusal. From a lease: when its units were spent. */
  at: number
  /** One for each rule that took part, in µs; while degraded those that count in the isolate. */
  verdicts: readonly Verdict[]
  /**
   * The cost for each rule that took part, by rule name; empty after a change, and where a refusal was switched off while it was
   * made.
   */
  costs: Readonly<Record<string, number>>
  /** Set when the store has not evaluated the limits (each rule's `onStoreFailure` decides then), or when all limits are switched off. */
  degraded?: DegradedCause
  /**
   * The work is over, and what it held under rules `concurrency` is free again; nothing else is given back. Only the first call
   * counts. `await using decision = await limiter.acquire(…)` calls it when the block is left. A decision that is not released holds
   * its units until the process ends, or for the `ttl` of the rule after that.
   */
  release(): void
  [Symbol.asyncDispose](): Promise<void>
}

export interface AcquireOptions extends LimitOptions {
  /**
   * Give up when it would take longer than this (default: wait as long as it takes). A queue that others join at the same
   * moment can take longer.
   */
  timeoutMs?: number
}

export interface Limiter {
  /**
   * May this be done now? Spends when it may.
   * @throws TypeError for a limit, a part of an identity or a cost that does not exist
   */
  limit(name: string, identity?: LimitIdentity, options?: LimitOptions): Promise<LimitDecision>
  /**
   * How things stand, and what `limit` would say now of a cost of 1 (`allowed`, `delayMs`, `retryAfterMs`). Spends nothing, so that
   * another call can be faster.
   */
  peek(name: string, identity?: LimitIdentity): Promise<LimitDecision>
  /**
   * Waits until it may be done, then until its turn in a queue (`leaky-bucket`) has come; where as many are in flight as may
   * (`concurrency`), it asks again after 50 ms, and then less often, up to every 1.6 s. Without a queue in the set,
   * waiting calls compete for units that come back, each with a trip: first come is not first served.
   * @returns the last decision: not allowed when it can never be, or not within `timeoutMs`
   */
  acquire(name: string, identity?: LimitIdentity, options?: AcquireOptions): Promise<LimitDecision>
  /**
   * Gives back what a decision has spent, or `cost` units of it: when the call was not made, or took less than expected.
   * Never lifts an identity above the full budget, and gives back no more than is surely still missing. A place in a queue
   * (`leaky-bucket`) is not given back: the departures of the calls behind it are fixed. With a cost by rule name, the other
   * rules give nothing back. The limiter remembers what it has given back of a decision object; a copy counts as another one.
   * @returns how things stand; not allowed when the store did not do it
   */
  refund(decision: LimitDecision, options?: LimitOptions): Promise<LimitDecision>
  /**
   * Makes the whole budget of an identity available again: of all rules of the limit, or of one.
   * @returns how things stand; not allowed when the store did not do it
   */
  reset(name: string, identity?: LimitIdentity, options?: { rule?: string }): Promise<LimitDecision>
  /**
   * Gives back what was leased (`lease`), before a process ends. Calls that still come are decided by the store, each with a trip.
   * Resolves when the store has the units again, or could not be reached; it never rejects. What decisions hold stays held.
   */
  close(): Promise<void>
}

/** The clock of the limiter; tests pass their own. */
export interface LimiterClock {
  /** µs to decide by; absent: the store's own clock. */
  now?: () => number
  sleep(ms: number): Promise<void>
  /** For what is sent to the store later. Default: that of the machine. */
  timer?: Timer
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

/** Where the store must answer before a call may pass, it is worth asking again after this long (µs). */
const UNAVAILABLE_RETRY = 1e6

export interface LimiterSettings {
  /** The scripts that `npx sluicegate build` has compiled (src/built/limits.generated.ts). Absent: each is compiled when it is first needed. */
  scriptsOf?: ScriptsOf
  /** For limits that follow the live switches, under `<limit>/<rule>`: one for as long as the process lives. */
  board?: SwitchBoard
  clock?: LimiterClock
  /**
   * Keeps work alive after a call has been answered, such as the report that a slot is free. Default: the process lives on. On Workers
   * `waitUntil` of `cloudflare:workers`; without it, what a request leaves behind ends with it.
   */
  waitUntil?: (task: Promise<unknown>) => void
}

/** @throws Error when `scriptsOf` was built for other limits than those of the config */
export function limiterOnStore(
  config: Pick<Config, 'limits'> & Partial<Pick<Config, 'localShare' | 'breaker' | 'inFlight' | 'refusals'>>,
  store: Store,
  { scriptsOf, board = NO_BOARD, clock = REAL_TIME, waitUntil }: LimiterSettings = {},
): Limiter {
  const policies = new Map(
    [...config.limits].map(([name, rules]) => [
      name,
      scriptsOf ? createLimitPolicy(rules, scriptsOf) : limitPolicy(rules),
    ]),
  )
  const nowMs = () => (clock.now ? clock.now() / 1e3 : SYSTEM_CLOCK.now())
  const elapsedMs = () => (clock.now ? clock.now() / 1e3 : performance.now())
  const limitOf = new Map(
    [...config.limits].flatMap(([name, rules]) => rules.map(rule => [rule, name] as const)),
  )
  const engine = createEngine({ ...config, localShare: config.localShare ?? 1 }, store, {
    ...{ clock: { now: nowMs }, decideAt: clock.now, board, credentials: 'refuse' },
    probe: createProbe(scriptsOf ?? compileScripts),
    onCluster: evaluateOnCluster,
    createLocal: createLocalLimiter,
    ownAnswers: createOwnAnswers(
      config.refusals && createRefusalMemory(config.refusals.rememberForMs, elapsedMs),
      [...limitOf.keys()].some(({ lease }) => lease)
        ? createLeases({ now: elapsedMs, timer: clock.timer ?? SYSTEM_TIMER, writeAt: clock.now })
        : undefined,
    ),
    switchName: rule => `${limitOf.get(rule as LimitRule)}/${rule.name}`,
    kept: [...limitOf.keys()].some(isHeld)
      ? createHoldings({
          now: nowMs,
          timer: clock.timer ?? SYSTEM_TIMER,
          script: syncScript,
          writeAt: clock.now,
        })
      : undefined,
  })
  const background: Background = waitUntil ? task => waitUntil(task.catch(() => {})) : detached
  const options = { background, awaitsSwitches: true }

  function rulesOf(name: string): readonly LimitRule[] {
    const rules = config.limits.get(name)
    if (rules) return rules
    const names = [...config.limits.keys()].join(', ') || 'none'
    throw new TypeError(`The config has no limit '${name}'. Limits: ${names}.`)
  }

  /** Each rule of a limit with the key of the identity. */
  function placesOf(name: string, identity: LimitIdentity): { rule: LimitRule; key: string }[] {
    const rules = rulesOf(name)
    checkIdentity(name, identity, rules)
    return rules.map(rule => {
      const parts = rule.by.map(part => [part, String(identity[part])] as const)
      return { rule, key: limitStateKey(name, parts) }
    })
  }

  async function decide(
    verb: 'decide' | 'peek',
    name: string,
    identity: LimitIdentity,
    costOf: (rule: LimitRule) => number,
  ): Promise<LimitDecision> {
    const places = placesOf(name, identity)
    const rules = places.map((place): DemandedRule => ({ ...place, cost: costOf(place.rule) }))
    const { decision, outcome, at, awaitsEnding, finish } = await engine[verb](
      { policy: policies.get(name)!, rules },
      options,
    )
    if (!awaitsEnding) finish('complete')
    const known = ofLimit(decision)
    // A refusal that was switched off while it was made has spent nothing, and gets nothing back.
    const isCharged = outcome === undefined || (outcome.status === 'admitted') === (known.kind === 'allowed')
    const verdicts = known.kind === 'unavailable' ? [] : known.verdicts
    // A rule that is off takes no part.
    const tookPart = new Set((outcome?.verdicts ?? verdicts).map(({ rule }) => rule.name))
    const charged = isCharged && verb === 'decide' ? rules.filter(({ rule }) => tookPart.has(rule.name)) : []
    return {
      ...{ limit: name, identity, at },
      allowed: known.kind === 'allowed',
      delayMs: known.kind === 'allowed' ? milliseconds(known.delay) : 0,
      retryAfterMs: milliseconds(retryAfterOf(known)),
      verdicts,
      costs: Object.fromEntries(charged.map(({ rule, cost }) => [rule.name, cost])),
      ...(known.degraded && { degraded: known.degraded.cause }),
      ...releasing(() => finish('complete')),
    }
  }

  /** How things stand after a change; one that was not made is not allowed, unlike a request. */
  function changed(name: string, identity: LimitIdentity, result: Changed | Degraded): LimitDecision {
    const common = { limit: name, identity, delayMs: 0, retryAfterMs: 0, costs: {}, ...releasing(() => {}) }
    if ('cause' in result) return { ...common, allowed: false, at: 0, verdicts: [], degraded: result.cause }
    return { ...common, allowed: true, at: result.at, verdicts: result.verdicts }
  }

  /** Units given back of each decision, by rule name. */
  const refunded = new WeakMap<LimitDecision, Map<string, number>>()

  const limiter: Limiter = {
    limit: async (name, identity = {}, { cost = 1 } = {}) => {
      checkCost(name, cost, rulesOf(name))
      return await decide('decide', name, identity, rule => costFor(rule, cost, 1))
    },

    async peek(name, identity = {}) {
      const standing = await decide('peek', name, identity, () => 1)
      // A queue says how long it is; a peek has joined none.
      return { ...standing, delayMs: standing.allowed ? milliseconds(queueOf(standing)) : 0 }
    },

    async acquire(name, identity = {}, { timeoutMs = Number.POSITIVE_INFINITY, ...options } = {}) {
      const startedAt = elapsedMs()
      for (let attempt = 0; ; attempt++) {
        const left = timeoutMs - (elapsedMs() - startedAt)
        // A place in a queue cannot be given back, so a call whose turn would come too late does not join.
        if (Number.isFinite(left) && joinsQueue(rulesOf(name), options.cost)) {
          const standing = await decide('peek', name, identity, () => 0)
          const delayMs = milliseconds(queueOf(standing))
          if (delayMs > left) return { ...standing, allowed: false, retryAfterMs: delayMs }
        }
        const decision = await limiter.limit(name, identity, options)
        if (decision.allowed) {
          await clock.sleep(decision.delayMs)
          return decision
        }
        const pauseMs = pauseAfter(decision, attempt)
        if (pauseMs < 0 || pauseMs > timeoutMs - (elapsedMs() - startedAt)) return decision
        await clock.sleep(pauseMs)
      }
    },

    async refund(decision, { cost } = {}) {
      const { limit: name, identity, at, verdicts, costs } = decision
      if (cost !== undefined) checkCost(name, cost, rulesOf(name))
      // The store cannot give back what it has not spent.
      if (decision.degraded && at === 0) return { ...decision, allowed: false }
      // A rule that refused has spent nothing, shadows included; nor has a refused decision.
      const charged = new Set(decision.allowed ? verdicts.filter(v => v.allowed).map(v => v.rule.name) : [])
      const given = refunded.get(decision) ?? new Map<string, number>()
      refunded.set(decision, given)
      const places = placesOf(name, identity)
      const rules = places.flatMap(({ rule, key }): RefundedRule[] => {
        const before = given.get(rule.name) ?? 0
        const spent = charged.has(rule.name) ? (costs[rule.name] ?? 0) - before : 0
        // What is in flight is released, and not refunded.
        if (spent <= 0 || isHeld(rule)) return []
        const units = Math.min(spent, cost === undefined ? spent : costFor(rule, cost, 0))
        given.set(rule.name, before + units)
        return [{ ...bindRule(rule, key, units, nowMs()), units, spent }]
      })
      if (rules.length === 0) return changed(name, identity, { at: 0, verdicts: [] })
      return changed(
        name,
        identity,
        await engine.change(
          'refund',
          toRefund({ policy: policies.get(name)!, rules, spentAt: at, now: clock.now?.() }),
          background,
        ),
      )
    },

    async reset(name, identity = {}, { rule: only } = {}) {
      if (only !== undefined) checkRule(name, only, rulesOf(name))
      const places = placesOf(name, identity)
      const rules = places
        .filter(({ rule }) => only === undefined || rule.name === only)
        .map(({ rule, key }) => bindRule(rule, key, 0, nowMs()))
      return changed(
        name,
        identity,
        await engine.change('reset', toReset({ rules, now: clock.now?.() }), background),
      )
    },

    close: engine.stop,
  }
  return limiter
}

/** @throws Error: limits by name have no caller that could be unknown or blocked */
function ofLimit(decision: Decision): Allowed | Denied | Unavailable {
  switch (decision.kind) {
    case 'allowed':
    case 'denied':
    case 'unavailable':
      return decision
    case 'unknown-credential':
    case 'blocked':
      throw new Error(`A limit by name has no caller, and yet the decision is ${decision.kind}.`)
  }
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

/** @param otherwise for rules that a cost by rule name does not name */
function costFor(rule: LimitRule, cost: NonNullable<LimitOptions['cost']>, otherwise: number): number {
  if (typeof cost === 'number') return cost
  return Object.hasOwn(cost, rule.name) ? cost[rule.name]! : otherwise
}

/** Whether a request of this cost may have to wait in a queue. */
function joinsQueue(rules: readonly LimitRule[], cost: NonNullable<LimitOptions['cost']> = 1): boolean {
  return rules.some(rule => {
    const units = costFor(rule, cost, 1)
    return rule.counting.isQueue && units > 0 && units <= rule.quota.burst
  })
}

/** How long the queues are that a request would join (µs). */
function queueOf({ verdicts }: LimitDecision): number {
  const queues = enforced(verdicts).filter(({ rule }) => rule.counting.isQueue)
  return Math.max(0, ...queues.map(({ resetAfter }) => resetAfter))
}

const isHeld = ({ counting }: LimitRule) => counting.state === 'held'

/** What is released when the work is over: by name, or where a block ends. */
function releasing(release: () => void): Pick<LimitDecision, 'release' | typeof Symbol.asyncDispose> {
  return {
    release,
    async [Symbol.asyncDispose]() {
      release()
    },
  }
}

/**
 * How long to wait before asking again (ms). What is in flight ends at any time, mostly long before `retryAfterMs`, so it is asked
 * about again soon, and then less and less often.
 */
function pauseAfter({ retryAfterMs, verdicts }: LimitDecision, attempt: number): number {
  const refusing = enforced(verdicts).filter(({ allowed }) => !allowed)
  const isWaitingForOthers = refusing.length > 0 && refusing.every(({ rule }) => isHeld(rule as LimitRule))
  return isWaitingForOthers
    ? Math.min(retryAfterMs, FIRST_PAUSE_MS * 2 ** Math.min(attempt, 5))
    : retryAfterMs
}

/** It doubles five times, to 1.6 s. */
const FIRST_PAUSE_MS = 50

/** -1 stays -1. */
const milliseconds = (microseconds: number) => (microseconds < 0 ? -1 : Math.ceil(microseconds / 1e3))
