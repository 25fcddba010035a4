/**
 * The pressure of this process, where the process is the machine that can be too busy: a guard on Node, Express, `serve`. It follows
 * the process alone, and is not shared: a busy process sheds its own requests, and the others do not. So it needs no store.
 */
import type { ProcessSignal, WorkerUtilization } from '../config/compile-shedding.ts'
import { type Pressure, pressureController } from './pressure.ts'
import { pressureSettings } from './worker-utilization.ts'

/** The least time between two measurements (ms). */
const WINDOW_MS = 1000

/**
 * The most time that one measurement stands for (ms). Unlike a signal of the fleet, it is known for all of its time: a blocked loop
 * measures only when it goes on. Bounded, because a process that was suspended while it worked seems to have been busy all the time.
 */
const KNOWN_MS = 30_000

/** The time that a process was busy, and the time that has passed, since any start (ms). Undefined: the platform does not measure it. */
export type BusyTime = readonly [busyMs: number, ms: number]

/** Reads a signal of this process. */
export type ProcessUsage = (signal: ProcessSignal) => BusyTime | undefined

/** The globals of Node. On Workers they are missing, or throw. */
const usageOfNode: ProcessUsage = signal => {
  const { performance, process } = globalThis as unknown as {
    performance: { now(): number; eventLoopUtilization?(): { active: number; idle: number } }
    process?: { cpuUsage?(): { user: number; system: number } }
  }
  try {
    if (signal === 'cpu') {
      const used = process?.cpuUsage?.()
      return used && [(used.user + used.system) / 1e3, performance.now()]
    }
    const loop = performance.eventLoopUtilization?.()
    return loop && [loop.active, loop.active + loop.idle]
  } catch {
    return undefined
  }
}

/**
 * Creates the pressure of this process. It is measured when it is read, at most once a second.
 * @param now monotonic (ms)
 */
export function createProcessPressure(
  settings: WorkerUtilization,
  now: () => number,
  usage: ProcessUsage = usageOfNode,
): () => Pressure {
  const controller = pressureController(pressureSettings(settings), KNOWN_MS)
  const signals = settings.ofProcess ?? []
  let state = controller.initial
  let before = signals.map(usage)
  let measuredAt = now()
  return () => {
    const ms = now() - measuredAt
    if (ms >= 0 && ms < WINDOW_MS) return state
    const current = signals.map(usage)
    const sums = current.flatMap((time, i) => {
      const share = time && before[i] ? (time[0] - before[i][0]) / (time[1] - before[i][1]) : Number.NaN
      return share >= 0 ? [Math.min(share, 1) * 1000, 1] : []
    })
    state = controller.next(state, { sums, ms })
    before = current
    measuredAt += ms
    return state
  }
}
