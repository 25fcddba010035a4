/** Time of tests, in which pauses cost no time. */
import { type Clock, SYSTEM_TIMER, type Timer } from '../../src/clock.ts'

/** Longer pauses are deadlines, which tests do not want to reach (ms). */
const LONGEST_SKIPPED_MS = 1000

/** A clock that skips short pauses: what waits a moment for a trip to the store is sent at once. */
export function quickTime(): { clock: Clock; timer: Timer } {
  let skippedMs = 0
  const elapsed = () => performance.now() + skippedMs
  return {
    clock: { now: () => Date.now() + skippedMs, elapsed },
    timer(ms, run, isOptional) {
      if (ms > LONGEST_SKIPPED_MS) return SYSTEM_TIMER(ms, run, isOptional)
      const dueAt = elapsed() + ms
      const skip = () => {
        skippedMs += Math.max(0, dueAt - elapsed())
        run()
      }
      return SYSTEM_TIMER(1, skip, isOptional)
    },
  }
}

/** Timers by a clock that a test moves (ms). The test calls `ring` afterwards, which ends those that are due. */
export function timersBy(now: () => number): { timer: Timer; ring(): void } {
  const waiting = new Set<{ dueAt: number; run: () => void }>()
  return {
    timer(ms, run) {
      const timer = { dueAt: now() + ms, run }
      waiting.add(timer)
      return () => waiting.delete(timer)
    },
    ring() {
      for (const timer of [...waiting].filter(({ dueAt }) => dueAt <= now())) {
        if (waiting.delete(timer)) timer.run()
      }
    },
  }
}
