/**
 * A signal of an origin in one isolate: its own measurements, and the state of a controller that all isolates share.
 * Once per window (a second), an isolate sends its sums with the calls of a decision, in the same HTTP request. The
 * reply has the sums of all isolates for the last closed window, and the latest state.
 *
 * An isolate that reads a window newer than the state computes the next state, uses it at once, and sends it with its
 * next report. Other isolates compute the same state from the same window. If one differs (because it missed a
 * window), the state that arrives first is kept, and all isolates follow it.
 */
import { GatewayError } from '../errors.ts'
import {
  decodeReport,
  encodeReport,
  isStateText,
  MAX_SUM,
  type PushedMean,
  type SignalSnapshot,
} from '../script/signal.ts'
import type { Script } from '../store/store.ts'
import type { Load, Rider } from '../trips/rider.ts'
import { isWithin } from '../trips/turn.ts'
import type { Controller } from './controller.ts'

/** Length of a window (ms). The measurements of all isolates within a second move the state once. */
const WINDOW_MS = 1000

/** After this many windows without a reply, an isolate moves the state by itself. */
const BY_ITSELF_AFTER = 3

/** After this many windows, measurements say nothing about the present. */
const OLD_AFTER = 10

/** After this many windows without a report, one is sent in a trip of its own. */
const OVERDUE_AFTER = 2

export interface SignalBoardOptions<State> {
  /** Letters, digits, - and _: a part of a key. */
  name: string
  /** The number of sums. */
  sums: number
  controller: Controller<State>
  /** The clock of this machine (ms) decides when to report. The clock of the store decides which window it is. */
  now(): number
  script(): Script
  /** Adds pushes of the origin's machines to the sums of a window. Absent: pushes are ignored. */
  addPushes?: ((sums: readonly number[], pushed: PushedMean) => readonly number[]) | undefined
  /** The time of reports (µs). Absent: the clock of the store, as always in production. */
  reportAt?: (() => number) | undefined
}

/** What a board needs of its isolate. */
export type BoardOptions = Pick<SignalBoardOptions<never>, 'now' | 'script' | 'reportAt'>

export type SignalBoard<State> = ReturnType<typeof createSignalBoard<State>>

/** Creates the board of one signal. Plain data, so it may outlive the requests that update it. */
export function createSignalBoard<State>(options: SignalBoardOptions<State>) {
  const { name, sums: count, controller, now, script, addPushes, reportAt } = options
  const zeros: readonly number[] = Array.from({ length: count }, () => 0)
  /** Sums since the last report, and when the first of them was added. */
  let unsentSums = [...zeros]
  let unsentSince: number | undefined
  /** Sums since the state last moved. */
  let sinceMove = [...zeros]

  /** The latest state that the isolate knows, and the window after which it holds; -1: unknown. */
  let state = controller.initial
  let window = -1
  /** The window of the latest state in the store. */
  let stored = -1

  let reports = 0
  let reportedAt = Number.NEGATIVE_INFINITY
  /** The number of the report whose reply is the latest. */
  let latestReply = 0
  /** When the first report without a reply started, and when the state last moved since then. */
  let unansweredSince: number | undefined
  let movedAt = 0

  const isPast = (time: number, windows: number) => !isWithin(windows * WINDOW_MS, time, now())

  /** While the store does not answer, the isolate moves the state by its own measurements. Without measurements, all sums are 0. */
  function moveByItself(): void {
    if (unansweredSince === undefined) return
    const time = now()
    if (time < movedAt) unansweredSince = movedAt = time
    const ms = time - movedAt
    if (time - unansweredSince < BY_ITSELF_AFTER * WINDOW_MS || ms < WINDOW_MS) return
    state = controller.next(state, { sums: sinceMove, ms })
    sinceMove = [...zeros]
    movedAt = time
  }

  function apply({ at, closed, state: inStore }: SignalSnapshot): void {
    stored = inStore?.window ?? -1
    // The own state is of a window in the future if the clock of the store was set back.
    if (window >= Math.floor(at / (WINDOW_MS * 1000))) window = -1
    const read = inStore && controller.read(inStore.text)
    if (read !== undefined && stored >= window) {
      state = read
      window = stored
    }
    if (closed && closed.window > window) {
      const ms = window < 0 ? WINDOW_MS : (closed.window - window) * WINDOW_MS
      const sums = closed.pushed && addPushes ? addPushes(closed.sums, closed.pushed) : closed.sums
      state = controller.next(state, { sums, ms })
      window = closed.window
    }
    sinceMove = [...zeros]
    unansweredSince = undefined
  }

  /** A report, whether or not it is due. */
  function startReport(): Load {
    moveByItself()
    const number = ++reports
    reportedAt = now()
    if (unansweredSince === undefined) unansweredSince = movedAt = reportedAt
    const isOld = unsentSince !== undefined && isPast(unsentSince, OLD_AFTER)
    const sums = isOld ? zeros : unsentSums
    // Never sent again: a report whose reply was lost may have been added.
    unsentSums = [...zeros]
    unsentSince = undefined
    const text = controller.write(state)
    const newState = window > stored && isStateText(text) ? { window, text } : undefined
    const report = { signal: name, windowMs: WINDOW_MS, sums, state: newState, now: reportAt?.() }
    return {
      calls: [encodeReport(script(), report)],
      done([reply]) {
        // A late reply must not replace a newer one.
        if (number < latestReply || reply instanceof GatewayError) return
        const reported = decodeReport(reply, count)
        latestReply = number
        apply(reported)
      },
    }
  }

  const rider: Rider = {
    isMeasured: true,
    aloneAfterMs: () => (isPast(reportedAt, OVERDUE_AFTER) ? 0 : undefined),
    isUnanswered: () => unansweredSince !== undefined && isPast(unansweredSince, 1),
    load: () => (isPast(reportedAt, 1) ? startReport() : undefined),
  }
  return {
    ...rider,
    startReport,
    /** The number of sums. */
    sums: count,

    /** Adds measurements, one for each sum. Values that are not above 0 count as 0; all are rounded to integers. */
    add(values: readonly number[]): void {
      unsentSince ??= now()
      for (let i = 0; i < count; i++) {
        const value = values[i]! > 0 ? Math.round(values[i]!) : 0
        unsentSums[i] = Math.min(unsentSums[i]! + value, MAX_SUM)
        sinceMove[i] = Math.min(sinceMove[i]! + value, MAX_SUM)
      }
    },

    /** The current state of the controller. */
    state(): State {
      moveByItself()
      return state
    },
  }
}
