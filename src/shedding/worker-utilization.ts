/**
 * The worker utilization shedder in one isolate: reports its measurements to the fleet, and refuses requests by the
 * pressure that all isolates share. A refused request makes no trip to the store.
 */

import { isShared, type ShedRule, type WorkerUtilization } from '../config/compile-shedding.ts'
import type { PushedMean, SignalSnapshot } from '../script/signal.ts'
import type { Rider } from '../trips/rider.ts'
import {
  estimateWaitMs,
  highestMean,
  type Pressure,
  type PressureSettings,
  placeOf,
  pressureController,
  toleratedMs,
} from './pressure.ts'
import { type BoardOptions, createSignalBoard } from './signal-board.ts'
import { UTILIZATION_SIGNAL } from './signal-name.ts'

/** The verdict of the shedder on one request. */
export interface ShedVerdict {
  rule: ShedRule
  /** A shadow rule never refuses. */
  mode: 'enforce' | 'shadow'
  allowed: boolean
  /** µs until the caller is admitted, if utilization is 0 from now on; 0 if it is allowed. */
  retryAfter: number
}

export type WorkerUtilizationShedder = ReturnType<typeof createUtilizationShedderAndBoard>['shedder']

/**
 * Sums of a window: the signal in thousandths and the number of samples, first of the header, then of requests in
 * flight. The mean of the pushes is appended.
 */
const SUMS = 4

/** After this time (s), a window says nothing about the present. */
const OLD_AFTER_S = 10

/** The numbers of the pressure. */
export const pressureSettings = ({
  high,
  low,
  pace,
  afterMs,
  withinMs,
}: WorkerUtilization): PressureSettings => ({
  ...{ high, low, pace, quietMs: afterMs, fullMs: afterMs + withinMs },
})

/** Creates the board of the signal, whose state is the pressure. */
export const createUtilizationBoard = (settings: WorkerUtilization, options: BoardOptions) =>
  createSignalBoard({
    ...{ name: UTILIZATION_SIGNAL, sums: SUMS, controller: pressureController(pressureSettings(settings)) },
    ...(settings.pushes && { addPushes: withPushes }),
    ...options,
  })

const withPushes = (sums: readonly number[], { mean }: PushedMean) => [...sums, mean, 1]

/** The highest mean of the signals in the last window, 0 to 1. Undefined: without a report, or if the window is old. */
export function utilizationIn({ at, closed }: SignalSnapshot, { pushes }: WorkerUtilization) {
  if (!closed || at / 1e6 - closed.window > OLD_AFTER_S) return undefined
  const { sums, pushed } = closed
  return highestMean({ sums: pushes && pushed ? withPushes(sums, pushed) : sums, ms: 1000 })
}

/**
 * Creates the shedder of an isolate, and the board that reports its measurements: absent without a signal that isolates share.
 * @param ofProcess the pressure of this process
 */
export function createUtilizationShedderAndBoard(
  settings: WorkerUtilization,
  options: BoardOptions,
  ofProcess?: () => Pressure,
) {
  const { rules, header, isInFlight } = settings
  const numbers = pressureSettings(settings)
  const board = createUtilizationBoard(settings, options)
  const ruleByRank = new Map(rules.map((rule, i) => [rule.rank, { rule, place: i }]))

  /** The higher pressure counts. */
  function state(): Pressure {
    const [shared, own] = [board.state(), ofProcess?.()]
    return own && own.appliedMs > shared.appliedMs ? own : shared
  }

  const shedder = {
    /**
     * Decides a request.
     * @param rank of the traffic class; the first is never shed
     * @param callerKey the same for all requests of a caller, so that all get the same verdict
     * @param modeOf returns the mode of a rule for this caller, under the live switches
     * @returns undefined if no rule applies
     */
    evaluate(
      rank: number,
      callerKey: string,
      modeOf: (rule: ShedRule) => ShedRule['mode'],
    ): ShedVerdict | undefined {
      // Before the rank: requests that are never shed also measure this process.
      const { pressureMs, appliedMs, episode } = state()
      const found = ruleByRank.get(rank)
      const mode = found && modeOf(found.rule)
      if (!found || mode === 'off' || mode === undefined) return undefined
      const place = found.place + placeOf(callerKey, episode)
      const tolerated = toleratedMs(place, rules.length, numbers)
      const isRefused = appliedMs > tolerated
      const retryAfter = isRefused ? Math.max(1, estimateWaitMs(pressureMs, tolerated, numbers)) * 1000 : 0
      return { rule: found.rule, mode, allowed: !isRefused, retryAfter }
    },

    /** Reads the signal in a response of the origin, and removes it. @param counts whether it describes the origin now */
    observeReply(headers: Headers, counts: boolean): void {
      if (header === undefined) return
      const text = headers.get(header)
      if (text === null) return
      headers.delete(header)
      const value = parseShare(text)
      if (counts && value !== undefined) board.add([value * 1000, 1, 0, 0])
    },

    /** Adds a measurement: requests in flight ÷ capacity. */
    observeInFlight(share: number): void {
      if (isInFlight) board.add([0, 0, Math.min(Math.max(0, share), 1) * 1000, 1])
    },
  }
  return { shedder, ...(isShared(settings) && { board: board as Rider }) }
}

/** Reads a share like `0.83`. Returns undefined unless it is a number from 0 to 1. */
function parseShare(text: string): number | undefined {
  if (!/^(?:0|1|0?\.\d{1,9}|1\.0{1,9})$/.test(text.trim())) return undefined
  return Number(text)
}
