/** Measures how late the timers of this process are. Tests allow for this time, and only for this, on a machine that is busy. */

export interface LatenessMeter {
  /** The longest lateness of a timer since an instant (ms). @param since by performance.now() */
  longestSince(since: number): number
  /** The sum of the lateness since the start (ms): about how long this process could not run. */
  total(): number
  stop(): void
}

/** The interval of the timer (ms). */
const TICK_MS = 10

/** A shorter lateness is not recorded (ms). */
const NOTABLE_MS = 20

export function startLatenessMeter(): LatenessMeter {
  const recorded: { at: number; ms: number }[] = []
  let last = performance.now()
  let total = 0
  const lateSinceLast = () => performance.now() - last - TICK_MS
  const timer = setInterval(() => {
    const ms = lateSinceLast()
    last = performance.now()
    if (ms < NOTABLE_MS) return
    recorded.push({ at: last, ms })
    total += ms
  }, TICK_MS)
  timer.unref()
  return {
    longestSince: since =>
      Math.max(0, lateSinceLast(), ...recorded.filter(({ at }) => at >= since).map(({ ms }) => ms)),
    total: () => total,
    stop: () => clearInterval(timer),
  }
}
