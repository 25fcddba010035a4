/**
 * A signal of an origin as an isolate sees it: what it has measured itself, and the state of a controller that all isolates
 * share. Once in a window (a second) an isolate sends its sums beside the calls of a decision, in the same HTTP request. The answer
 * has the sums of all isolates in the last window that is over, and the latest state.
 *
 * Whoever reads a window that is newer than the state computes the next state, uses it at once, and sends it with its next
 * report. Others compute the same one from the same window; where they do not (one has missed a window), the first that arrives
 * is kept, and all follow it.
 */
import type { Background } from '../background.ts'
import { GatewayError } from '../errors.ts'
import {
  decodeReport,
  encodeReport,
  isStateText,
  MOST_SUM,
  type PushedMean,
  type SignalSnapshot,
} from '../script/signal.ts'
import type { Script, ScriptCall, Store } from '../store/store.ts'
import type { Controller } from './controller.ts'

/** Windows in which reports have no answer, after which an isolate goes on alone. */
const ALONE_AFTER = 3

/** Windows after which what was measured says nothing about now. */
const OLD_AFTER = 10

/** Windows without a report, after which one is sent by itself. */
const OVERDUE_AFTER = 2

/** What `withSignals` needs of a board. */
export interface SignalReporter {
  /** The next trip has to report. */
  isDue(): boolean
  /** No trip has reported for two windows. */
  isOverdue(): boolean
  /** Reports have had no answer for a window. */
  isUnanswered(): boolean
  /** To be called when a trip starts that reports. */
  ask(): SignalReport
}

export interface SignalReport {
  call: ScriptCall
  /** @throws GatewayError ERR_STORE_REPLY_INVALID, and the board stays as it was */
  learn(reply: unknown): void
}

/** Plain data, so it may outlive the requests that it learns from. */
export interface SignalBoard<State> extends SignalReporter {
  /** Adds what was measured. Values that are not numbers above 0 count as 0, and all are rounded to integers. */
  add(values: readonly number[]): void
  /** The controller's state. */
  state(): State
}

export interface SignalBoardOptions<State> {
  /** Of letters, digits, - and _: part of a key. */
  name: string
  windowMs: number
  /** How many sums there are. */
  sums: number
  controller: Controller<State>
  /** ms, by this machine: when to report. Which window it is says the clock of the store. */
  now(): number
  script(): Script
  /** Adds to the sums of a window what machines have pushed; absent: pushes count for nothing. */
  fold?: ((sums: readonly number[], pushed: PushedMean) => readonly number[]) | undefined
  /** µs to report by; absent: the clock of the store, as always in production. */
  reportAt?: (() => number) | undefined
}

export function createSignalBoard<State>({
  name,
  windowMs,
  sums: count,
  controller,
  now,
  script,
  fold,
  reportAt,
}: SignalBoardOptions<State>): SignalBoard<State> {
  const none: readonly number[] = Array.from({ length: count }, () => 0)
  /** Since the last report, and when the first of it was added. */
  let unsent = [...none]
  let unsentSince: number | undefined
  /** Since the state has last moved. */
  let unseen = [...none]

  let known: Known<State> = { window: -1, state: controller.initial }
  /** The window of the latest state that the store has. */
  let stored = -1

  let asked = 0
  let askedAt = Number.NEGATIVE_INFINITY
  /** The number of the report whose answer is the latest. */
  let learnt = 0
  /** When the first report after that one started, and when the state has moved since. */
  let unansweredSince: number | undefined
  let movedAt = 0

  // A clock that is set back makes a time old, not young for ever.
  const isPast = (time: number, windows: number) => !(now() >= time && now() - time < windows * windowMs)

  /** While the store does not answer, the isolate goes by what it sees itself, and by silence where it sees nothing. */
  function moveAlone(): void {
    if (unansweredSince === undefined) return
    const time = now()
    if (time < movedAt) unansweredSince = movedAt = time
    const ms = time - movedAt
    if (time - unansweredSince < ALONE_AFTER * windowMs || ms < windowMs) return
    const sums = unseen
    unseen = [...none]
    movedAt = time
    known = { ...known, state: controller.next(known.state, { sums, ms }) }
  }

  /** The latest state of a window that is over by the clock of the store. */
  function latest({ at, state }: SignalSnapshot): Known<State> {
    const current = Math.floor(at / (windowMs * 1000))
    const read = state && controller.read(state.text)
    const theirs = state && read !== undefined ? { window: state.window, state: read } : undefined
    // Of a window that is yet to come: the clock of the store was set back.
    const own = known.window < current ? known : { window: -1, state: known.state }
    return theirs && theirs.window >= own.window ? theirs : own
  }

  function learn(reported: SignalSnapshot): void {
    const { closed, state } = reported
    stored = state?.window ?? -1
    known = latest(reported)
    if (closed && closed.window > known.window) {
      const ms = known.window < 0 ? windowMs : (closed.window - known.window) * windowMs
      const sums = closed.pushed && fold ? fold(closed.sums, closed.pushed) : closed.sums
      known = { window: closed.window, state: controller.next(known.state, { sums, ms }) }
    }
    unseen = [...none]
    unansweredSince = undefined
  }

  function unstored(): { window: number; text: string } | undefined {
    if (known.window <= stored) return undefined
    const text = controller.write(known.state)
    return isStateText(text) ? { window: known.window, text } : undefined
  }

  return {
    add(values) {
      unsentSince ??= now()
      for (let i = 0; i < count; i++) {
        const value = values[i]! > 0 ? Math.round(values[i]!) : 0
        unsent[i] = Math.min(unsent[i]! + value, MOST_SUM)
        unseen[i] = Math.min(unseen[i]! + value, MOST_SUM)
      }
    },

    state() {
      moveAlone()
      return known.state
    },

    isDue: () => isPast(askedAt, 1),
    isOverdue: () => isPast(askedAt, OVERDUE_AFTER),
    isUnanswered: () => unansweredSince !== undefined && isPast(unansweredSince, 1),

    ask() {
      moveAlone()
      const number = ++asked
      askedAt = now()
      if (unansweredSince === undefined) unansweredSince = movedAt = askedAt
      const isOld = unsentSince !== undefined && isPast(unsentSince, OLD_AFTER)
      const sums = isOld ? none : unsent
      // Sent once: a report whose reply was lost may have been added.
      unsent = [...none]
      unsentSince = undefined
      return {
        call: encodeReport(script(), { signal: name, windowMs, sums, state: unstored(), now: reportAt?.() }),
        learn(reply) {
          // A late answer must not replace a newer one.
          if (number < learnt || reply instanceof GatewayError) return
          const reported = decodeReport(reply, count)
          learnt = number
          learn(reported)
        },
      }
    },
  }
}

interface Known<State> {
  /** After which it holds; -1: not known. */
  window: number
  state: State
}

/** For sums that are a value in thousandths and the number of its samples: what is pushed is one more sample for each window. */
export function asSample(
  [sum = 0, samples = 0, ...others]: readonly number[],
  { mean }: PushedMean,
): number[] {
  return [sum + mean, samples + 1, ...others]
}

/** The store; its trips carry the reports that are due. What goes wrong with a report changes nothing for the other calls. */
export function withSignals(store: Store, boards: readonly SignalReporter[]): Store {
  return {
    ...(store.isCluster !== undefined && { isCluster: store.isCluster }),
    ping: () => store.ping(),
    async run(calls) {
      // On a cluster the node of a signal may hang, and decisions with it: then reports go by themselves (refreshOverdue).
      const isApart = (board: SignalReporter) => store.isCluster && board.isUnanswered()
      const due = boards.filter(board => board.isDue() && !isApart(board))
      return due.length === 0 ? await store.run(calls) : await runWithReports(store, calls, due)
    },
  }
}

/**
 * Reports by itself what no trip has reported for two windows: requests that are decided without the store make none. To be called
 * after each decision.
 */
export function refreshOverdue(
  store: Store,
  boards: readonly SignalReporter[],
  background: Background,
): void {
  const overdue = boards.filter(board => board.isOverdue())
  if (overdue.length > 0) background(runWithReports(store, [], overdue))
}

async function runWithReports(
  store: Store,
  calls: Parameters<Store['run']>[0],
  boards: readonly SignalReporter[],
): Promise<unknown[]> {
  const reports = boards.flatMap(board => orNothing(() => board.ask()) ?? [])
  if (calls.length + reports.length === 0) return []
  const replies = await store.run([...calls, ...reports.map(({ call }) => call)])
  for (const [i, { learn }] of reports.entries()) orNothing(() => learn(replies[calls.length + i]))
  return replies.slice(0, calls.length)
}

/** A report that fails is not repeated: the next window has another. */
function orNothing<T>(work: () => T): T | undefined {
  try {
    return work()
  } catch {
    return undefined
  }
}
