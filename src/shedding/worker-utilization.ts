/**
 * The shedder by worker utilization in one isolate: what it tells the fleet, and what it makes of the pressure that all isolates
 * share. A request that is shed costs no trip to the store.
 */
import type { ShedRule, WorkerUtilization } from '../config/compile-shedding.ts'
import type { Controller } from './controller.ts'
import {
  fullMsWithin,
  isShed,
  type Pressure,
  type PressureSettings,
  pressureController,
  shedShares,
  utilization,
  waitOf,
} from './pressure.ts'
import {
  createSignalBoard,
  type SignalBoard,
  type SignalBoardOptions,
  type SignalReporter,
} from './signal-board.ts'
import { UTILIZATION_SIGNAL } from './signal-name.ts'

/** What the shedder says about one request. */
export interface ShedVerdict {
  rule: ShedRule
  /** A shadow never refuses. */
  mode: 'enforce' | 'shadow'
  allowed: boolean
  /** µs until the caller is admitted, if from now on the utilization is low; 0 if it is allowed. */
  retryAfter: number
}

export interface WorkerUtilizationShedder {
  /**
   * @param rank of the traffic class; the first is never shed
   * @param callerKey the same for all requests of a caller, which are all on one side
   * @param modeOf the mode of a rule for this caller, under the live switches
   */
  judge(
    rank: number,
    callerKey: string,
    modeOf: (rule: ShedRule) => ShedRule['mode'],
  ): ShedVerdict | undefined
  /**
   * Takes the signal out of a response.
   * @param counts whether it is of the origin now
   */
  observeReply(headers: Headers, counts: boolean): void
  /** Requests in flight ÷ capacity. */
  observeInFlight(share: number): void
}

/** Of a window (ms). */
const WINDOW_MS = 1000

/** The signal in thousandths and the number of samples: of the header, and of what is in flight. Behind them comes the mean of the pushes. */
const SUMS = 4

/** One for an isolate. */
export function createWorkerUtilization(
  settings: WorkerUtilization,
  surroundings: Pick<SignalBoardOptions<never>, 'now' | 'script' | 'reportAt'>,
): { shedder: WorkerUtilizationShedder; board: SignalReporter } {
  const board = createSignalBoard({
    ...{ name: UTILIZATION_SIGNAL, windowMs: WINDOW_MS, sums: SUMS },
    controller: workerUtilizationController(settings),
    ...(settings.pushes && { fold: (sums, { mean }) => [...sums, mean, 1] }),
    ...surroundings,
  })
  return { shedder: createShedder(settings, board), board }
}

function pressureSettings({ high, low, afterMs, withinMs }: WorkerUtilization): PressureSettings {
  return { high, low, quietMs: afterMs, fullMs: fullMsWithin(withinMs, afterMs) }
}

/** Moves the pressure by the highest mean of those that there are. */
export function workerUtilizationController(settings: WorkerUtilization): Controller<Pressure> {
  const controller = pressureController(pressureSettings(settings))
  return {
    ...controller,
    next(state, { sums, ms }) {
      const means = [0, 2, 4].flatMap(at => utilization({ sums: sums.slice(at, at + 2), ms }) ?? [])
      const highest = means.length > 0 ? [Math.max(...means) * 1000, 1] : []
      return controller.next(state, { sums: highest, ms })
    },
  }
}

/** @param board the pressure that all isolates share, as far as this one knows it */
export function createShedder(
  settings: WorkerUtilization,
  board: Pick<SignalBoard<Pressure>, 'state' | 'add'>,
): WorkerUtilizationShedder {
  const { rules, header, isInFlight } = settings
  const numbers = pressureSettings(settings)
  const byRank = new Map(rules.map((rule, i) => [rule.rank, { rule, place: i }]))

  return {
    judge(rank, callerKey, modeOf) {
      const found = byRank.get(rank)
      const mode = found && modeOf(found.rule)
      if (!found || mode === 'off' || mode === undefined) return undefined
      const pressure = board.state()
      const share = shedShares(pressure.appliedMs, rules.length, numbers)[found.place]!
      const isRefused = isShed(callerKey, pressure.episode, share)
      const place = { classPlace: found.place, classes: rules.length }
      const retryAfter = isRefused ? Math.max(1, waitOf(pressure, callerKey, place, numbers)) * 1000 : 0
      return { rule: found.rule, mode, allowed: !isRefused, retryAfter }
    },

    observeReply(headers, counts) {
      if (header === undefined) return
      const text = headers.get(header)
      if (text === null) return
      headers.delete(header)
      const value = shareIn(text)
      if (counts && value !== undefined) board.add([value * 1000, 1, 0, 0])
    },

    observeInFlight(share) {
      if (isInFlight) board.add([0, 0, Math.min(Math.max(0, share), 1) * 1000, 1])
    },
  }
}

/** `0.83`; undefined for what is not a number from 0 to 1. */
function shareIn(text: string): number | undefined {
  if (!/^(?:0|1|0?\.\d{1,9}|1\.0{1,9})$/.test(text.trim())) return undefined
  return Number(text)
}
