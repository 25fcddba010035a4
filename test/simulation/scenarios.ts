/** The scenarios of the simulation, for tests and for the pictures in the docs. */

import { type AdaptiveSettings, adaptiveController } from '../../src/shedding/adaptive.ts'
import type { AdaptiveMethod } from '../../src/shedding/adaptive-method.ts'
import { aimd } from '../../src/shedding/aimd.ts'
import { gradient } from '../../src/shedding/gradient.ts'
import type { PressureSettings } from '../../src/shedding/pressure.ts'
import { ADAPTIVE_SETTINGS, PRESSURE_SETTINGS } from '../support/shedding-settings.ts'
import type { OriginOptions } from './origin.ts'
import {
  type CallerClass,
  type Second,
  type Simulated,
  type SimulationOptions,
  simulate,
} from './simulation.ts'

/** The seed of the published figures. */
export const SEED = 20261122

const fleet = { seed: SEED, isolates: 12, travel: { delayMs: 150, loss: 0.02 } }

/** Ten machines that together answer 100 requests per second. */
const tenMachines: OriginOptions = {
  machines: 10,
  workers: 4,
  queue: 20,
  serviceMs: 400,
  sigma: 0.5,
  timeoutMs: 3000,
}

/** The shares of the classes. At three times the usual load, critical requests are 22 per second, a quarter of the origin's capacity. */
const PARTS = { test: 0.1, reads: 0.5, writes: 0.25, critical: 0.15 }

export const CLASSES = Object.keys(PARTS)

/** Callers of each class repeat requests that were refused or failed, up to twice. */
function callersAt(perSecond: (seconds: number) => number): CallerClass[] {
  return Object.entries(PARTS).map(([name, part]) => ({
    name,
    perSecond: seconds => part * perSecond(seconds),
    callers: 300,
    retries: 2,
  }))
}

/** Requests per second: half of the origin's capacity. */
export const USUAL_LOAD = 50

/** A load that is linear between the given points (seconds, multiple of the usual load). */
function loadThrough(...points: readonly (readonly [number, number])[]): (seconds: number) => number {
  return seconds => {
    const next = points.findIndex(([at]) => at > seconds)
    const [from, to] =
      next < 0 ? [points.at(-1)!, points.at(-1)!] : [points[Math.max(0, next - 1)]!, points[next]!]
    const part = to[0] === from[0] ? 0 : Math.max(0, (seconds - from[0]) / (to[0] - from[0]))
    return USUAL_LOAD * (from[1] + part * (to[1] - from[1]))
  }
}

const shedding = { ...fleet, origin: tenMachines, shedding: PRESSURE_SETTINGS }

/** A limit of requests in flight, a quarter of it only for critical requests: the fleet capacity that the docs recommend beside the shedder. */
const CAPACITY = { limit: 80, reserved: 20 }

/** The shedder, with the fleet capacity or alone. */
const sheddingWith = (hasCapacity: boolean) => ({ ...shedding, ...(hasCapacity && CAPACITY) })

/** The load grows to three times the usual within eight minutes, stays there for five minutes, and falls back. */
export const RISE = { from: 60, top: 540, falls: 840, back: 1320 }
export function runThreefold(hasCapacity = false, seed = SEED, settings = PRESSURE_SETTINGS): Simulated {
  const load = loadThrough([0, 1], [RISE.from, 1], [RISE.top, 3], [RISE.falls, 3], [RISE.back, 1])
  return simulate({
    ...sheddingWith(hasCapacity),
    shedding: settings,
    seed,
    seconds: 1860,
    classes: callersAt(load),
  })
}

/** The load grows to three times the usual within some seconds, stays there for five minutes, and falls back at once. */
export const FAST = { at: 60, heightSeconds: 299, restSeconds: 240 }
export function runFastRise(riseSeconds: number, hasCapacity: boolean, seed = SEED): Simulated {
  const top = FAST.at + riseSeconds
  const until = top + FAST.heightSeconds
  const load = loadThrough([0, 1], [FAST.at, 1], [top, 3], [until, 3], [until + 1, 1])
  const seconds = until + FAST.restSeconds
  return simulate({ ...sheddingWith(hasCapacity), seed, seconds, classes: callersAt(load) })
}

/** The same settings with the other pace. */
export const FULL_PACE: PressureSettings = { ...PRESSURE_SETTINGS, pace: 'full' }

/** Half of the workers of each machine are gone for ten minutes, at a load of three quarters of what all can do. */
export const HALF_GONE = { from: 60, until: 660 }
export function runHalfGone(settings = PRESSURE_SETTINGS, seed = SEED): Simulated {
  const { workers } = tenMachines
  return simulate({
    ...{ ...shedding, shedding: settings, seed, seconds: 1080, classes: callersAt(() => 1.5 * USUAL_LOAD) },
    incidents: [
      [HALF_GONE.from, origin => origin.setWorkers(workers / 2)],
      [HALF_GONE.until, origin => origin.setWorkers(workers)],
    ],
  })
}

/** A load of 0.85 of what the origin can do, for fifteen minutes. */
export const STEADY = { from: 60, until: 960 }
export function runSteady(settings = PRESSURE_SETTINGS, seed = SEED): Simulated {
  const { from, until } = STEADY
  const load = (seconds: number) => (seconds < from || seconds >= until ? 1 : 1.7) * USUAL_LOAD
  return simulate({ ...shedding, shedding: settings, seed, seconds: 1260, classes: callersAt(load) })
}

/** The load triples within a second. */
export const STEP = { at: FAST.at, until: FAST.at + 1 + FAST.heightSeconds }
export const runStep = (hasCapacity: boolean) => runFastRise(1, hasCapacity)

/** Far more load than the origin can serve, and then hardly any. The critical class alone nearly fills the origin, so the pressure reaches its maximum. */
export function runOverwhelmed(hasCapacity = false, seed = SEED): Simulated {
  const origin = { ...tenMachines, workers: 1 }
  const load = (seconds: number) => (seconds < 60 ? 0.3 : seconds < 240 ? 3 : 0.05) * USUAL_LOAD
  return simulate({ ...sheddingWith(hasCapacity), seed, origin, seconds: 480, classes: callersAt(load) })
}

/** One of ten machines becomes five times as slow, and is always busy. */
export function runBadMachine(hasCapacity = false, seed = SEED): Simulated {
  return simulate({
    ...sheddingWith(hasCapacity),
    seed,
    seconds: 240,
    classes: callersAt(() => 1.3 * USUAL_LOAD),
    incidents: [[60, ({ machines }) => Object.assign(machines[3]!, { slowness: 5 })]],
  })
}

/** The origin is overloaded, and callers are refused. Then all machines stop reporting. */
export const SILENCE_AT = 220
export function runDeadSignal(hasCapacity = false, seed = SEED): Simulated {
  const load = loadThrough([0, 1], [20, 2.2])
  const silence = (origin: { machines: readonly { hasSignal: boolean }[] }) => {
    for (const machine of origin.machines) machine.hasSignal = false
  }
  const incidents = [[SILENCE_AT, silence]] as const
  return simulate({ ...sheddingWith(hasCapacity), seed, seconds: 380, classes: callersAt(load), incidents })
}

/** Four machines with ten workers each, which together answer 200 requests per second. */
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

export const limitBy = (method: AdaptiveMethod, settings: Partial<AdaptiveSettings> = {}): Limit =>
  adaptiveController({ ...ADAPTIVE_SETTINGS, ...settings }, method)

/** Like `limitBy`, with a start value as docs/load-shedding.md recommends: what the origin can certainly handle. */
export const startedBy = (method: AdaptiveMethod): Limit => limitBy(method, { initial: WORKERS })

/** Half of the workers are gone between `from` and `until` (s). */
export const HALF = { from: 80, until: 160 }
export function runHalvedCapacity(limit: Limit, seed = SEED, { from, until } = HALF): Second[] {
  return simulate({
    ...fleet,
    seed,
    seconds: until + 80,
    origin: fourMachines,
    classes: everyone(() => 280),
    limit,
    incidents: [
      [from, origin => origin.setWorkers(5)],
      [until, origin => origin.setWorkers(10)],
    ],
  }).seconds
}

/** The fixed limits that are compared. */
export const SWEEP = [20, 40, 44, 48, 56, 120, 400]

/** The result of `bestFixed` for the sweep. */
export const BEST_FIXED = 48

/** The lowest limit whose number of requests answered in time is within 1 % of the highest. */
export function bestFixed(runs: ReadonlyMap<number, Second[]>): number {
  const answered = (limit: number) => total(runs.get(limit)!, second => second.answered)
  const most = Math.max(...[...runs.keys()].map(answered))
  return Math.min(...[...runs.keys()].filter(limit => answered(limit) >= 0.99 * most))
}

/** At this time (s), all service times double permanently. */
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

/** More load than the origin can serve, for ten minutes. */
export function runLongOverload(limit: Limit, seed = SEED): Second[] {
  const classes = everyone(() => 280)
  return simulate({ ...fleet, seed, seconds: 600, origin: fourMachines, classes, limit }).seconds
}

/** Seven tenths of the origin's capacity, for ten minutes. */
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

/** The seconds from `from` to before `until`. */
export function between(seconds: readonly Second[], from: number, until: number): Second[] {
  return seconds.filter(second => second.seconds >= from && second.seconds < until)
}

/** The share of a class's requests that were answered in the end. */
export function successOf(seconds: readonly Second[], number: number): number {
  const succeeded = total(seconds, ({ classes }) => classes[number]!.succeeded)
  const failed = total(seconds, ({ classes }) => classes[number]!.failed)
  return succeeded / (succeeded + failed)
}

/** The lowest share of a class's requests that were answered in the end, of all half-minutes from the start. */
export function worstHalfMinute(seconds: readonly Second[], number: number): number {
  const parts = Array.from({ length: Math.floor(seconds.length / 30) }, (_, i) =>
    seconds.slice(30 * i, 30 * (i + 1)),
  )
  return Math.min(...parts.map(part => successOf(part, number)))
}

/** How many times the refused share changes between growing and shrinking. */
export function turnsOf(seconds: readonly Second[]): number {
  const sharesOf = ({ shares }: Second) => shares.reduce((sum, share) => sum + share, 0)
  const steps = seconds.slice(1).map((second, i) => Math.sign(sharesOf(second) - sharesOf(seconds[i]!)))
  const moves = steps.filter(step => step !== 0)
  return moves.filter((move, i) => i > 0 && move !== moves[i - 1]).length
}
