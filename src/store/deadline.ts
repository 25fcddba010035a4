/**
 * The deadline of one call to the store. It counts only the time in which the isolate was responsive. A chain of short timers measures how
 * late the isolate is (lag.ts), and that time does not count. So a reply that waits in a busy isolate does not look like a slow store.
 *
 * In total a call takes at most forty deadlines (10 s by default), plus the delay of its last timer. This is so long because a flood of
 * thousands of requests can keep an isolate busy for seconds, while the replies of the store are already waiting to be read.
 */
import type { Timer } from '../clock.ts'
import { MAX_DEADLINES_PER_CALL } from '../config/compile-breaker.ts'
import { GatewayError } from '../errors.ts'
import { isolateLag, isolateTimer, type LagMeter } from './lag.ts'

export interface Deadline {
  /** Aborts when the time is used up. */
  signal: AbortSignal
  /** Why the call was aborted: the store was slow (ERR_STORE_TIMEOUT), or the isolate was (ERR_STORE_OVERLOAD). */
  failure(): GatewayError | undefined
  /** Stops the timers, because the call has ended. */
  end(): void
}

/** The clock and timers of a deadline; tests pass their own. */
export interface DeadlineClock {
  lag: LagMeter
  timer: Timer
  /** Default: an AbortController. */
  createController?: () => DeadlineController
}

/** What a deadline uses of an AbortController. */
export interface DeadlineController {
  signal: AbortSignal
  abort(reason: GatewayError): void
}

/** The number of timers in one deadline. More timers measure the lateness of the isolate more precisely. */
const STEPS = 5

export const REAL_CLOCK: DeadlineClock = { lag: isolateLag, timer: isolateTimer }

/** Starts the deadline of a call. @param deadlineMs time in which the isolate is responsive */
export function startDeadline(
  deadlineMs: number,
  { lag, timer, createController }: DeadlineClock = REAL_CLOCK,
): Deadline {
  const controller = createController?.() ?? new AbortController()
  const maxMs = MAX_DEADLINES_PER_CALL * deadlineMs
  let failure: GatewayError | undefined
  let responsiveMs = 0
  let elapsedMs = 0
  let step: { ms: number; startedAt: number; lateBefore: number; cancel(): void }

  function nextStep(): void {
    // Not only what is left. Many calls whose last steps take a few ms would keep workerd busy with their timers, so all of them seemed late,
    // and none ended.
    const ms = Math.ceil(Math.min(maxMs - elapsedMs, deadlineMs / STEPS))
    step = { ms, startedAt: lag.now(), lateBefore: lag.total(), cancel: timer(ms, endStep) }
  }

  function endStep(): void {
    const { ms, startedAt, lateBefore } = step
    const lateMs = lag.record(startedAt + ms)
    // A timer is never early. If the clock says otherwise, it was set back.
    const passedMs = Math.max(ms, lag.now() - startedAt)
    elapsedMs += passedMs
    responsiveMs += passedMs - Math.min(passedMs, Math.max(lateMs, lag.total() - lateBefore))
    if (responsiveMs >= deadlineMs) fail(timeoutError())
    else if (elapsedMs >= maxMs) fail(overloadError())
    else nextStep()
  }

  function fail(error: GatewayError): void {
    failure = error
    controller.abort(error)
  }

  nextStep()
  return {
    signal: controller.signal,
    failure: () => failure,
    end() {
      // If the reply arrives before the timer that would measure the lateness, the lateness is recorded here.
      if (!failure) lag.record(step.startedAt + step.ms)
      step.cancel()
    },
  }
}

export const timeoutError = () =>
  new GatewayError('ERR_STORE_TIMEOUT', 'The store did not answer within the deadline.')

const overloadError = () =>
  new GatewayError('ERR_STORE_OVERLOAD', "The isolate was too busy to receive the store's reply in time.")
