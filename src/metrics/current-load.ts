/**
 * How much room the origin has now, as an isolate sees it: requests of the fleet in flight, the adaptive limit, and the pressure of worker
 * utilization. Each part is a call to the store that writes nothing.
 */
import type { Config } from '../config/compile.ts'
import { type Adaptive, shareOfAdaptive, type WorkerUtilization } from '../config/compile-shedding.ts'
import { bindRule } from '../limiter/bind.ts'
import { type PreparedCall, prepareDecide } from '../limiter/prepared-call.ts'
import type { RuleSet } from '../script/rule-set-shape.ts'
import { decodeReport, peekInsteadOf, type SignalSnapshot } from '../script/signal.ts'
import { createAdaptiveBoard } from '../shedding/adaptive-limit.ts'
import { refusedShare } from '../shedding/pressure.ts'
import type { BoardOptions, SignalBoard } from '../shedding/signal-board.ts'
import { createUtilizationBoard, pressureSettings, utilizationIn } from '../shedding/worker-utilization.ts'
import { identityStateKey } from '../store/keys.ts'
import type { ScriptCall } from '../store/store.ts'

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

/**
 * The requests in flight of each level of the fleet.
 * @param now ms since the epoch
 * @returns undefined if the config has no fleet usage. The result needs the adaptive limit, if there is one
 */
export function prepareFleet(
  config: Pick<Config, 'rules' | 'shedding'>,
  ruleSet: RuleSet,
  now: number,
): PreparedCall<(adapted: number | undefined) => LevelLoad[]> | undefined {
  const rules = config.rules.filter(({ match, mode }) => match.fromRank !== undefined && mode !== 'off')
  if (rules.length === 0) return undefined
  const key = identityStateKey(undefined, [])
  const bound = rules.map(rule => bindRule(rule, key, rule.cost, now))
  const { call, decode } = prepareDecide({ ruleSet, rules: bound }, 'peek')
  const byRank = [...(config.shedding?.classes ?? [])].sort((a, b) => a.rank - b.rank)
  return {
    call,
    decode(reply) {
      const { verdicts } = decode(reply)
      return adapted =>
        verdicts.map(({ rule, remaining }, i) => {
          const { match, adaptiveShare } = rules[i]!
          return {
            rule: rule.name,
            classes: byRank.slice(match.fromRank).map(({ name }) => name),
            inFlight: rule.limit - remaining,
            limit: adapted === undefined ? rule.limit : shareOfAdaptive(adapted, adaptiveShare!),
          }
        })
    },
  }
}

export function prepareAdaptive(adaptive: Adaptive, options: BoardOptions): PreparedCall<AdaptiveLoad> {
  const { min, max } = adaptive
  return readSignal(createAdaptiveBoard(adaptive, options), ({ limit, latencyMs, baselineMs }) => ({
    ...{ limit: Math.floor(limit), min, max, latencyMs, baselineMs },
  }))
}

export function prepareUtilization(
  settings: WorkerUtilization,
  options: BoardOptions,
): PreparedCall<UtilizationLoad> {
  const { rules } = settings
  const numbers = pressureSettings(settings)
  return readSignal(createUtilizationBoard(settings, options), (state, snapshot) => {
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
  })
}

/** Reads a signal as an isolate does that has measured nothing. */
function readSignal<State, Load>(
  board: SignalBoard<State>,
  toLoad: (state: State, snapshot: SignalSnapshot) => Load,
): PreparedCall<Load> {
  const report = board.startReport()
  return {
    call: peekInsteadOf(report.calls[0] as ScriptCall),
    decode(reply) {
      report.done([reply])
      return toLoad(board.state(), decodeReport(reply, board.sums))
    },
  }
}
