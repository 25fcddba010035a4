/**
 * The worker utilization shedder. Its state is the pressure: a bad signal adds its duration in ms. Below `quietMs` nothing is refused; from
 * there to `fullMs` the classes are refused one after the other. One second of signal moves the pressure by at most one second, so no
 * burst, deployment or single machine can make it jump. docs/load-shedding.md shows the effect.
 *
 * The order of classes and the pace are those of Stripe's worker utilization load shedder (https://stripe.com/blog/rate-limiters).
 */
import { finalizeHash, fnv1a } from '../hash.ts'
import { type Controller, elapsedMs, numbersAsText, type SignalWindow, sumAt } from './controller.ts'

export interface PressureSettings {
  /** At this mean utilization (0 to 1) or above it, pressure grows. */
  readonly high: number
  /** At this mean utilization or below it, pressure shrinks. */
  readonly low: number
  /** A signal that is bad for less than this has no effect (ms). */
  readonly quietMs: number
  /** After a bad signal of this duration, all classes but the critical one are refused (ms). */
  readonly fullMs: number
}

/** The time until a measurement has an effect (ms): its second must be over, and it must have arrived. */
const TRANSPORT_MS = 2000

/**
 * Converts the time from the start of a bad signal until everything is refused (`withinMs`) to `fullMs`. The
 * transport of the signal takes part of this time.
 */
export const fullMsWithin = (withinMs: number, quietMs: number) =>
  Math.max(quietMs + 1, withinMs - TRANSPORT_MS)

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
 * The most time that one window stands for (ms). Longer gaps are silence, in which pressure shrinks, because the
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
 */
export function pressureController(settings: PressureSettings): Controller<Pressure> {
  const { high, low, fullMs } = settings
  const clamp = (pressureMs: number) => Math.min(Math.max(0, pressureMs), fullMs)
  const follow = (pressureMs: number, before: number) =>
    clamp(Math.max(pressureMs, Math.min(before, pressureMs + slackOf(settings))))
  const initial: Pressure = { pressureMs: 0, appliedMs: 0, episode: 0 }
  return {
    initial,
    next({ pressureMs, appliedMs, episode }, window) {
      const ms = elapsedMs(window)
      const knownMs = Math.min(ms, KNOWN_MS)
      const mean = highestMean(window)
      // Without a signal the shedder fails open, as slowly as it sheds.
      const change = mean === undefined || mean <= low ? -knownMs : mean >= high ? knownMs : 0
      const afterSilence = clamp(pressureMs - (ms - knownMs))
      const next = clamp(afterSilence + change)
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
function highestMean(window: SignalWindow): number | undefined {
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

/** How long a refused caller has to wait (ms), if the signal is low from now on. @param tolerated ms */
export const estimateWaitMs = (pressureMs: number, tolerated: number, settings: PressureSettings) =>
  Math.max(0, pressureMs - (tolerated - slackOf(settings)))
