/** Work that goes on after a reply, so that the process can end when it is done. */
import { SYSTEM_TIMER, type Timer } from '../../clock.ts'

export interface BackgroundWork {
  waitUntil(task: Promise<unknown>): void
  /** Timer of the gateway. */
  timer: Timer
  /**
   * Lets all timers run now, later ones soon, and waits until the work is done.
   * @returns false if it was not done within this time
   */
  finish(timeoutMs: number): Promise<boolean>
}

/** The longest timer while the work is finished (ms). Above 0, because work that fails is repeated. */
const LAST_MS = 20

export function trackBackgroundWork(systemTimer = SYSTEM_TIMER): BackgroundWork {
  const tasks = new Set<Promise<unknown>>()
  const timers = new Map<() => void, () => void>()
  let isFinishing = false

  return {
    waitUntil(task) {
      const quiet = task.catch(() => {}).finally(() => tasks.delete(quiet))
      tasks.add(quiet)
    },

    timer(ms, run, isOptional) {
      const runOnce = () => {
        timers.delete(runOnce)
        run()
      }
      const cancel = systemTimer(isFinishing ? Math.min(ms, LAST_MS) : ms, runOnce, isOptional)
      timers.set(runOnce, cancel)
      return () => {
        timers.delete(runOnce)
        cancel()
      }
    },

    async finish(timeoutMs) {
      isFinishing = true
      // What the gateway would send later, such as statistics, is sent now.
      for (const [run, cancel] of [...timers]) {
        cancel()
        run()
      }
      const { promise: late, resolve } = Promise.withResolvers<false>()
      const cancel = systemTimer(timeoutMs, () => resolve(false))
      const done = (async () => {
        while (tasks.size > 0) await Promise.all(tasks)
        return true
      })()
      const isDone = await Promise.race([done, late])
      cancel()
      return isDone
    },
  }
}
