/**
 * The deadline of one call to the store. It counts only the time in which the isolate itself was responsive: a chain of short
 * timers measures how late the isolate is (lag.ts), and that time does not count. So a reply that waits in a busy isolate does not
 * look like a slow store. In total a call takes no longer than forty deadlines (10 s by default), plus the delay of its last timer: a
 * flood of thousands of requests keeps an isolate busy for seconds, and the replies of the store are there as soon as it can read them.
 */
import { SYSTEM_CLOCK } from '../clock.ts'
import { MAX_DEADLINES_PER_CALL } from '../config/compile-breaker.ts'
import { GatewayError } from '../errors.ts'
import { isolateLag, type LagMeter } from './lag.ts'

export interface Deadline {
  /** Aborted when the time is used up. */
  signal: AbortSignal
  /** Why the call was aborted: the store was slow (ERR_STORE_TIMEOUT), or the isolate was (ERR_STORE_OVERLOAD). */
  failure(): GatewayError | undefined
  /** The call has ended: stops the timers. */
  end(): void
}

/** The clock and timers of a deadline; tests pass their own. */
export interface DeadlineClock {
  lag: LagMeter
  setTimer(run: () => void, ms: number): unknown
  clearTimer(timer: unknown): void
}

/** Timers for one deadline: more of them measure more finely how late the isolate is. */
const STEPS = 5

const REAL_CLOCK: DeadlineClock = {
  lag: isolateLag,
  // The clock of a request can stand still, and its timers count from there: the difference is added.
  setTimer: (run, ms) => setTimeout(run, isolateLag.now() + ms - SYSTEM_CLOCK.now()),
  clearTimer: timer => clearTimeout(timer as number),
}

export function startDeadline(
  deadlineMs: number,
  { lag, setTimer, clearTimer }: DeadlineClock = REAL_CLOCK,
): Deadline {
  const controller = new AbortController()
  let failure: GatewayError | undefined
  let responsiveMs = 0
  let elapsedMs = 0
  let step: { ms: number; startedAt: number; lateBefore: number; timer: unknown }

  function nextStep(): void {
    const left = Math.min(deadlineMs - responsiveMs, MAX_DEADLINES_PER_CALL * deadlineMs - elapsedMs)
    const ms = Math.ceil(Math.min(left, deadlineMs / STEPS))
    step = { ms, startedAt: lag.now(), lateBefore: lag.total(), timer: setTimer(endStep, ms) }
  }

  function endStep(): void {
    const { ms, startedAt, lateBefore } = step
    const ownLate = lag.record(startedAt + ms)
    // A timer is never early: where the clock says otherwise, it was set back.
    const passed = Math.max(ms, lag.now() - startedAt)
    elapsedMs += passed
    responsiveMs += passed - Math.min(passed, Math.max(ownLate, lag.total() - lateBefore))
    if (responsiveMs >= deadlineMs) fail(timedOut())
    else if (elapsedMs >= MAX_DEADLINES_PER_CALL * deadlineMs) fail(overloaded())
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
      // A reply can arrive before the timer that would have shown how late it is.
      if (!failure) lag.record(step.startedAt + step.ms)
      clearTimer(step.timer)
    },
  }
}

export const timedOut = () =>
  new GatewayError('ERR_STORE_TIMEOUT', 'The store did not answer within the deadline.')

const overloaded = () =>
  new GatewayError('ERR_STORE_OVERLOAD', 'The isolate was too busy to wait for the reply of the store.')
