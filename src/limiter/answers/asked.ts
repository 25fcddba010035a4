/**
 * An answer that is on its way: one request asks the store, and others wait for its answer, as far as it can be for them. Requests share
 * no promise, so each of them looks again after a pause whether the answer has come.
 */
import { isWithin } from '../../trips/turn.ts'

export interface Asked {
  /** When the request has asked the store (ms). */
  readonly at: number
  /** How many more requests can wait for the answer. */
  places: number
}

/** Without an answer after this time, the request that has asked is considered lost (ms). */
export const LOST_AFTER_MS = 2000

export const isOnItsWay = <T extends Asked>(
  asked: T | undefined,
  time: number,
  lostAfterMs = LOST_AFTER_MS,
): asked is T => asked !== undefined && isWithin(lostAfterMs, asked.at, time)

/** A request waits for answers at most as long as this many trips take, then it makes a trip of its own. */
export const MAX_WAIT_TRIPS = 2

/** The waiting of one request. In a busy isolate, pauses and answers are late alike. So the pauses count, and not the time. */
export interface Wait {
  /** The answer that it has waited for last. */
  asked?: Asked
  /** How much longer it may wait (ms). */
  leftMs: number
}

/**
 * @param asked an answer that is on its way
 * @param tripMs how long a trip takes
 * @param pauseMs how long to wait, if the request may wait for that long
 * @returns ms until the request should look again; 0: it has to make a trip
 */
export function pauseFor(request: { wait?: Wait }, asked: Asked, tripMs: number, pauseMs: number): number {
  request.wait ??= { leftMs: MAX_WAIT_TRIPS * tripMs }
  const { wait } = request
  const boundMs = Math.min(pauseMs, wait.leftMs)
  if (boundMs <= 0) return 0
  if (wait.asked !== asked) {
    if (asked.places <= 0) return 0
    asked.places -= 1
    wait.asked = asked
  }
  wait.leftMs -= boundMs
  return boundMs
}
