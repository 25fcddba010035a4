/**
 * Measures the lateness of an isolate: the time in which one of its timers was due and had not run, because the isolate was busy. This
 * time must not count against the store. Each isolate has one meter. It holds plain numbers, and nothing that belongs to a request.
 */
import { latestOf, type Sleep, SYSTEM_CLOCK, SYSTEM_TIMER, type Timer } from '../clock.ts'

export interface LagMeter {
  /** The latest time that any request of this isolate has seen (ms). */
  now(): number
  /**
   * Records that a timer that was due at `dueAt` had not run before now.
   * @returns its lateness in ms; 0 if timers of an idle isolate are that late, too
   */
  record(dueAt: number): number
  /** The total lateness (ms). The difference of two readings is the lateness between them. Overlapping times count once. */
  total(): number
}

/** Timers of an idle isolate can be a few ms late. */
const TOLERANCE_MS = 5

export function createLagMeter(clock: () => number = SYSTEM_CLOCK.now): LagMeter {
  const now = latestOf(clock)
  let total = 0
  let recordedUntil = Number.NEGATIVE_INFINITY

  return {
    now,
    record(dueAt) {
      const time = now()
      const late = time - dueAt
      if (late <= TOLERANCE_MS) return 0
      total += time - Math.max(dueAt, Math.min(recordedUntil, time))
      recordedUntil = time
      return late
    },
    total: () => total,
  }
}

export const isolateLag = createLagMeter()

/**
 * On Workers the clock of a request can stand still, and its timers count from that time. So the time that it is behind is added.
 *
 * Node runs all timers that are due, also those that become due meanwhile, before it reads from its sockets. So with thousands of timers a
 * deadline could end in time although the replies were waiting to be read. What a timer runs therefore waits until Node has read them.
 */
export const isolateTimer: Timer = (ms, run) => {
  let isCancelled = false
  const cancel = SYSTEM_TIMER(isolateLag.now() + ms - SYSTEM_CLOCK.now(), () =>
    afterReading(() => {
      if (!isCancelled) run()
    }),
  )
  return () => {
    isCancelled = true
    cancel()
  }
}

type RunLater = (run: () => void) => unknown

/** Runs at once where there is no `setImmediate`, and in the Edge runtime of Next.js, where calling it throws. */
export function afterReading(run: () => void, later: RunLater | undefined = onceRead): void {
  try {
    if (later) return void later(run)
  } catch {
    // Nothing was scheduled.
  }
  run()
}

const onceRead = (globalThis as { setImmediate?: RunLater }).setImmediate

export const isolateSleep: Sleep = ms => new Promise(resolve => isolateTimer(ms, resolve))
