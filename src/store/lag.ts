/**
 * Measures how late an isolate runs: the time in which a timer of its own was due and had not run yet, because the isolate was
 * busy. That time is not the store's fault. One meter for an isolate; it holds plain numbers, nothing of any request.
 */
import { latestOf, SYSTEM_CLOCK } from '../clock.ts'

export interface LagMeter {
  /** ms; the latest time that any request of this isolate has seen. */
  now(): number
  /**
   * Records that a timer which was due at `dueAt` has not run until now.
   * @returns how late it is, in ms; 0 when it is not later than timers of an idle isolate are
   */
  record(dueAt: number): number
  /** ms; the difference between two readings is the late time between them. Time that is recorded twice counts once. */
  total(): number
}

/** Timers of an idle isolate are up to a few ms late. */
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
