/**
 * The worker utilization shedder. Its state is the pressure: a bad signal adds its duration in ms. Below `quietMs` nothing is refused;
 * from there to `fullMs` the classes are refused one after the other. One second of signal moves the pressure by at most one second, so
 * no burst, deployment or single machine can make it jump. docs/load-shedding.md shows the effect.
 *
 * The order of classes and the pace are those of Stripe's worker utilization load shedder
 * (https://stripe.com/blog/rate-limiters).
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
   * The pressure that decides what is refused. It rises with `pressureMs` and follows it down only at a distance.
   * Without the distance, a wavering pressure during a long overload would refuse and admit the callers at the
   * border of the refused share in turn.
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

/**
 * The distance at which `appliedMs` follows a falling pressure (ms): twice the variation of the pressure in the
 * simulation.
 */
const SLACK_MS = 6000

/** At most the quiet time: a pressure of 0 must admit everything. */
const slackOf = ({ quietMs }: PressureSettings) => Math.min(SLACK_MS, quietMs)

/** Creates the controller of the pressure. Sums: the signal in thousandths, and the number of samples. */
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
      const mean = meanUtilization(window)
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

/** The mean of the signal (0 to 1); undefined without a sample. */
export function meanUtilization(window: SignalWindow): number | undefined {
  const samples = sumAt(window, 1)
  // In this order of operations, 0.7 in thousandths is 0.7 again.
  return samples > 0 ? sumAt(window, 0) / samples / 1000 : undefined
}

/**
 * Computes the share of callers of each class that is refused (0 to 1), the least important class first. A class is
 * refused completely before the next one is refused in part.
 *
 * @param appliedMs of the controller's state
 * @param classes number of classes without the critical one, which is never refused
 */
export function shedShares(
  appliedMs: number,
  classes: number,
  { quietMs, fullMs }: PressureSettings,
): number[] {
  // If both times are equal, everything is refused at once.
  const level = appliedMs >= fullMs ? 1 : Math.max(0, (appliedMs - quietMs) / (fullMs - quietMs))
  return Array.from({ length: classes }, (_, i) => Math.min(1, Math.max(0, level * classes - i)))
}

/**
 * Whether a caller is in the refused share. At the same share a caller is always on the same side, so it is not
 * refused and admitted in turn. As the share grows, refused callers stay refused.
 */
export function isShed(callerKey: string, episode: number, share: number): boolean {
  return placeOf(callerKey, episode) < share
}

/** The place of a caller, from 0 to below 1: it is refused while the share of its class is larger. */
const placeOf = (callerKey: string, episode: number) =>
  finalizeHash(fnv1a(`${episode} ${callerKey}`)) / 2 ** 32

/**
 * How long a refused caller has to wait (ms), if the signal is low from now on.
 *
 * @param classPlace of its class, from 0 for the least important one
 */
export function estimateWaitMs(
  { pressureMs, episode }: Pressure,
  callerKey: string,
  { classPlace, classes }: { classPlace: number; classes: number },
  settings: PressureSettings,
): number {
  const { quietMs, fullMs } = settings
  const admittedAt = quietMs + ((fullMs - quietMs) * (classPlace + placeOf(callerKey, episode))) / classes
  return Math.max(0, pressureMs - (admittedAt - slackOf(settings)))
}
