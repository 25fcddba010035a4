/**
 * Limits by name, for work that does not pass through the gateway, such as calls to third parties and background
 * tasks. They use the same engine as the gateway: all rules of a limit are decided together in one trip, all or
 * nothing, by the store's clock.
 */

import { type Background, detached } from '../../background.ts'
import { SYSTEM_CLOCK, SYSTEM_TIMER, type Timer } from '../../clock.ts'
import { DEFAULT_KEEP_MS } from '../../config/audit-keep.ts'
import type { Config, LimitRule } from '../../config/compile.ts'
import type { Rule } from '../../config/compile-rule.ts'
import { REQUESTS } from '../../config/compile-units.ts'
import type { DemandedRule } from '../../limiter/bind.ts'
import { bindRule } from '../../limiter/bind.ts'
import type { CallGuard } from '../../limiter/call-guard.ts'
import type { Allowed, Decision, Denied, Unavailable } from '../../limiter/decision.ts'
import type { DecideOptions } from '../../limiter/engine-shape.ts'
import { createEngineWithParts, type EngineConfig } from '../../limiter/engine-with-parts.ts'
import type { Degraded } from '../../limiter/evaluate.ts'
import { anyReserves } from '../../limiter/needs.ts'
import { prepareRefund } from '../../limiter/prepared-call.ts'
import { newReservationId } from '../../limiter/reservations/reservation.ts'
import { createMetrics } from '../../metrics/create-metrics.ts'
import { isStoreFailure } from '../../metrics/observation.ts'
import type { ChangeResult, RefundedRule } from '../../script/refund.ts'
import { createLimitRuleSet } from '../../script/rule-set.ts'
import { limitStateKey } from '../../store/keys.ts'
import type { Store } from '../../store/store.ts'
import { NO_BOARD, type SwitchBoard } from '../../switches/live.ts'
import { milliseconds, ruleResultOf } from '../rule-result.ts'
import {
  type CostOptions,
  checkCost,
  checkCosts,
  checkIdentity,
  checkOptions,
  checkReserves,
  checkRule,
  checkTimeout,
  costOf,
  type LimitIdentity,
  type LimitOptions,
} from './arguments.ts'
import { createKnownPauses, type KnownPause } from './known-pauses.ts'
import type { LimitDecision, Limiter, RefundableDecision } from './limiter-shape.ts'
import { type ObservedCall, observeCall, observeLateTurn } from './observe-call.ts'
import type { LimiterParts } from './parts.ts'
import { answerFor, type Decided, pauseAfter, queueWait } from './pauses.ts'
import { createPausing, type PauseAuthor, prepareListing, processAuthor } from './pausing.ts'
import { refundOnce } from './refund-once.ts'
import { isUndecided, refundableUnits, reservedUnits } from './spent-units.ts'
import { createWaitingLine, type WaitingLine } from './waiting-line.ts'

export type { AcquireOptions, LimitDecision, Limiter, RefundableDecision } from './limiter-shape.ts'
export type { LimitIdentity, LimitOptions }

/** The clock of the limiter; tests pass their own. */
export interface LimiterClock {
  /** The time of decisions (µs); absent: the store's own clock. */
  now?: () => number
  sleep(ms: number): Promise<void>
  /** Timer for messages to the store that are sent later. Default: that of the machine. */
  timer?: Timer
}

const REAL_TIME: LimiterClock = {
  sleep: ms => new Promise(resolve => void SYSTEM_TIMER(ms, resolve)),
}

/** If a call needs the store and the store does not answer, it can be tried again after this time (µs). */
const UNAVAILABLE_RETRY = 1e6

export interface LimiterSettings {
  /**
   * The live switches that the limits follow, under `<limit>/<rule>`. One board lives as long as the process. Default
   * of `createLimiterOnStore`: none.
   */
  board?: SwitchBoard
  clock?: LimiterClock
  /**
   * Keeps work alive after a call was answered, such as the report of free units. Default: the process runs on. On
   * Workers pass `waitUntil` of `cloudflare:workers`; otherwise such work ends with the request.
   */
  waitUntil?: (task: Promise<unknown>) => void
  /**
   * Whether a call is kept alive until its counters are sent (`stats.every`), as the service binding does. Default: only
   * while they are sent, because a batch of Cloudflare Queues ends only when all of its work has ended. If the platform
   * ends a call before that, a later one sends its counters.
   */
  awaitsCounters?: boolean
  /** Of the environment, for the headers of `metrics.otlp`. Default: none. */
  variables?: Readonly<Record<string, unknown>>
}

/** The part of a config that limits by name use. */
export type LimiterConfig = Pick<Config, 'limits' | 'stats' | 'metrics' | 'environment'> &
  Partial<Pick<Config, 'auditKeepMs'>> &
  EngineConfig

/**
 * Creates a limiter.
 *
 * @param parts at least those that the limits use
 * @throws Error if the scripts in `parts` were built for other limits than those of the config
 */
export function createLimiterWithParts(
  config: LimiterConfig,
  store: Store,
  parts: LimiterParts,
  settings?: LimiterSettings,
): Limiter {
  return createGuardableLimiter(config, store, parts, settings)()
}

/**
 * Returns the methods of a limiter. With a guard, which belongs to one request, their calls need its permission.
 * @param author of pauses, for the audit trail. Default: this process
 */
export type GuardableLimiter = (guard?: CallGuard, author?: PauseAuthor) => Limiter

/** Creates a limiter as `createLimiterWithParts`, for calls with and without a guard. */
export function createGuardableLimiter(
  config: LimiterConfig,
  bareStore: Store,
  parts: LimiterParts,
  { board = NO_BOARD, clock = REAL_TIME, waitUntil, awaitsCounters = false, variables }: LimiterSettings = {},
): GuardableLimiter {
  const ruleSets = new Map(
    [...config.limits].map(([name, rules]) => [name, createLimitRuleSet(rules, parts.scriptsOf)]),
  )
  const allRules = [...config.limits.values()].flat()
  const lineIdOf = (keyed: readonly { key: string }[]) => keyed.map(({ key }) => key).join('\n')
  const keysOf = (keyed: readonly { key: string }[]) => [...new Set(keyed.map(({ key }) => key))]
  const nowMs = () => (clock.now ? clock.now() / 1e3 : SYSTEM_CLOCK.now())
  const elapsedMs = () => (clock.now ? clock.now() / 1e3 : performance.now())
  const limitOf = new Map(
    [...config.limits].flatMap(([name, rules]) => rules.map(rule => [rule, name] as const)),
  )
  const timer = clock.timer ?? SYSTEM_TIMER
  const background: Background = waitUntil ? keptAliveBy(waitUntil) : detached
  const topCallers = config.stats?.topCallers && parts.createTopCallers(config.stats.topCallers)
  const measurements = createMetrics(config, parts, variables, nowMs)
  const store = measurements?.watch(bareStore) ?? bareStore
  const stats =
    config.stats &&
    parts.createStatsRecorder(keepingAlive(store, background), {
      ...config.stats,
      ...{ timer, now: nowMs, topCallers, measurements },
    })
  const engine = createEngineWithParts(config, allRules, store, parts, {
    ...{ clock: { now: nowMs, elapsed: elapsedMs }, decideAt: clock.now, board },
    timer,
    onStoreChange: ({ isOpen }) => measurements?.noteStoreChange(isOpen),
    switchName: rule => `${limitOf.get(rule as LimitRule)}/${rule.name}`,
    credentials: 'refuse',
    countReservations: stats?.countReservations,
  })
  function rulesOf(name: string): readonly LimitRule[] {
    const rules = config.limits.get(name)
    if (rules) return rules
    const names = [...config.limits.keys()].join(', ') || 'none'
    throw new TypeError(`The config has no limit '${name}'. Limits: ${names}.`)
  }

  /**
   * Each rule of a limit with the store key of the identity.
   *
   * @throws TypeError for an unknown limit or part of an identity
   */
  function bindKeys(name: string, identity: LimitIdentity): { rule: LimitRule; key: string }[] {
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
    decideOptions: DecideOptions,
  ): Promise<DecidedCall> {
    const keyed = bindKeys(name, identity)
    const rules = keyed.map((each): DemandedRule => ({ ...each, cost: costOf(each.rule) }))
    const pause = pauses.isEmpty() || board.current().kill ? undefined : pauses.find(keysOf(keyed))
    const mayAnswer = verb === 'decide' && (decideOptions.guard?.isFresh() ?? true)
    if (pause && mayAnswer && !pauses.shouldAsk(pause)) return refuse(name, identity, pause)
    // While a pause is not confirmed, the store would admit.
    const { decision, outcome, at, reservation, awaitsEnding, finish } = await engine[
      pause && !pause.isConfirmed ? 'peek' : verb
    ]({ ruleSet: ruleSets.get(name)!, rules }, { ...decideOptions, asksStore: pause !== undefined })
    if (!awaitsEnding) finish('complete')
    if (outcome?.pausedUntil !== undefined) {
      const { pausedUntil } = outcome
      pauses.confirm(keysOf(keyed), { at: outcome.at, pausedUntil })
    } else if (pause?.isConfirmed && outcome) pauses.forget(pause)
    else if (pause) {
      finish('complete', 'unsettled')
      return refuse(name, identity, pause, decision)
    }
    const known = narrowDecision(decision)
    // A refusal that was switched off while it was made has spent nothing, and gets nothing back.
    const isCharged = outcome === undefined || (outcome.status === 'admitted') === (known.kind === 'allowed')
    const verdicts = known.kind === 'unavailable' ? [] : known.verdicts
    // A rule that is off does not take part.
    const tookPart = new Set((outcome?.verdicts ?? verdicts).map(({ rule }) => rule.name))
    const charged = isCharged && verb === 'decide' ? rules.filter(({ rule }) => tookPart.has(rule.name)) : []
    const made: LimitDecision = {
      ...{ limit: name, identity, at },
      allowed: known.kind === 'allowed',
      delayMs: known.kind === 'allowed' ? milliseconds(known.delay) : 0,
      retryAfterMs: milliseconds(retryAfterOf(known)),
      ...(known.kind === 'denied' &&
        known.pausedUntil !== undefined && { pausedUntil: milliseconds(known.pausedUntil) }),
      rules: verdicts.map(ruleResultOf),
      costs: Object.fromEntries(charged.map(({ rule, cost }) => [rule.name, cost])),
      ...(at > 0 && charged.length > 0 && { id: reservation?.id ?? newReservationId() }),
      ...(reservation && { reserved: reservedUnits(reservation) }),
      ...(known.degraded && { degraded: known.degraded.cause }),
      ...releaseMethods(() => finish('complete', 'unsettled')),
    }
    return { decision: made, verdicts, observed: observeCall(name, known) }
  }

  /** Refuses a call because of a pause that this process knows. @param decision of the store, or without it */
  function refuse(
    name: string,
    identity: LimitIdentity,
    { endsAt, pausedUntil }: KnownPause,
    decision?: Decision,
  ): DecidedCall {
    const degraded = decision && 'degraded' in decision ? decision.degraded : undefined
    const retryAfter = Math.max(1, endsAt - elapsedMs()) * 1e3
    const denied: Denied = {
      ...{ kind: 'denied', verdicts: [], violated: [], retryAfter, pausedUntil },
      ...(degraded ? { degraded } : { from: 'refusals' as const }),
    }
    const made: LimitDecision = {
      ...{ limit: name, identity, at: 0, allowed: false, delayMs: 0, rules: [], costs: {} },
      ...{ retryAfterMs: milliseconds(retryAfter), pausedUntil: milliseconds(pausedUntil) },
      ...(degraded && { degraded: degraded.cause }),
      ...releaseMethods(() => {}),
    }
    return { decision: made, verdicts: [], observed: observeCall(name, denied) }
  }

  /** Decides a call of `limit`. @throws TypeError for an invalid cost */
  async function spend(
    name: string,
    identity: LimitIdentity,
    options: CostOptions,
    decideOptions: DecideOptions,
  ): Promise<DecidedCall> {
    checkCosts(name, options, rulesOf(name))
    return await decide('decide', name, identity, rule => costOf(rule, options), decideOptions)
  }

  /** Counts a call by its last decision. */
  function count({ observed, decision }: DecidedCall): LimitDecision {
    const keptAlive = awaitsCounters ? background : detached
    stats?.count(observed, isStoreFailure(observed.cause), keptAlive, { identity: decision.identity })
    return decision
  }

  /** The result of a refund or reset. If the store has not made the change, `allowed` is false, whatever the fallback. */
  function changeResult(
    name: string,
    identity: LimitIdentity,
    result: ChangeResult | Pick<Degraded, 'cause'>,
  ): LimitDecision {
    const common = {
      limit: name,
      identity,
      delayMs: 0,
      retryAfterMs: 0,
      costs: {},
      ...releaseMethods(() => {}),
    }
    if ('cause' in result) return { ...common, allowed: false, at: 0, rules: [], degraded: result.cause }
    return { ...common, allowed: true, at: result.at, rules: result.verdicts.map(ruleResultOf) }
  }

  const pauses = createKnownPauses(elapsedMs)
  const host = String(variables?.HOSTNAME ?? '').slice(0, 200)
  const auditNow = clock.now && nowMs
  const writeEntry = processAuthor(config.auditKeepMs ?? DEFAULT_KEEP_MS, host, bareStore.isCluster, auditNow)
  const author: PauseAuthor = async (key, facts) => {
    // Listed first, so that it is found even if this process ends.
    if (bareStore.isCluster)
      await engine.change('refund', prepareListing(key, config.environment, nowMs()), background)
    return writeEntry(key, facts)
  }

  const lines = new Map<string, WaitingLine>()

  /** The calls of `acquire` that wait for an identity of a limit. */
  function lineOf(id: string): WaitingLine {
    const known = lines.get(id)
    if (known) return known
    const line = createWaitingLine({ elapsedMs, sleep: clock.sleep })
    lines.set(id, line)
    return line
  }

  /** Units given back of each decision, by rule name. */
  const refunded = new WeakMap<RefundableDecision, Map<string, number>>()

  /** @param guard absent: the calls need no permission */
  function methods(guard?: CallGuard, pauseAuthor = author): Limiter {
    const decideOptions = { background, awaitsSwitches: true, isFinal: true, guard }
    const reserving = anyReserves(allRules)
      ? parts.createReserving({
          ...{ rulesOf, bindKeys, showResult: changeResult },
          ruleSetOf: name => ruleSets.get(name)!,
          decide: async (name, identity, costOf) =>
            count(await decide('decide', name, identity, costOf, { ...decideOptions, isFinal: false })),
          settle: (reservation, actualOf) => engine.settle(reservation, actualOf, background, guard),
        })
      : undefined

    return {
      limit: async (name, identity = {}, options = {}) => {
        checkOptions('limit', options, ['cost', 'amounts'])
        return count(await spend(name, identity, options, decideOptions))
      },

      async peek(name, identity = {}) {
        const { decision, verdicts } = await decide('peek', name, identity, () => 1, decideOptions)
        // A queue reports its length; a peek has no place in it.
        return { ...decision, delayMs: decision.allowed ? milliseconds(queueWait(verdicts)) : 0 }
      },

      async acquire(name, identity = {}, acquireOptions = {}) {
        checkOptions('acquire', acquireOptions, ['cost', 'amounts', 'timeoutMs'])
        const { timeoutMs = Number.POSITIVE_INFINITY, ...options } = acquireOptions
        checkTimeout(timeoutMs)
        const rules = rulesOf(name)
        checkCosts(name, options, rules)
        const lineId = lineIdOf(bindKeys(name, identity))
        const line = lineOf(lineId)
        const deadline = elapsedMs() + timeoutMs
        const attempt = async (): Promise<DecidedCall> => {
          const left = deadline - elapsedMs()
          // A place in a queue cannot be given back, so a call whose turn would come too late does not join.
          if (Number.isFinite(left) && joinsQueue(rules, options)) {
            const { decision, verdicts, observed } = await decide(
              'peek',
              name,
              identity,
              () => 0,
              decideOptions,
            )
            const delayMs = milliseconds(queueWait(verdicts))
            if (delayMs > left) {
              const refused = { ...decision, allowed: false, retryAfterMs: delayMs }
              return { decision: refused, verdicts, observed: observeLateTurn(observed, verdicts, left) }
            }
          }
          return await spend(name, identity, options, decideOptions)
        }
        const place = line.join(deadline, JSON.stringify([options.cost ?? 1, options.amounts]))
        const costOfRule = (rule: Rule) => costOf(rule as LimitRule, options)
        let made: DecidedCall
        try {
          for (let attempts = 0; ; attempts++) {
            if (!(await place.turn())) {
              made = await attempt()
              break
            }
            made = await attempt()
            const pauseMs = pauseAfter(made, attempts)
            place.report(answerFor(made, costOfRule, pauseMs))
            const { allowed, pausedUntil, retryAfterMs } = made.decision
            const waitMs = pausedUntil === undefined ? pauseMs : retryAfterMs
            if (allowed || pauseMs < 0 || waitMs > deadline - elapsedMs()) break
          }
        } finally {
          place.leave()
          if (line.isEmpty()) lines.delete(lineId)
        }
        const decision = count(made)
        if (decision.allowed) await clock.sleep(decision.delayMs)
        return decision
      },

      async refund(decision, options = {}) {
        checkOptions('refund', options, ['cost'])
        const { cost } = options
        const { limit: name, identity, at, id } = decision
        if (cost !== undefined) checkCost(name, cost, rulesOf(name))
        if (isUndecided(decision)) return changeResult(name, identity, { cause: decision.degraded })
        const spentUnits = refundableUnits(decision, rulesOf(name))
        const refundedUnits = refunded.get(decision) ?? new Map<string, number>()
        refunded.set(decision, refundedUnits)
        const keyed = bindKeys(name, identity)
        const refunds = keyed.flatMap(({ rule, key }) => {
          const before = refundedUnits.get(rule.name) ?? 0
          const spent = (spentUnits.get(rule.name) ?? 0) - before
          if (spent <= 0) return []
          const units = Math.min(spent, cost === undefined ? spent : costFor(rule, cost, 0))
          refundedUnits.set(rule.name, before + units)
          return [{ ...bindRule(rule, key, units, nowMs()), units, spent, before }]
        })
        if (refunds.length === 0) return changeResult(name, identity, { at: 0, verdicts: [] })
        const once = id === undefined ? undefined : refundOnce(id, at, keyed)
        const rules = refunds.map(({ before, units, spent, ...bound }): RefundedRule => {
          const ofAll = once ? before : 0
          return { ...bound, units: ofAll + units, spent: ofAll + spent }
        })
        const refund = { ruleSet: ruleSets.get(name)!, rules, spentAt: at, once, now: clock.now?.() }
        // With an id, the store has given back nothing twice if the caller tries again.
        const tryAgain = () => {
          for (const { rule, units } of once ? refunds : [])
            refundedUnits.set(rule.name, refundedUnits.get(rule.name)! - units)
        }
        const changing = engine.change('refund', prepareRefund(refund), background, guard)
        const result = await changing.catch(error => {
          tryAgain()
          throw error
        })
        if ('cause' in result) tryAgain()
        return changeResult(name, identity, result)
      },

      async reserve(name, identity = {}, options = {}) {
        checkReserves(name, rulesOf(name))
        return await reserving!.reserve(name, identity, options)
      },

      async settle(decision, amounts) {
        checkReserves(decision.limit, rulesOf(decision.limit))
        return await reserving!.settle(decision, amounts)
      },

      async reset(name, identity = {}, options = {}) {
        checkOptions('reset', options, ['rule'])
        const { rule: only } = options
        if (only !== undefined) checkRule(name, only, rulesOf(name))
        const keyed = bindKeys(name, identity)
        const rules = keyed
          .filter(({ rule }) => only === undefined || rule.name === only)
          .map(({ rule, key }) => bindRule(rule, key, 0, nowMs()))
        return changeResult(
          name,
          identity,
          await engine.change('reset', parts.prepareReset({ rules, now: clock.now?.() }), background, guard),
        )
      },

      ...createPausing({
        ...{ rulesOf, known: pauses, nowMs, author: pauseAuthor, decideAt: clock.now },
        preparePause: pause => parts.preparePause(pause),
        change: call => engine.change('refund', call, background, guard),
      }),

      // Also sends settlements.
      async close() {
        await engine.stop()
        // What the engine settles last is counted, too.
        await stats?.flush()
      },
    }
  }

  return methods
}

/** A decision, and what is counted of it. */
interface DecidedCall extends Decided<LimitDecision> {
  observed: ObservedCall
}

/** If the platform refuses the task, for example because the request has ended, the task runs on as long as it can. */
function keptAliveBy(waitUntil: NonNullable<LimiterSettings['waitUntil']>): Background {
  return task => {
    const quiet = task.catch(() => {})
    try {
      waitUntil(quiet)
    } catch {
      // An exception would lose a decision whose units are already taken.
    }
  }
}

/** The store, each of whose trips is kept alive. */
function keepingAlive(store: Store, background: Background): Store {
  const kept = <T>(trip: Promise<T>) => {
    background(trip)
    return trip
  }
  return { ...store, run: calls => kept(store.run(calls)), ping: () => kept(store.ping()) }
}

/**
 * Narrows a decision to the kinds that a limit by name can have.
 *
 * @throws Error for the other kinds: a limit by name has no caller that could be unknown or blocked
 */
function narrowDecision(decision: Decision): Allowed | Denied | Unavailable {
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

/**
 * The cost of a rule.
 *
 * @param otherwise for rules that a cost by rule name does not name
 */
function costFor(rule: LimitRule, cost: NonNullable<LimitOptions['cost']>, otherwise: number): number {
  if (typeof cost === 'number') return rule.unit === REQUESTS ? cost : otherwise
  return Object.hasOwn(cost, rule.name) ? cost[rule.name]! : otherwise
}

/** Whether a call of this cost may have to wait in a queue. */
function joinsQueue(rules: readonly LimitRule[], options: CostOptions): boolean {
  return rules.some(rule => {
    const units = costOf(rule, options)
    return rule.counting.isQueue && units > 0 && units <= rule.quota.burst
  })
}

/** Both ways to release a decision: a call of `release`, and the end of an `await using` block. */
function releaseMethods(release: () => void): Pick<LimitDecision, 'release' | typeof Symbol.asyncDispose> {
  return {
    release,
    async [Symbol.asyncDispose]() {
      release()
    },
  }
}
