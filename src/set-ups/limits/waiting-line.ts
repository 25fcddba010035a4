/**
 * The calls of `acquire` that wait for one identity, in the order in which they came. As many calls ask the store at once as the last
 * answer has left units for. If it has left none, the first call asks when the next units are due, and the others follow at the rate at
 * which units come back. Without that, each waiting call would ask for the same units.
 *
 * Calls can belong to different requests of an isolate, which must share no promise, and any of them can end without notice. So the line
 * is plain data. Each call looks by itself whether it is its turn, the less often the more calls are before it. Where all calls belong to
 * one process, a call that releases units also wakes the next one.
 */

/** What an answer says about the calls that follow. */
export interface Answer {
  allowed: boolean
  /** Calls of the same cost that the limit still admits now. */
  further: number
  /** When the next call is worth a try, if none is admitted now (ms from the decision). */
  pauseMs: number
  /** How often one more call is admitted then, on average (ms). Infinite if that is unknown: one call asks after the other. */
  paceMs: number
  /** `pauseMs` of an admission is an estimate: the average of a window that slides. */
  isEstimate: boolean
}

/** The place of a call in the line. */
export interface Place {
  /**
   * Waits until the call may ask the store.
   * @returns false: that would come too late for it, or its signal is aborted
   */
  turn(): Promise<boolean>
  /** Notes the answer of the store. The call keeps its place until it leaves. */
  report(answer: Answer): void
  leave(): void
}

export interface WaitingLine {
  /**
   * @param deadline when the call gives up (ms, by `elapsedMs`); can be infinite
   * @param cost the same text for calls of the same cost
   * @param signal ends the wait for a turn
   */
  join(deadline: number, cost?: string, signal?: AbortSignal): Place
  /** Notes that units have become free that no answer counted on: the next call asks at once. @returns whether there is one */
  free(): boolean
  isEmpty(): boolean
}

interface Call {
  cost: string
  /** Set while it waits for an answer of the store. */
  askedAt: number | undefined
  /** A call that does nothing for much longer than this is gone (ms). */
  dueAt: number
  /** Of the line, when it asked. */
  frees: number
  /** Ends its sleep. */
  sleeping?: AbortController
}

export interface LineClock {
  /** ms since an arbitrary instant. */
  elapsedMs(): number
  sleep(ms: number, signal?: AbortSignal): Promise<void>
}

/** The bounds of the pause between two looks of a call whose turn may have come (ms). */
const MIN_PAUSE_MS = 4
const MAX_PAUSE_MS = 250

/** A call that is late by this time (ms) is considered gone. If it comes back, it goes to the end of the line. */
const GONE_AFTER_MS = 1000

/** An answer of the store takes less time than this (ms). */
const MAX_TRIP_MS = 20_000

/** A call comes later to the store than the one before by this part of a trip, so that it does not come too early. */
const MARGIN_DIVISOR = 8

/** Close to its limit, a sliding window admits fewer calls than on average. No more than this is added to an estimate. */
const MAX_STRETCH = 1.25

/** A call looks at this many others before it. */
const MAX_LOOK = 500

/**
 * @param wakes whether one call may end the sleep of another. On Workers, it may not: they can belong to different requests
 */
export function createWaitingLine({ elapsedMs, sleep }: LineClock, wakes = false): WaitingLine {
  /** In the order in which they came. Those that ask are among them. */
  const calls = new Set<Call>()
  /** How many calls may ask now. The first one asks alone: its answer tells what is left. */
  let turns = 1
  let asking = 0
  /** How often units have become free that no answer counted on. */
  let frees = 0
  /** From then on, all that ask are gone. */
  let askingUntil = 0
  /** When the next call is worth a try. */
  let nextAt = Number.NEGATIVE_INFINITY
  let paceMs = Number.POSITIVE_INFINITY
  /** How much longer than estimated the store has refused after an admission. */
  let stretch = 1
  let admitted: { askedAt: number; estimateMs: number } | undefined
  /** How long the calls before another one take, each; 0: unknown. */
  let intervalMs = 0
  /** The call whose refusal has set `nextAt`. */
  let refused: Call | undefined

  function remove(call: Call): void {
    if (calls.delete(call)) endAsking(call)
    if (refused && !calls.has(refused)) forgetOtherCost(refused.cost)
  }

  /** The call that was refused has given up. How long another cost is refused is unknown, so the next call asks for itself. */
  function forgetOtherCost(cost: string): void {
    const next = calls.values().find(({ askedAt }) => askedAt === undefined)
    if (!next || next.cost === cost) return
    refused = undefined
    nextAt = Number.NEGATIVE_INFINITY
    paceMs = Number.POSITIVE_INFINITY
    intervalMs = 0
  }

  function endAsking(call: Call): void {
    if (call.askedAt !== undefined) asking -= 1
    call.askedAt = undefined
  }

  function dropGone(time: number): void {
    if (asking > 0 && time >= askingUntil) {
      for (const call of calls) if (call.askedAt !== undefined) remove(call)
      // What they would have learned is unknown, so the next call asks.
      turns = Math.max(turns, 1)
    }
    for (const call of calls) {
      if (time < call.dueAt + GONE_AFTER_MS) return
      remove(call)
    }
  }

  /** How many calls wait before this one; `MAX_LOOK` if there are more. */
  function placeOf(call: Call): number {
    let place = 0
    for (const each of calls) {
      if (each === call || place === MAX_LOOK) break
      if (each.askedAt === undefined) place += 1
    }
    return place
  }

  return {
    join(deadline, cost = '', signal) {
      const call: Call = { cost, askedAt: undefined, dueAt: elapsedMs(), frees }
      calls.add(call)
      return {
        async turn() {
          for (let looks = 0; ; looks++) {
            if (signal?.aborted) return false
            const time = elapsedMs()
            call.dueAt = Math.max(call.dueAt, time)
            dropGone(time)
            // The call itself can have been taken for gone.
            calls.add(call)
            if (turns <= 0 && time >= nextAt && (asking === 0 || Number.isFinite(paceMs))) {
              turns = 1
              if (Number.isFinite(paceMs)) nextAt = Math.max(nextAt, time - paceMs) + paceMs
            }
            const place = turns === Number.POSITIVE_INFINITY ? 0 : placeOf(call)
            if (place < turns) {
              turns -= 1
              asking += 1
              call.askedAt = time
              call.frees = frees
              askingUntil = time + MAX_TRIP_MS
              call.dueAt = askingUntil
              return true
            }
            const untilNext = turns > 0 ? 0 : Math.max(0, nextAt - time)
            if (time + untilNext > deadline || time >= deadline) return false
            // Half of the time that the calls before it will take; while that is unknown, longer with each look.
            const behind =
              intervalMs > 0 || place === 0 ? (place * intervalMs) / 2 : MIN_PAUSE_MS * 2 ** looks
            // The platform can end a call that asks. Then it is this one's turn.
            const untilGone = asking > 0 ? askingUntil - time : Number.POSITIVE_INFINITY
            // Its answer can make `nextAt` earlier.
            const untilAnswered = asking > 0 ? MAX_PAUSE_MS * 2 ** place : Number.POSITIVE_INFINITY
            const wait = Math.min(untilNext + Math.min(behind, MAX_PAUSE_MS), untilGone, untilAnswered)
            const pause = Math.max(wait, MIN_PAUSE_MS)
            call.dueAt = time + pause
            const until = wakes ? wakingFrom(call, signal) : signal
            await sleep(Math.min(pause, deadline - time), until)
          }
        },
        report({ allowed, further, pauseMs, isEstimate, ...answer }) {
          const time = elapsedMs()
          // The next call takes as long to the store as this one has taken, but not exactly.
          const { askedAt = time } = call
          const tripMs = time - askedAt
          endAsking(call)
          if (!allowed && admitted) {
            const refusedMs = askedAt + pauseMs - admitted.askedAt
            stretch = Math.max(1, Math.min(refusedMs / admitted.estimateMs, MAX_STRETCH))
          }
          refused = allowed ? undefined : call
          if (allowed) admitted = isEstimate ? { askedAt, estimateMs: pauseMs } : undefined
          paceMs = answer.paceMs * stretch
          intervalMs = Number.isFinite(paceMs) ? paceMs : pauseMs
          // The answer does not know what has become free since.
          turns = further - asking + frees - call.frees
          if (turns > 0) return
          nextAt = askedAt + tripMs / MARGIN_DIVISOR + pauseMs * (isEstimate ? stretch : 1)
          // Those that ask already will get the next units.
          if (asking > 0 && Number.isFinite(paceMs)) nextAt += asking * paceMs
        },
        leave: () => remove(call),
      }
    },

    free() {
      frees += 1
      turns = Math.max(turns, 0) + 1
      let woken = 0
      for (const call of calls) {
        if (call.askedAt !== undefined) continue
        if (woken === turns) break
        woken += 1
        call.sleeping?.abort(WOKEN)
      }
      return wakes && woken === turns
    },

    isEmpty: () => calls.size === 0,
  }
}

/** Costs less than the exception that is the reason by default. */
const WOKEN = 'woken'

/** A signal that ends the next sleep of a call. */
function wakingFrom(call: Call, signal: AbortSignal | undefined): AbortSignal {
  call.sleeping = new AbortController()
  const { signal: woken } = call.sleeping
  return signal ? AbortSignal.any([signal, woken]) : woken
}
