/** What the simulation is asked, by tests and for pictures. */

import { adaptiveController } from '../../src/shedding/adaptive.ts'
import type { AdaptiveMethod } from '../../src/shedding/adaptive-method.ts'
import { aimd } from '../../src/shedding/aimd.ts'
import { gradient } from '../../src/shedding/gradient.ts'
import { PRESSURE_DEFAULTS } from '../../src/shedding/pressure.ts'
import type { OriginOptions } from './origin.ts'
import {
  type CallerClass,
  type Second,
  type Simulated,
  type SimulationOptions,
  simulate,
} from './simulation.ts'

const SEED = 20261122

const fleet = { seed: SEED, isolates: 12, travel: { delayMs: 150, loss: 0.02 } }

/** Ten machines that answer 100 requests a second in all. */
const tenMachines: OriginOptions = {
  machines: 10,
  workers: 4,
  queue: 20,
  serviceMs: 400,
  sigma: 0.5,
  timeoutMs: 3000,
}

/** Of all requests. What is critical is 22 a second at three times the load: it fits into the origin four times. */
const PARTS = { test: 0.1, reads: 0.5, writes: 0.25, critical: 0.15 }

export const CLASSES = Object.keys(PARTS)

/** Each class repeats what was refused or failed twice. */
function callersAt(perSecond: (seconds: number) => number): CallerClass[] {
  return Object.entries(PARTS).map(([name, part]) => ({
    name,
    perSecond: seconds => part * perSecond(seconds),
    callers: 300,
    retries: 2,
  }))
}

/** Half of what the origin can do. */
export const USUAL_LOAD = 50

/** Through the given points (seconds, multiple of the usual load), straight between them. */
function loadThrough(...points: readonly (readonly [number, number])[]): (seconds: number) => number {
  return seconds => {
    const next = points.findIndex(([at]) => at > seconds)
    const [from, to] =
      next < 0 ? [points.at(-1)!, points.at(-1)!] : [points[Math.max(0, next - 1)]!, points[next]!]
    const part = to[0] === from[0] ? 0 : Math.max(0, (seconds - from[0]) / (to[0] - from[0]))
    return USUAL_LOAD * (from[1] + part * (to[1] - from[1]))
  }
}

const shedding = { ...fleet, origin: tenMachines, shedding: PRESSURE_DEFAULTS }

/** To three times the usual load within eight minutes, five minutes there, and back. */
export const RISE = { from: 60, top: 540, falls: 840, back: 1320 }
export function runThreefold(seed = SEED): Simulated {
  const load = loadThrough([0, 1], [RISE.from, 1], [RISE.top, 3], [RISE.falls, 3], [RISE.back, 1])
  return simulate({ ...shedding, seed, seconds: 1560, classes: callersAt(load) })
}

/** Three times the load from one second to the next, for five minutes. With `limit`, the fleet's capacity is bounded as well. */
export const STEP = { at: 60, until: 360 }
export function runStep(withCapacity: boolean): Simulated {
  const load = loadThrough([0, 1], [STEP.at, 1], [STEP.at + 1, 3], [STEP.until, 3], [STEP.until + 1, 1])
  const capacity = withCapacity && { limit: 80, reserved: 20 }
  return simulate({ ...shedding, ...capacity, seconds: 600, classes: callersAt(load) })
}

/** Far more than the origin can do without its critical part: pressure reaches its end. */
export function runOverwhelmed(): Simulated {
  const origin = { ...tenMachines, workers: 1 }
  const load = (seconds: number) => (seconds < 60 ? 0.3 : seconds < 240 ? 3 : 0.3) * USUAL_LOAD
  return simulate({ ...shedding, origin, seconds: 420, classes: callersAt(load) })
}

/** One of ten machines takes five times as long for everything, and is always busy. */
export function runBadMachine(): Simulated {
  return simulate({
    ...shedding,
    seconds: 240,
    classes: callersAt(() => 1.3 * USUAL_LOAD),
    incidents: [[60, ({ machines }) => Object.assign(machines[3]!, { slowness: 5 })]],
  })
}

/** The origin is overloaded, callers are refused, and then no machine reports any more. */
export const SILENCE_AT = 220
export function runDeadSignal(): Simulated {
  const load = loadThrough([0, 1], [20, 2.2])
  const silence = (origin: { machines: readonly { hasSignal: boolean }[] }) => {
    for (const machine of origin.machines) machine.hasSignal = false
  }
  return simulate({ ...shedding, seconds: 380, classes: callersAt(load), incidents: [[SILENCE_AT, silence]] })
}

/** Four machines with ten workers, 200 requests a second in all, and callers that want 280. */
const fourMachines: OriginOptions = {
  machines: 4,
  workers: 10,
  queue: 200,
  serviceMs: 200,
  sigma: 0.5,
  timeoutMs: 2000,
}
export const WORKERS = fourMachines.machines * fourMachines.workers

const everyone = (perSecond: (seconds: number) => number): CallerClass[] => [
  { name: 'all', perSecond, callers: 500, retries: 1 },
]

export const METHODS: Record<string, AdaptiveMethod> = { gradient, aimd }

type Limit = NonNullable<SimulationOptions['limit']>

export const limitBy = (method: AdaptiveMethod): Limit => adaptiveController(undefined, method)

/** From `from` to `until`, half of the workers are gone. */
export const HALF = { from: 80, until: 160 }
export function runHalvedCapacity(limit: Limit, seed = SEED): Second[] {
  return simulate({
    ...fleet,
    seed,
    seconds: 240,
    origin: fourMachines,
    classes: everyone(() => 280),
    limit,
    incidents: [
      [HALF.from, origin => origin.setWorkers(5)],
      [HALF.until, origin => origin.setWorkers(10)],
    ],
  }).seconds
}

/** The fixed limits among which the best one is looked for. */
export const SWEEP = [20, 40, 44, 48, 56, 120, 400]

/** What `bestFixed` finds in the sweep. */
export const BEST_FIXED = 48

/** The limit by which most requests are answered in time; of those within 1 %, the lowest. */
export function bestFixed(runs: ReadonlyMap<number, Second[]>): number {
  const answered = (limit: number) => total(runs.get(limit)!, second => second.answered)
  const most = Math.max(...[...runs.keys()].map(answered))
  return Math.min(...[...runs.keys()].filter(limit => answered(limit) >= 0.99 * most))
}

/** At 100 s every response begins to take twice as long, for good. */
export const SLOWER_AT = 100
export function runSlowerForGood(limit: Limit, perSecond: number, seed = SEED): Second[] {
  return simulate({
    ...fleet,
    seed,
    seconds: 300,
    origin: fourMachines,
    classes: everyone(() => perSecond),
    limit,
    incidents: [
      [
        SLOWER_AT,
        origin => {
          origin.serviceMs *= 2
        },
      ],
    ],
  }).seconds
}

/** More than the origin can do, for ten minutes. */
export function runLongOverload(limit: Limit, seed = SEED): Second[] {
  const classes = everyone(() => 280)
  return simulate({ ...fleet, seed, seconds: 600, origin: fourMachines, classes, limit }).seconds
}

/** Seven tenths of what the origin can do, for ten minutes. */
export function runFittingLoad(limit: Limit, seed = SEED): Second[] {
  const classes = everyone(seconds => Math.min(140, 20 + 4 * seconds))
  return simulate({ ...fleet, seed, seconds: 600, origin: fourMachines, classes, limit }).seconds
}

export function total(seconds: readonly Second[], of: (second: Second) => number): number {
  return seconds.reduce((sum, second) => sum + of(second), 0)
}

export function mean(seconds: readonly Second[], of: (second: Second) => number): number {
  return total(seconds, of) / seconds.length
}

/** What was seen from `from` up to, not including, `until` (s). */
export function between(seconds: readonly Second[], from: number, until: number): Second[] {
  return seconds.filter(second => second.seconds >= from && second.seconds < until)
}
