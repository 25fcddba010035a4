/**
 * Limits by name, for work that does not pass through the gateway, such as calls to third parties and background
 * tasks. They use the same engine as the gateway: all rules of a limit are decided together in one trip, all or
 * nothing, by the store's clock.
 */

import { type Background, detached } from '../../background.ts'
import { SYSTEM_CLOCK, SYSTEM_TIMER } from '../../clock.ts'
import { DEFAULT_KEEP_MS } from '../../config/audit-keep.ts'
import type { LimitRule } from '../../config/compile.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import type { DemandedRule } from '../../limiter/bind.ts'
import { bindRule } from '../../limiter/bind.ts'
import type { CallGuard } from '../../limiter/call-guard.ts'
import type { Decision, Denied } from '../../limiter/decision.ts'
import type { DecideOptions } from '../../limiter/engine-shape.ts'
import { createEngineWithParts } from '../../limiter/engine-with-parts.ts'
import type { Degraded } from '../../limiter/evaluate.ts'
import { anyReserves } from '../../limiter/needs.ts'
import { logStoreChange } from '../../limiter/outage/log-store-change.ts'
import { prepareRefund } from '../../limiter/prepared-call.ts'
import { newReservationId } from '../../limiter/reservations/reservation.ts'
import { createLog } from '../../log.ts'
import { createMetrics } from '../../metrics/create-metrics.ts'
import { withMetrics } from '../../metrics/metrics-reader.ts'
import { isStoreFailure } from '../../metrics/observation.ts'
import { streamFor } from '../../script/pause.ts'
import type { ChangeResult } from '../../script/refund.ts'
import { createLimitRuleSet } from '../../script/rule-set.ts'
import { AUDIT_KEY, limitRuleKey } from '../../store/keys.ts'
import type { Store } from '../../store/store.ts'
import { NO_BOARD } from '../../switches/live.ts'
import { isCloudflare } from '../platform.ts'
import { milliseconds, ruleResultOf } from '../rule-result.ts'
import { createAcquiring } from './acquire.ts'
import {
  type BindEarlier,
  type CallNumbers,
  type CostOptions,
  checkCosts,
  checkIdentity,
  checkOptions,
  checkReserves,
  checkRule,
  checkSettled,
  costOf,
  type LimitIdentity,
  type LimitOptions,
  refuseNumbers,
  rulesOfEarlier,
} from './arguments.ts'
import { type DecidedCall, narrowDecision, releaseMethods, retryAfterOf } from './decided-call.ts'
import { createGivenUpPlaces, placesOf } from './given-up-places.ts'
import type { BeginHold, LimiterInternals } from './held.ts'
import { keepingAlive, keptAliveBy } from './keep-alive.ts'
import { createKnownPauses, type KnownPause } from './known-pauses.ts'
import type { LimitDecision, Limiter } from './limiter-shape.ts'
import type { GiveNumbers } from './numbers.ts'
import { observeCall } from './observe-call.ts'
import type { LimiterParts } from './parts.ts'
import { createPausing, type PauseAuthor, prepareListing, processEntry } from './pausing.ts'
import { recordsOf } from './records-of.ts'
import { createRefunding } from './refund.ts'
import { type LimiterConfig, type LimiterSettings, REAL_TIME } from './settings.ts'
import { reservedUnits } from './spent-units.ts'
import { queueWait, waitIn } from './waits.ts'

export type { AcquireOptions, LimitDecision, Limiter, RefundableDecision } from './limiter-shape.ts'
export type { LimiterClock, LimiterConfig, LimiterSettings } from './settings.ts'
export type { LimitIdentity, LimitOptions }

interface CallOptions extends DecideOptions {
  /** Begins an attempt whose id holds its units in flight. Absent: this process holds them. */
  hold?: BeginHold
  /** The numbers that the call gives. */
  numbers?: CallNumbers | undefined
  /** The longest wait in a queue that the call accepts (ms). Absent: any. */
  longestMs?: number
}

/** @param parts those of rules with `numbers: 'call'`, if there are any */
export function giveNumbersOf(
  rules: readonly LimitRule[],
  parts: Pick<LimiterParts, 'createGiveNumbers' | 'ruleNumbers' | 'mistakesOfSettlement'>,
): GiveNumbers {
  if (rules.some(({ atCall }) => atCall)) return parts.createGiveNumbers(parts)
  return (name, given, numbers, isEarlier) =>
    numbers === undefined || isEarlier ? given : refuseNumbers(name)
}

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
export type GuardableLimiter<L extends Limiter = Limiter> = (guard?: CallGuard, author?: PauseAuthor) => L

/**
 * Creates a limiter as `createLimiterWithParts`, for calls with and without a guard.
 * @param extend creates further methods
 */
export function createGuardableLimiter<Further extends object = object>(
  config: LimiterConfig,
  bareStore: Store,
  parts: LimiterParts,
  settings: LimiterSettings = {},
  extend?: (internals: LimiterInternals) => Further,
): GuardableLimiter<Limiter & Further> {
  const { board = NO_BOARD, clock = REAL_TIME, waitUntil, awaitsCounters = false, variables } = settings
  const ruleSets = new Map(
    [...config.limits].map(([name, rules]) => [name, createLimitRuleSet(rules, parts.scriptsOf)]),
  )
  const allRules = [...config.limits.values()].flat()
  const keysOf = (keyed: readonly { key: string }[]) => [...new Set(keyed.map(({ key }) => key))]
  const nowMs = () => (clock.now ? clock.now() / 1e3 : SYSTEM_CLOCK.now())
  const elapsedMs = () => (clock.now ? clock.now() / 1e3 : performance.now())
  const limitOf = new Map(
    [...config.limits].flatMap(([name, rules]) => rules.map(rule => [rule, name] as const)),
  )
  const timer = clock.timer ?? SYSTEM_TIMER
  const { log = createLog(config.log?.perSecond, nowMs) } = settings
  const background: Background = waitUntil ? keptAliveBy(waitUntil) : detached
  const topCallers = config.stats?.topCallers && parts.createTopCallers(config.stats.topCallers)
  const measurements = createMetrics(config, parts, log, variables, nowMs)
  const store = measurements?.watch(bareStore) ?? bareStore
  const stats =
    config.stats &&
    parts.createStatsRecorder(keepingAlive(store, background), {
      ...config.stats,
      ...{ timer, now: nowMs, topCallers, measurements },
    })
  const measured = withMetrics(
    () =>
      measurements &&
      stats &&
      parts.createMetricsReader?.(config, { store, stats, measurements }, {}, { now: nowMs }),
  )
  /** Since the start, or since the store was back. */
  let isOutageLogged = false
  const engine = createEngineWithParts(config, allRules, store, parts, {
    ...{ clock: { now: nowMs, elapsed: elapsedMs }, decideAt: clock.now, board },
    ...{ timer, log },
    onStoreChange(change) {
      measurements?.noteStoreChange(change.isOpen)
      logStoreChange(log, change)
      isOutageLogged = change.isOpen
    },
    switchName: rule => `${limitOf.get((rule.ofCall?.base ?? rule) as LimitRule)}/${rule.name}`,
    credentials: 'refuse',
    stats,
  })
  function rulesOf(name: string): readonly LimitRule[] {
    const rules = config.limits.get(name)
    if (rules) return rules
    const names = [...config.limits.keys()].join(', ') || 'none'
    throw new TypeError(`The config has no limit '${name}'. Limits: ${names}.`)
  }

  const giveNumbers = giveNumbersOf(allRules, parts)

  /**
   * The rules of a limit, with the numbers of a call.
   *
   * @param isEarlier the numbers are those of an earlier decision
   * @throws TypeError for an unknown limit, and for numbers that it cannot have
   */
  function rulesWith(name: string, numbers?: CallNumbers, isEarlier = false, rules = rulesOf(name)) {
    return giveNumbers(name, rules, numbers, isEarlier)
  }

  /**
   * Each rule of a limit with the store key of the identity.
   *
   * @param names only those that an earlier decision can have counted under (`rulesOfEarlier`)
   * @param rules with the numbers of the call
   * @throws TypeError for a part of an identity
   */
  function bindKeys(
    name: string,
    identity: LimitIdentity,
    rules: readonly LimitRule[],
    names?: object,
  ): { rule: LimitRule; key: string }[] {
    if (!names) checkIdentity(name, identity, rules)
    const bound = names ? rulesOfEarlier(name, identity, rules, names) : rules
    return bound.map(rule => ({ rule, key: limitRuleKey(name, rule, identity) }))
  }

  const bindEarlier: BindEarlier = (name, identity, names, numbers) =>
    bindKeys(name, identity, rulesWith(name, numbers, true), names)

  async function decide(
    verb: 'decide' | 'peek',
    name: string,
    identity: LimitIdentity,
    costOf: (rule: LimitRule) => number,
    { hold, numbers, longestMs = Number.POSITIVE_INFINITY, ...decideOptions }: CallOptions,
  ): Promise<DecidedCall> {
    const keyed = bindKeys(name, identity, rulesWith(name, numbers))
    const attempt = hold?.(name, identity)
    const rules = keyed.map((each): DemandedRule => {
      const cost = costOf(each.rule)
      return {
        ...each,
        cost,
        holding: attempt?.holdingOf(each.rule, cost),
        wait: waitIn(each.rule, longestMs),
      }
    })
    // Leased places and remembered refusals of a queue say nothing about how long this call can wait.
    const hasWait = rules.some(({ wait }) => wait !== undefined)
    const pause = pauses.isEmpty() || board.current().kill ? undefined : pauses.find(keysOf(keyed))
    const mayAnswer = verb === 'decide' && (decideOptions.guard?.isFresh() ?? true)
    if (pause && mayAnswer && !pauses.shouldAsk(pause)) return refuse(name, identity, pause)
    // While a pause is not confirmed, the store would admit.
    const { decision, outcome, at, stake, awaitsEnding, finish } = await engine[
      pause && !pause.isConfirmed ? 'peek' : verb
    ](
      { ruleSet: ruleSets.get(name)!, rules },
      { ...decideOptions, asksStore: pause !== undefined || hasWait },
    )
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
    // A mistake, such as a wrong password, is in the log after the first call, and not only when the breaker opens.
    const { cause, detail } = known.degraded ?? {}
    if (isStoreFailure(cause) && !isOutageLogged)
      isOutageLogged = log('warn', 'degraded', { limit: name, cause, detail })
    const held = attempt?.end(outcome, known)
    // A refusal that was switched off while it was made has spent nothing, and gets nothing back.
    const isCharged = outcome === undefined || (outcome.status === 'admitted') === (known.kind === 'allowed')
    const verdicts = known.kind === 'unavailable' ? [] : known.verdicts
    // A rule that is off does not take part.
    const decided = outcome?.verdicts ?? verdicts
    const tookPart = new Set(decided.map(({ rule }) => rule.name))
    const { reservation } = stake ?? {}
    const charged = isCharged && verb === 'decide' ? rules.filter(({ rule }) => tookPart.has(rule.name)) : []
    let isHeld = awaitsEnding && known.kind === 'allowed' && rules.some(({ rule }) => countsInFlight(rule))
    const made: LimitDecision = {
      ...{ limit: name, identity, at },
      allowed: known.kind === 'allowed',
      delayMs: known.kind === 'allowed' ? milliseconds(known.delay) : 0,
      retryAfterMs: milliseconds(retryAfterOf(known)),
      ...(known.kind === 'denied' &&
        known.pausedUntil !== undefined && { pausedUntil: milliseconds(known.pausedUntil) }),
      rules: verdicts.map(ruleResultOf),
      costs: Object.fromEntries(charged.map(({ rule, cost }) => [rule.name, cost])),
      ...(at > 0 &&
        charged.length > 0 && {
          id: reservation?.id ?? attempt?.id ?? newReservationId(),
          records: recordsOf(
            charged.map(({ rule }) => rule),
            decided,
          ),
        }),
      ...held,
      ...(numbers && { numbers }),
      ...(reservation && { reserved: reservedUnits(reservation) }),
      ...(known.degraded && { degraded: known.degraded.cause }),
      ...releaseMethods(() => {
        const isFollowed =
          isHeld &&
          acquiring.free(
            keyed.map(({ key }) => key),
            numbers,
          )
        isHeld = false
        finish('complete', 'unsettled', isFollowed)
      }),
    }
    const release = () => {
      made.release()
      attempt?.cancel()
    }
    return { decision: made, verdicts, observed: observeCall(name, known), release }
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
    return { decision: made, verdicts: [], observed: observeCall(name, denied), release() {} }
  }

  /** Decides a call of `limit`. @throws TypeError for an invalid cost */
  async function spend(
    name: string,
    identity: LimitIdentity,
    options: CostOptions,
    decideOptions: CallOptions,
  ): Promise<DecidedCall> {
    checkCosts(name, options, rulesOf(name))
    const { numbers } = options
    return await decide('decide', name, identity, rule => costOf(rule, options), {
      ...decideOptions,
      numbers,
    })
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
  const { auditKeepMs = DEFAULT_KEEP_MS, environment } = config
  const host = String(variables?.HOSTNAME ?? '').slice(0, 200)
  const author: PauseAuthor = async (key, facts) => {
    const stream = streamFor(bareStore, key)
    // Listed first, so that it is found even if this process ends.
    if (stream !== AUDIT_KEY)
      await engine.change('refund', prepareListing(stream, environment, nowMs()), background)
    return { stream, values: processEntry(facts, host, auditKeepMs, clock.now && nowMs()) }
  }

  const refunding = createRefunding({
    ...{ rulesOf, rulesWith, bindEarlier, showResult: changeResult, nowMs, decideAt: clock.now },
    ruleSetOf: name => ruleSets.get(name)!,
    change: (call, guard) => engine.change('refund', call, background, guard),
  })
  const acquiring = createAcquiring<CallOptions>({
    ...{ clock: { elapsedMs, sleep: clock.sleep }, background, rulesWith, bindKeys, count },
    wakes: !isCloudflare(),
    spend: (name, identity, cost, options, longestMs) =>
      spend(name, identity, cost, { ...options, longestMs }),
    async giveBack({ decision, verdicts, release }) {
      release()
      const { limit, identity, costs, numbers } = decision
      const places = placesOf(decision, verdicts, bindEarlier(limit, identity, costs, numbers))
      // Without the guard of its request: the token may end, and the units would stay spent.
      await Promise.all([
        refunding().refund(decision),
        ...places.map(({ queue, place }) => giveUpPlace(queue, place)),
      ])
    },
  })
  const giveUpPlace = createGivenUpPlaces(async ({ rule, key, written }, { at, wait, units }) => {
    const bound = {
      ...bindRule(rule, key, units, nowMs()),
      ...{ units, spent: units, wait, ...(written && { written }) },
    }
    const ruleSet = ruleSets.get(limitOf.get((rule.ofCall?.base ?? rule) as LimitRule)!)!
    const refund = { ruleSet, rules: [bound], spentAt: at, now: clock.now?.() }
    const result = await engine.change('refund', prepareRefund(refund), background)
    return 'cause' in result ? undefined : result
  })

  /** @param guard absent: the calls need no permission */
  function methods(guard?: CallGuard, pauseAuthor = author): Limiter & Further {
    const decideOptions = { background, awaitsSwitches: true, isFinal: true, guard }
    const reserving = anyReserves(allRules)
      ? parts.createReserving({
          ...{ rulesOf, rulesWith, bindEarlier, showResult: changeResult },
          ruleSetOf: name => ruleSets.get(name)!,
          decide: async (name, identity, costOf, numbers) =>
            count(
              await decide('decide', name, identity, costOf, { ...decideOptions, numbers, isFinal: false }),
            ),
          settle: (reservation, actualOf) => engine.settle!(reservation, actualOf, background, guard),
        })
      : undefined

    const deciding = (callOptions: CallOptions): Pick<Limiter, 'limit' | 'acquire'> => ({
      limit: async (name, identity = {}, options = {}) => {
        checkOptions('limit', options, ['cost', 'amounts', 'numbers'])
        return count(await spend(name, identity, options, callOptions))
      },
      ...acquiring.methods(callOptions),
    })

    return {
      ...deciding(decideOptions),
      ...(extend?.({
        ...{ background, bindEarlier, decideAt: clock.now },
        change: call => engine.change('refund', call, background, guard),
        freed: keys => acquiring.free(keys),
        deciding: hold => deciding({ ...decideOptions, hold }),
      }) as Further),

      async peek(name, identity = {}, options = {}) {
        checkOptions('peek', options, ['numbers'])
        const { numbers } = options
        const { decision, verdicts } = await decide('peek', name, identity, () => 1, {
          ...decideOptions,
          numbers,
        })
        // A queue reports its length; a peek has no place in it.
        return { ...decision, delayMs: decision.allowed ? milliseconds(queueWait(verdicts)) : 0 }
      },

      ...refunding(guard),

      async reserve(name, identity = {}, options = {}) {
        checkReserves(name, rulesOf(name))
        return await reserving!.reserve(name, identity, options)
      },

      async settle(decision, amounts) {
        if (reserving) return await reserving.settle(decision, amounts)
        const { limit: name, identity, reserved } = decision
        checkSettled(name, amounts, rulesOf(name), reserved)
        return { ...changeResult(name, identity, { at: 0, verdicts: [] }), applied: false }
      },

      async reset(name, identity = {}, options = {}) {
        checkOptions('reset', options, ['rule', 'numbers'])
        const { rule: only, numbers } = options
        if (only !== undefined) checkRule(name, only, rulesOf(name))
        checkIdentity(name, identity, rulesOf(name))
        const chosen = rulesOf(name).filter(rule => only === undefined || rule.name === only)
        const rules = rulesWith(name, numbers, false, chosen).map(rule =>
          bindRule(rule, limitRuleKey(name, rule, identity), 0, nowMs()),
        )
        return changeResult(
          name,
          identity,
          await engine.change('reset', parts.prepareReset({ rules, now: clock.now?.() }), background, guard),
        )
      },

      ...createPausing({
        ...{ rulesOf, known: pauses, nowMs, author: pauseAuthor, decideAt: clock.now },
        longestMs: config.longestPauseMs,
        preparePause: pause => parts.preparePause(pause),
        change: call => engine.change('refund', call, background, guard),
      }),

      ...measured,

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
