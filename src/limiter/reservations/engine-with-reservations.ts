/**
 * An engine whose requests can reserve units. A request that reserves is always decided by the store, or by the fallbacks: never from leased
 * units, nor by a remembered refusal.
 */
import { elapsed } from '../../clock.ts'
import type { Config } from '../../config/compile.ts'
import type { Rule } from '../../config/compile-rule.ts'
import type { Store } from '../../store/store.ts'
import { createEngine } from '../engine.ts'
import type { Engine, EngineOptions } from '../engine-shape.ts'
import { anyReserves } from '../needs.ts'
import { reserves } from './reservation.ts'
import { createSettlements, type Settlements } from './settlements.ts'

type EngineConfig = Partial<Pick<Config, 'breaker' | 'tripLimit' | 'storeDeadlineMs'>>

/** As `createEngine`. @param rules all rules that the engine may have to decide. It is a plain engine if none of them reserves */
export function createEngineWithReservations(
  config: EngineConfig,
  store: Store,
  options: EngineOptions,
  rules: readonly Rule[],
): Engine {
  if (!anyReserves(rules)) return createEngine(config, store, options)
  const { clock, timer, log, decideAt: writeAt, local, stats, switchName } = options
  const settlements = createSettlements({
    ...{ now: () => elapsed(clock), wallClock: clock.now, timer, log, writeAt },
    deadlineMs: config.storeDeadlineMs,
    onReport: local?.noteReport,
    count: stats && ((what, rule, by) => stats.counters.add(`${what} ${switchName(rule)}`, by)),
  })
  return createEngineWithSettlements(config, store, options, settlements)
}

/** The same for given settlements. @param options `keeper` keeps units in flight */
export function createEngineWithSettlements(
  config: EngineConfig,
  store: Store,
  options: EngineOptions,
  settlements: Settlements,
): Engine {
  const { keeper, answers } = options
  const engine = createEngine(config, store, {
    ...options,
    keeper: {
      ...{ firstRider: settlements.rider, rider: keeper?.rider },
      stakeOf(request) {
        const permits = keeper?.stakeOf(request)
        const { evaluation, failure, isFinal } = request
        return failure || isFinal || !reserves(evaluation.rules)
          ? permits
          : settlements.stakeOf(evaluation, permits)
      },
    },
    answers: answers && {
      ...answers,
      forRequest: request =>
        request.isFinal || !reserves(request.demand.rules) ? answers.forRequest(request) : undefined,
    },
  })
  const { trips } = engine
  return {
    ...engine,
    settle: (...args) => settlements.settleNow({ trips, answers }, ...args),
    // The units that settlements give back make room for what the engine then hands over.
    async stop() {
      await Promise.all([answers?.giveBack?.(trips.sendAlone), settlements.flush(trips.sendAlone)])
      await engine.stop()
    },
  }
}
