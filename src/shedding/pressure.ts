/**
 * The worker utilization shedder. Its state is the pressure, in ms of full overload. The signal moves it in proportion to the overload: at a
 * utilization of 1 by one second per second, at `high` not at all. Below `quietMs` nothing is refused; from there to `fullMs` the classes are
 * refused one after the other. No burst, deployment or single machine can make it jump. docs/load-shedding.md shows the effect.
 *
 * The order of classes, the pace and the default numbers are those of Stripe's worker utilization load shedder
 * (https://stripe.com/blog/rate-limiters). Its refused share, from -28/120 to 1, is (pressure - `quietMs`) / (`fullMs` - `quietMs`).
 */
import type { Pace } from '../config/check/shedding-schema.ts'
import { finalizeHash, fnv1a } from '../hash.ts'
import { type Controller, elapsedMs, numbersAsText, type SignalWindow, sumAt } from './controller.ts'

export interface PressureSettings {
  /** Above this mean utilization (0 to 1), pressure grows. */
  readonly high: number
  /** Below this mean utilization, pressure shrinks. */
  readonly low: number
  /** A full overload of less than this has no effect (ms). */
  readonly quietMs: number
  /** After a full overload of this duration, all classes but the critical one are refused (ms). */
  readonly fullMs: number
  readonly pace: Pace
}

/** By how much pressure moves in a second (s): from -1 to 1. */
function speedAt(utilization: number, { high, low, pace }: PressureSettings): number {
  if (pace === 'full') return utilization >= high ? 1 : utilization <= low ? -1 : 0
  if (utilization < low) return utilization / low - 1
  // With a `low` of 0 as well: otherwise, nothing but silence would end the shedding.
  if (utilization === 0) return -1
  if (utilization < high) return 0
  return high < 1 ? Math.min(1, (utilization - high) / (1 - high)) : 1
}

export interface Pressure {
  /** From 0 to `fullMs`. */
  readonly pressureMs: number
  /**
   * The pressure that decides what is refused. It rises with `pressureMs` and follows it down only at a distance. Without the distance, a
   * wavering pressure during a long overload would refuse and admit the callers at the border of the refused share in turn.
   */
  readonly appliedMs: number
  /** Grows each time that pressure leaves 0, so that different callers are refused first each time. */
  readonly episode: number
}

/**
 * The most time that one window of the fleet stands for (ms). Longer gaps are silence, in which pressure shrinks, because the
 * signal is known only for its own time. Signals that machines push every few seconds still count as continuous.
 */
const KNOWN_MS = 5000

/** The distance at which `appliedMs` follows a falling pressure (ms): twice the variation of the pressure in the simulation. */
const SLACK_MS = 6000

/** At most the quiet time: a pressure of 0 must admit everything. */
const slackOf = ({ quietMs }: PressureSettings) => Math.min(SLACK_MS, quietMs)

/**
 * Creates the controller of the pressure. Sums: for each signal, its values in thousandths and the number of samples. The highest
 * mean counts.
 * @param longestMs the most time that one window stands for (ms)
 */
export function pressureController(
  settings: PressureSettings,
  longestMs: number = KNOWN_MS,
): Controller<Pressure> {
  const { fullMs } = settings
  const clamp = (pressureMs: number) => Math.min(Math.max(0, pressureMs), fullMs)
  const follow = (pressureMs: number, before: number) =>
    clamp(Math.max(pressureMs, Math.min(before, pressureMs + slackOf(settings))))
  const initial: Pressure = { pressureMs: 0, appliedMs: 0, episode: 0 }
  return {
    initial,
    next({ pressureMs, appliedMs, episode }, window) {
      const ms = elapsedMs(window)
      const knownMs = Math.min(ms, longestMs)
      const mean = highestMean(window)
      // Without a signal the shedder fails open, as slowly as it sheds.
      const change = knownMs * (mean === undefined ? -1 : speedAt(mean, settings))
      const afterSilence = clamp(pressureMs - (ms - knownMs))
      const next = clamp(afterSilence + Math.round(change))
      return {
        pressureMs: next,
        appliedMs: follow(next, appliedMs),
        episode: afterSilence === 0 && next > 0 ? episode + 1 : episode,
      }
    },
    ...numbersAsText(initial, state => {
      if (!Object.values(state).every(Number.isSafeInteger)) return undefined
      const pressureMs = clamp(state.pressureMs)
      return { ...state, pressureMs, appliedMs: follow(pressureMs, state.appliedMs) }
    }),
  }
}

/** The highest mean of the signals (0 to 1); undefined without a sample. */
export function highestMean(window: SignalWindow): number | undefined {
  let highest: number | undefined
  for (let at = 0; at < window.sums.length; at += 2) {
    const samples = sumAt(window, at + 1)
    // In this order of operations, 0.7 in thousandths is 0.7 again.
    if (samples > 0) highest = Math.max(highest ?? 0, sumAt(window, at) / samples / 1000)
  }
  return highest
}

/**
 * The place of a caller in its class, from 0 to below 1. The callers of a class are refused in this order, so a caller is not refused
 * and admitted in turn, and as pressure grows, refused callers stay refused.
 */
export const placeOf = (callerKey: string, episode: number) =>
  finalizeHash(fnv1a(`${episode} ${callerKey}`)) / 2 ** 32

/**
 * The pressure (ms) up to which a caller is admitted. A class is refused completely before the next one is refused in part.
 * @param place of its class, from 0 for the least important one, plus its own place in the class
 * @param classes number of classes without the critical one, which is never refused
 */
export const toleratedMs = (place: number, classes: number, { quietMs, fullMs }: PressureSettings) =>
  quietMs + ((fullMs - quietMs) * place) / classes

/** The share of the callers of a class that is refused, 0 to 1. Parameters as for `toleratedMs`; `place` is that of the class. */
export function refusedShare(
  appliedMs: number,
  place: number,
  classes: number,
  settings: PressureSettings,
): number {
  const [first, last] = [toleratedMs(place, classes, settings), toleratedMs(place + 1, classes, settings)]
  return Math.min(1, Math.max(0, (appliedMs - first) / (last - first)))
}

/** How long a refused caller has to wait at least (ms): if utilization is 0 from now on. @param tolerated ms */
export const estimateWaitMs = (pressureMs: number, tolerated: number, settings: PressureSettings) =>
  Math.max(0, pressureMs - (tolerated - slackOf(settings)))
