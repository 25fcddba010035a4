/** A clock for deadlines of the store. Only the test makes it go, so a slow machine exceeds no deadline. */
import type { DeadlineClock } from '../../src/store/deadline.ts'
import { createLagMeter } from '../../src/store/lag.ts'

export interface DeadlineTestClock extends DeadlineClock {
  world: { time: number }
  timers: Set<unknown>
  /** Advances the clock; timers run on time. */
  pass(ms: number): void
  /** Advances the clock without running timers, which are then late. */
  isBusy(ms: number): void
}

export function createDeadlineClock(): DeadlineTestClock {
  const world = { time: 1e6 }
  const timers = new Set<{ at: number; run: () => void }>()
  function pass(ms: number): void {
    const until = world.time + ms
    for (;;) {
      const [next] = [...timers].filter(({ at }) => at <= until).sort((a, b) => a.at - b.at)
      if (!next) break
      world.time = Math.max(world.time, next.at)
      timers.delete(next)
      next.run()
    }
    world.time = Math.max(world.time, until)
  }
  return {
    world,
    timers,
    lag: createLagMeter(() => world.time),
    timer(ms, run) {
      const timer = { at: world.time + ms, run }
      timers.add(timer)
      return () => timers.delete(timer)
    },
    pass,
    isBusy(ms) {
      world.time += ms
      pass(0)
    },
  }
}
