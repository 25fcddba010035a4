/**
 * The worker utilization shedder: when an origin is too busy for longer than a moment, classes of traffic are refused, the least
 * important first, and admitted again as slowly.
 *
 * Its only number is the pressure: how many ms of a bad signal weigh on it. It grows while the signal is high, shrinks while it is
 * low, and holds between the two, where the origin is as busy as it should be. Nothing is refused below `quietMs`; from there to
 * `fullMs` the classes are thinned one after the other. A second of signal therefore moves at most one second of pressure, and no
 * burst, no deployment and no single machine can make it jump.
 *
 * It is slow by design. In the simulation critical requests stay unharmed when the load grows to 1.5 times the capacity within four
 * minutes; a step needs a bound on the capacity of the fleet beside it, with a reserve for critical requests.
 *
 * The order of classes and the pace are those of Stripe's worker utilization load shedder (https://stripe.com/blog/rate-limiters).
 */
import { finalizeHash, fnv1a } from '../hash.ts'
import { type Controller, elapsedMs, numbersOf, type SignalWindow, sumAt } from './controller.ts'

export interface PressureSettings {
  /** At this mean utilization (0 to 1) or above it, pressure grows. */
  readonly high: number
  /** At this mean utilization or below it, pressure shrinks. */
  readonly low: number
  /** A signal that is bad for less has no effect (ms). */
  readonly quietMs: number
  /** After so long all classes but the critical one are refused (ms). */
  readonly fullMs: number
}

/** What is measured counts when its second is over, and when it has arrived. */
const TRANSPORT_MS = 2000

/** Of a signal that is high from one moment on, until all is refused; in between pressure grows for less than that. */
export const fullMsWithin = (withinMs: number, quietMs: number) =>
  Math.max(quietMs + 1, withinMs - TRANSPORT_MS)

export const PRESSURE_DEFAULTS: PressureSettings = {
  ...{ high: 0.9, low: 0.7, quietMs: 28_000 },
  fullMs: fullMsWithin(120_000, 28_000),
}

export interface Pressure {
  /** From 0 to `fullMs`. */
  readonly pressureMs: number
  /**
   * The pressure that is acted on. It rises with the pressure and follows it down only at a distance: an overload that lasts is held by
   * a pressure that wavers, and callers at the edge of the refused share would be refused and admitted in turn.
   */
  readonly appliedMs: number
  /** Grows each time that pressure leaves 0, so that it is not the same callers that are refused first every time. */
  readonly episode: number
}

/**
 * How much time one window can stand for (ms). What is longer is silence, in which pressure shrinks: the signal is known for its own
 * time only. Signals that arrive every few seconds, as when machines push them, still count as one that does not end.
 */
const KNOWN_MS = 5000

/** The distance at which `appliedMs` follows a falling pressure (ms): twice what pressure wavers by in the simulation. */
const SLACK_MS = 6000

/** Never more than the quiet time: a pressure of 0 must let everything through. */
const slackOf = ({ quietMs }: PressureSettings) => Math.min(SLACK_MS, quietMs)

/** Sums: the signal in thousandths, and the number of samples. */
export function pressureController(settings: PressureSettings = PRESSURE_DEFAULTS): Controller<Pressure> {
  const { high, low, fullMs } = settings
  const within = (pressureMs: number) => Math.min(Math.max(0, pressureMs), fullMs)
  const applied = (pressureMs: number, before: number) =>
    within(Math.max(pressureMs, Math.min(before, pressureMs + slackOf(settings))))
  return {
    initial: { pressureMs: 0, appliedMs: 0, episode: 0 },
    next({ pressureMs, appliedMs, episode }, window) {
      const ms = elapsedMs(window)
      const known = Math.min(ms, KNOWN_MS)
      const mean = utilization(window)
      // Without a signal the shedder fails open, as slowly as it sheds.
      const change = mean === undefined || mean <= low ? -known : mean >= high ? known : 0
      const rested = within(pressureMs - (ms - known))
      const next = within(rested + change)
      return {
        pressureMs: next,
        appliedMs: applied(next, appliedMs),
        episode: rested === 0 && next > 0 ? episode + 1 : episode,
      }
    },
    write: ({ pressureMs, appliedMs, episode }) => `${pressureMs} ${appliedMs} ${episode}`,
    read(text) {
      const [pressureMs, appliedMs, episode] = numbersOf(text, 3) ?? []
      if (!isCount(pressureMs) || !isCount(appliedMs) || !isCount(episode)) return undefined
      const next = within(pressureMs)
      return { pressureMs: next, appliedMs: applied(next, appliedMs), episode }
    },
  }
}

/** The mean of the signal; undefined without a sample. */
export function utilization(window: SignalWindow): number | undefined {
  const samples = sumAt(window, 1)
  // In this order 0.7 in thousandths is 0.7 again.
  return samples > 0 ? sumAt(window, 0) / samples / 1000 : undefined
}

/**
 * Which share of the callers of each class is refused (0 to 1), the least important class first. A class is refused whole before
 * the next one is thinned.
 * @param appliedMs of the controller's state
 * @param classes how many there are without the critical one, which is never refused
 */
export function shedShares(
  appliedMs: number,
  classes: number,
  { quietMs, fullMs }: PressureSettings = PRESSURE_DEFAULTS,
): number[] {
  // Where both are the same time, everything is refused at once.
  const level = appliedMs >= fullMs ? 1 : Math.max(0, (appliedMs - quietMs) / (fullMs - quietMs))
  return Array.from({ length: classes }, (_, i) => Math.min(1, Math.max(0, level * classes - i)))
}

/**
 * Whether this caller is among the share that is refused. At one level a caller is always on the same side, so a client is not
 * refused and admitted in turn; as the share grows, refused callers stay refused.
 */
export function isShed(callerKey: string, episode: number, share: number): boolean {
  return placeOf(callerKey, episode) < share
}

/** From 0 to below 1: a caller is refused while the share of its class is larger. */
const placeOf = (callerKey: string, episode: number) =>
  finalizeHash(fnv1a(`${episode} ${callerKey}`)) / 2 ** 32

/**
 * How long a caller that is refused has to wait, if from now on the signal is low (ms).
 * @param classPlace of its class, from 0 for the least important one
 */
export function waitOf(
  { pressureMs, episode }: Pressure,
  callerKey: string,
  { classPlace, classes }: { classPlace: number; classes: number },
  settings: PressureSettings = PRESSURE_DEFAULTS,
): number {
  const { quietMs, fullMs } = settings
  const admittedAt = quietMs + ((fullMs - quietMs) * (classPlace + placeOf(callerKey, episode))) / classes
  return Math.max(0, pressureMs - (admittedAt - slackOf(settings)))
}

function isCount(value: number | undefined): value is number {
  return Number.isSafeInteger(value) && value! >= 0
}
