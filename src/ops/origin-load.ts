/**
 * How much room the origin has now, as an isolate sees it: requests of the fleet in flight, the adaptive limit, and the pressure of worker
 * utilization. Reading writes nothing.
 */
import type { Config } from '../config/compile.ts'
import { type Adaptive, shareOfAdaptive, type WorkerUtilization } from '../config/compile-shedding.ts'
import { bindRule } from '../limiter/bind.ts'
import { gatewayRuleSet } from '../script/compiled.ts'
import { decodeReport, peekInsteadOf, type SignalSnapshot } from '../script/signal.ts'
import { signalScript } from '../script/signal-text.ts'
import { createAdaptiveBoard } from '../shedding/adaptive-limit.ts'
import { refusedShare } from '../shedding/pressure.ts'
import type { SignalBoard, SignalBoardOptions } from '../shedding/signal-board.ts'
import { createUtilizationBoard, pressureSettings, utilizationIn } from '../shedding/worker-utilization.ts'
import { identityStateKey } from '../store/keys.ts'
import type { ScriptCall } from '../store/store.ts'
import type { AdminStore } from './admin-store.ts'
import { answerOf, peek } from './limits.ts'

/** Requests in flight of a level of the fleet. */
export interface LevelLoad {
  /** The rule of the level: `fleet-usage`, `fleet-usage-<class>`. */
  rule: string
  /** The classes that count under it. */
  classes: readonly string[]
  inFlight: number
  limit: number
}

export interface AdaptiveLoad {
  /** Requests in flight. */
  limit: number
  min: number
  max: number
  /** The latency now, and the usual one (ms). 0: not known yet. */
  latencyMs: number
  baselineMs: number
}

export interface UtilizationLoad {
  /** The mean utilization in the last second with a report, 0 to 1. Absent: none for ten seconds. */
  utilization?: number
  /** ms of full overload. */
  pressureMs: number
  /** From this pressure on, requests are refused. */
  refusesFromMs: number
  /** At this pressure, all classes but the most important one are refused. */
  fullMs: number
  /** The share of callers that is refused, 0 to 1. The least important class first. */
  classes: readonly { rule: string; refused: number }[]
}

/** Each part is absent if the config does not use it. */
export interface CurrentLoad {
  fleetUsage?: readonly LevelLoad[]
  adaptive?: AdaptiveLoad
  workerUtilization?: UtilizationLoad
}

/** @throws AdminError `store` */
export async function readLoad(store: AdminStore, config: Config): Promise<CurrentLoad> {
  const { workerUtilization } = config.shedding ?? {}
  const adaptive = config.adaptive && (await readAdaptive(store, config.adaptive))
  const fleetUsage = await readFleet(store, config, adaptive?.limit)
  return {
    ...(fleetUsage.length > 0 && { fleetUsage }),
    ...(adaptive && { adaptive }),
    ...(workerUtilization && { workerUtilization: await readUtilization(store, workerUtilization) }),
  }
}

/** @param adapted the adaptive limit */
async function readFleet(
  store: AdminStore,
  config: Config,
  adapted: number | undefined,
): Promise<LevelLoad[]> {
  const rules = config.rules.filter(({ match, mode }) => match.fromRank !== undefined && mode !== 'off')
  const key = identityStateKey(undefined, [])
  const bound = rules.map(rule => bindRule(rule, key, rule.cost, Date.now()))
  const standings = await peek(store, { ruleSet: gatewayRuleSet(config), rules: bound })
  const byRank = [...(config.shedding?.classes ?? [])].sort((a, b) => a.rank - b.rank)
  return standings.map(({ rule, remaining }, i) => {
    const { match, adaptiveShare } = rules[i]!
    return {
      rule: rule.name,
      classes: byRank.slice(match.fromRank).map(({ name }) => name),
      inFlight: rule.limit - remaining,
      limit: adapted === undefined ? rule.limit : shareOfAdaptive(adapted, adaptiveShare!),
    }
  })
}

async function readAdaptive(store: AdminStore, adaptive: Adaptive): Promise<AdaptiveLoad> {
  const { limit, latencyMs, baselineMs } = (await readSignal(store, createAdaptiveBoard(adaptive, OPTIONS)))
    .state
  const { min, max } = adaptive
  return { limit: Math.floor(limit), min, max, latencyMs, baselineMs }
}

/** @param options tests pass a clock */
export async function readUtilization(
  store: AdminStore,
  settings: WorkerUtilization,
  options = OPTIONS,
): Promise<UtilizationLoad> {
  const { state, snapshot } = await readSignal(store, createUtilizationBoard(settings, options))
  const { rules } = settings
  const numbers = pressureSettings(settings)
  const utilization = utilizationIn(snapshot, settings)
  return {
    ...(utilization !== undefined && { utilization }),
    pressureMs: state.pressureMs,
    refusesFromMs: numbers.quietMs,
    fullMs: numbers.fullMs,
    classes: rules.map(({ name }, place) => ({
      rule: name,
      refused: refusedShare(state.appliedMs, place, rules.length, numbers),
    })),
  }
}

const OPTIONS: Pick<SignalBoardOptions<never>, 'now' | 'script' | 'reportAt'> = {
  now: Date.now,
  script: signalScript,
}

/** Reads the state as an isolate does that has measured nothing, but writes nothing. */
async function readSignal<State>(
  store: AdminStore,
  board: SignalBoard<State>,
): Promise<{ state: State; snapshot: SignalSnapshot }> {
  const report = board.startReport()
  const decode = (reply: unknown) => {
    report.done([reply])
    return decodeReport(reply, board.sums)
  }
  const snapshot = await answerOf(store, { call: peekInsteadOf(report.calls[0] as ScriptCall), decode })
  return { state: board.state(), snapshot }
}
