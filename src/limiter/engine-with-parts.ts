/** Puts an engine together for every set-up: the gateway and the edges for HTTP, and limits by name. */
import { elapsed } from '../clock.ts'
import type { Config } from '../config/compile.ts'
import type { Rule } from '../config/compile-rule.ts'
import type { ScriptsOf } from '../script/rule-set-shape.ts'
import type { Script, Store } from '../store/store.ts'
import { createAnswers } from './answers/answers.ts'
import { createKnownAnswers } from './answers/known.ts'
import type { createLeases } from './answers/leases.ts'
import type { createRefusalMemory } from './answers/refusals.ts'
import type { CreateEngine, Engine, EngineOptions } from './engine-shape.ts'
import type { EvaluateOnCluster } from './evaluate.ts'
import type { createGuesses } from './guesses.ts'
import { anyCountsInFlight, countsGuesses, countsLocally, takesLeases } from './needs.ts'
import type { createLocalLimiter } from './outage/local.ts'
import { createProbe } from './probe.ts'
import type { createHoldingsKeeper } from './units/keep-holdings.ts'

/** Parts that a Worker carries only if its rules need them. */
export interface EngineParts {
  scriptsOf: ScriptsOf
  /** With `store.cluster`. */
  evaluateOnCluster: EvaluateOnCluster
  /** Unless all rules are `closed` while the store fails. */
  createLocalLimiter: typeof createLocalLimiter
  /** Unless refusals are not remembered (`refusals: { rememberFor: 0 }`). */
  createRefusalMemory: typeof createRefusalMemory
  /** With rules on bad credentials, if the isolate checks the signatures of keys. Limits by name have no credentials. */
  createGuesses?: typeof createGuesses
  /** With `lease`. */
  createLeases: typeof createLeases
  /** With rules that count requests in flight. */
  createHoldingsKeeper: typeof createHoldingsKeeper
  syncScript: () => Script
  /** `createEngine`; with rules that reserve units, `createEngineWithReservations`. */
  createEngine: CreateEngine
}

/** The part of a config that an engine uses. Absent: no breaker, no bound, no memory of refusals, the whole limit. */
export type EngineConfig = Partial<
  Pick<Config, 'localShare' | 'breaker' | 'tripLimit' | 'refusals' | 'credentials' | 'storeDeadlineMs'>
>

/**
 * @param rules all rules that the engine may have to decide
 * @param parts at least those that the rules need
 */
export function createEngineWithParts(
  config: EngineConfig,
  rules: readonly Rule[],
  store: Store,
  parts: EngineParts,
  options: Omit<EngineOptions, 'probe' | 'onCluster' | 'local' | 'answers' | 'guesses' | 'keeper'>,
): Engine {
  const { clock, timer, log, board, decideAt: writeAt } = options
  const { refusals, localShare = 1 } = config
  const timing = { now: () => elapsed(clock), timer, writeAt }
  const known = createKnownAnswers(timing.now, board.current)
  const memory = refusals && parts.createRefusalMemory(known, refusals.rememberForMs)
  const leases = takesLeases(rules) ? parts.createLeases(known, { ...timing, log }) : undefined
  const answers = memory || leases ? createAnswers(known, memory, leases) : undefined
  const engineOptions: EngineOptions = {
    ...options,
    probe: createProbe(parts.scriptsOf),
    onCluster: parts.evaluateOnCluster,
    local: countsLocally(rules)
      ? parts.createLocalLimiter(localShare, () => clock.now(), writeAt)
      : undefined,
    answers,
    guesses: countsGuesses(config, rules) ? parts.createGuesses!(known, memory, options) : undefined,
    keeper: anyCountsInFlight(rules)
      ? parts.createHoldingsKeeper({ ...timing, log, answers, script: parts.syncScript })
      : undefined,
  }
  return parts.createEngine(config, store, engineOptions, rules)
}
