/**
 * The adaptive concurrency limit of an origin: how many requests may be in flight. Whether one more may is decided where all limits
 * are. The limit follows what the origin does: it grows while it is used and responses are fast, and shrinks when they are slow or
 * fail. gradient.ts and aimd.ts are two methods for that; what is fast is up to baseline.ts. There is no probe: no limit is lowered in
 * order to measure (envoyproxy/envoy#46532).
 *
 * The gradient is the default. While the capacity of the origin halves and comes back (test/simulation), it answers 97 to 99 % of what
 * the best fixed limit does, and AIMD 94 to 96 %: its sawtooth spends part of the time below what the origin can do.
 */
import type { AdaptiveMethod } from './adaptive-method.ts'
import { type Baseline, isUsedUp, NO_BASELINE, nextBaseline } from './baseline.ts'
import { type Controller, elapsedMs, numbersOf, sumAt } from './controller.ts'
import { gradient } from './gradient.ts'
import { rounded } from './rounded.ts'

export interface AdaptiveSettings {
  /** The limit is never lower. Nothing pins the limit to this value. */
  readonly min: number
  readonly max: number
  /** Where nothing is known yet. */
  readonly initial: number
}

/**
 * From 20 it takes about ten seconds of full load to reach 100. A minimum of 4, because a limit of one or two does not leave room to
 * see how latency follows it.
 */
export const ADAPTIVE_DEFAULTS: AdaptiveSettings = { min: 4, max: 1000, initial: 20 }

export interface AdaptiveLimit extends Baseline {
  /** With a fraction, so that slow growth is not lost; what is enforced is its whole part. */
  readonly limit: number
  /** The share of failures that is usual here. */
  readonly usualFailures: number
}

/** A share of failures that is higher by this than the usual one means overload. */
const FAILURE_MARGIN = 0.1

/**
 * How fast a share of failures becomes the usual one (per window). A route that always fails says nothing of the load: after some
 * twenty seconds the limit no longer shrinks for it. Failures of an overload end sooner, because the limit shrinks.
 */
const FAILURES_DRIFT = 0.05

/** With so many ended requests in a window, certainty is whole. */
const CERTAIN_SAMPLES = 200

/**
 * Sums: requests that ended, how many of them failed (5xx, timeout, connection error), the latency of those that did not fail (ms),
 * the requests in flight as each of them saw it when it began, itself included, and the requests that the limit has refused.
 *
 * Failures have no latency: a full queue refuses within a millisecond, and would make an overloaded origin look fast. What is in
 * flight is seen at the beginning, because that is the queue which a request waits in: its latency belongs to it.
 */
export function adaptiveController(
  { min, max, initial }: AdaptiveSettings = ADAPTIVE_DEFAULTS,
  method: AdaptiveMethod = gradient,
): Controller<AdaptiveLimit> {
  const within = (limit: number) => rounded(Math.min(Math.max(min, limit), max))
  return {
    initial: { limit: within(initial), usualFailures: 0, ...NO_BASELINE },
    next(state, window) {
      const ended = sumAt(window, 0)
      // Without a request there is nothing to learn. A window that stands for more time counts once: a gap must not jump.
      if (elapsedMs(window) === 0) return state
      // Full of requests that do not end, such as streams: one more gets in, so that the origin can be seen again.
      if (ended < 1) return sumAt(window, 4) > 0 ? { ...state, limit: within(state.limit + 1) } : state
      const failures = Math.min(sumAt(window, 1), ended)
      const inFlight = sumAt(window, 3) / ended
      const { limit } = state
      const sample = { latencyMs: sumAt(window, 2), samples: ended - failures, inFlight, limit }
      const baseline = nextBaseline(state, sample)
      const isUsed = inFlight >= limit / 2
      const next = method({
        limit,
        slowness: baseline.baselineMs > 0 ? baseline.latencyMs / baseline.baselineMs : 1,
        isFailing: isUsed && failures / ended > state.usualFailures + FAILURE_MARGIN,
        isUsed,
        isUsedUp: isUsedUp(inFlight, limit),
        pace: Math.min(1, 1000 / Math.max(1, baseline.latencyMs)),
        certainty: Math.min(1, (1.5 * ended) / (ended + CERTAIN_SAMPLES / 2)),
      })
      const usualFailures = state.usualFailures + FAILURES_DRIFT * (failures / ended - state.usualFailures)
      return { limit: within(next), usualFailures: rounded(usualFailures), ...baseline }
    },
    write: state => FIELDS.map(field => state[field]).join(' '),
    read(text) {
      const numbers = numbersOf(text, FIELDS.length)
      if (!numbers) return undefined
      const [limit, usualFailures, baselineMs, provenMs, latencyMs, inFlight, markLatencyMs, markInFlight] =
        numbers as unknown as FieldValues
      const baseline = { baselineMs, provenMs, latencyMs, inFlight, markLatencyMs, markInFlight }
      return { limit: within(limit), usualFailures, ...baseline }
    },
  }
}

/** As they are written, in this order. */
const FIELDS = [
  'limit',
  'usualFailures',
  'baselineMs',
  'provenMs',
  'latencyMs',
  'inFlight',
  'markLatencyMs',
  'markInFlight',
] as const

type FieldValues = NumberOfEach<typeof FIELDS>

type NumberOfEach<T extends readonly unknown[]> = { readonly [index in keyof T]: number }
