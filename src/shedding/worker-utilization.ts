/**
 * The worker utilization shedder in one isolate: reports its measurements to the fleet, and refuses requests by the
 * pressure that all isolates share. A refused request makes no trip to the store.
 */

import type { ShedRule, WorkerUtilization } from '../config/compile-shedding.ts'
import type { Rider } from '../trips/rider.ts'
import type { Controller } from './controller.ts'
import {
  estimateWaitMs,
  fullMsWithin,
  isShed,
  meanUtilization,
  type Pressure,
  type PressureSettings,
  pressureController,
  shedShares,
} from './pressure.ts'
import { createSignalBoard, type SignalBoardOptions } from './signal-board.ts'
import { UTILIZATION_SIGNAL } from './signal-name.ts'

/** The verdict of the shedder on one request. */
export interface ShedVerdict {
  rule: ShedRule
  /** A shadow rule never refuses. */
  mode: 'enforce' | 'shadow'
  allowed: boolean
  /** µs until the caller is admitted, if utilization is low from now on; 0 if it is allowed. */
  retryAfter: number
}

export type WorkerUtilizationShedder = ReturnType<typeof createUtilizationShedderAndBoard>['shedder']

/**
 * Sums of a window: the signal in thousandths and the number of samples, first of the header, then of requests in
 * flight. The mean of the pushes is appended.
 */
const SUMS = 4

/** Creates the shedder of an isolate, and the board that reports its measurements. */
export function createUtilizationShedderAndBoard(
  settings: WorkerUtilization,
  boardOptions: Pick<SignalBoardOptions<never>, 'now' | 'script' | 'reportAt'>,
) {
  const board = createSignalBoard({
    ...{ name: UTILIZATION_SIGNAL, sums: SUMS },
    controller: workerUtilizationController(settings),
    ...(settings.pushes && { addPushes: (sums, { mean }) => [...sums, mean, 1] }),
    ...boardOptions,
  })
  const numbers = pressureSettings(settings)
  const { rules, header, isInFlight } = settings
  const ruleByRank = new Map(rules.map((rule, i) => [rule.rank, { rule, place: i }]))

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
      const found = ruleByRank.get(rank)
      const mode = found && modeOf(found.rule)
      if (!found || mode === 'off' || mode === undefined) return undefined
      const pressure = board.state()
      const share = shedShares(pressure.appliedMs, rules.length, numbers)[found.place]!
      const isRefused = isShed(callerKey, pressure.episode, share)
      const place = { classPlace: found.place, classes: rules.length }
      const retryAfter = isRefused
        ? Math.max(1, estimateWaitMs(pressure, callerKey, place, numbers)) * 1000
        : 0
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
  return { shedder, board: board as Rider }
}

function pressureSettings({ high, low, afterMs, withinMs }: WorkerUtilization): PressureSettings {
  return { high, low, quietMs: afterMs, fullMs: fullMsWithin(withinMs, afterMs) }
}

/** Moves the pressure by the highest of the available means. */
export function workerUtilizationController(settings: WorkerUtilization): Controller<Pressure> {
  const controller = pressureController(pressureSettings(settings))
  return {
    ...controller,
    next(state, { sums, ms }) {
      const means = [0, 2, 4].flatMap(at => meanUtilization({ sums: sums.slice(at, at + 2), ms }) ?? [])
      const highest = means.length > 0 ? [Math.max(...means) * 1000, 1] : []
      return controller.next(state, { sums: highest, ms })
    },
  }
}

/** Reads a share like `0.83`. Returns undefined unless it is a number from 0 to 1. */
function parseShare(text: string): number | undefined {
  if (!/^(?:0|1|0?\.\d{1,9}|1\.0{1,9})$/.test(text.trim())) return undefined
  return Number(text)
}
