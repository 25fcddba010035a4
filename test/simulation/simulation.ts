/**
 * Simulates the closed loop: callers → isolates of the gateway (shedder, limit) → origin → signals → controllers → isolates. It runs in
 * virtual time with a seed, so the same options have the same result. The result has one row for each second.
 */
import { limitForClass } from '../../src/config/compile-shedding.ts'
import type { AdaptiveLimitState } from '../../src/shedding/adaptive.ts'
import type { Controller } from '../../src/shedding/controller.ts'
import { type PressureSettings, placeOf, pressureController } from '../../src/shedding/pressure.ts'
import { shedShares } from '../support/shedding-settings.ts'
import { Fleet, type Travel } from './board.ts'
import { chanceFrom } from './chance.ts'
import { Events } from './events.ts'
import { Origin, type OriginOptions } from './origin.ts'

export interface CallerClass {
  name: string
  /** New requests per second, at a time in seconds. */
  perSecond(seconds: number): number
  /** Number of callers. */
  callers: number
  /** How many times a client repeats a request that was refused or has failed. */
  retries: number
}

export interface SimulationOptions {
  seed: number
  seconds: number
  origin: OriginOptions
  /** The least important first. With `shedding`, the last one is critical. */
  classes: readonly CallerClass[]
  isolates: number
  travel: Travel
  shedding?: PressureSettings
  /** Limit of requests in flight at the origin, for all isolates together: fixed or adaptive. */
  limit?: number | Controller<AdaptiveLimitState>
  /** The part of `limit` that only the last class may use. */
  reserved?: number
  /** Changes of the origin, with their times (s). */
  incidents?: readonly (readonly [seconds: number, happen: (origin: Origin) => void])[]
}

export interface ClassTally {
  /** New requests, without repetitions. */
  wanted: number
  /** All requests, with repetitions. */
  attempts: number
  /** Attempts that the shedder has refused. */
  shed: number
  /** Attempts that the limit has refused. */
  limited: number
  /** New requests that were answered in the end. */
  succeeded: number
  /** New requests whose caller has given up. */
  failed: number
}

export interface Second {
  seconds: number
  /** The mean share of busy workers, from ten samples. */
  utilization: number
  /** The mean number of requests in flight, from ten samples. */
  inFlight: number
  /** The limit, baseline and pressure that one of the isolates knows. */
  limit: number
  baselineMs: number
  pressureMs: number
  /** Requests that the limit has refused although the origin had room (`ROOM`). */
  limitedWithRoom: number
  /** Requests that the origin has answered in time. */
  answered: number
  /** The mean latency of the answered requests. */
  latencyMs: number
  failed: number
  shares: number[]
  classes: ClassTally[]
}

/** The origin has room while less than this share of its workers is busy. */
const ROOM = 0.8

/** The level of the fleet that has all classes but the critical one. */
const OTHERS = { match: { fromRank: 1 }, nextRank: Number.POSITIVE_INFINITY }

/** The pause before the first repetition. It doubles with each further one. */
const BACKOFF_MS = 500

export interface Simulated {
  seconds: Second[]
  /** By class, for each caller: how many times the shedder's decision differed from its last one for this caller. */
  turns: Uint16Array[]
}

export function simulate(options: SimulationOptions): Simulated {
  const { classes, isolates, limit, reserved = 0, seconds, seed, shedding, travel } = options
  const events = new Events()
  const [chance, originChance, networkChance] = [seed, seed + 1, seed + 2].map(chanceFrom) as [C, C, C]
  const origin = new Origin(options.origin, events, originChance)
  const pressure =
    shedding && new Fleet(pressureController(shedding), isolates, 2, events, networkChance, travel)
  const adaptive =
    typeof limit === 'object' ? new Fleet(limit, isolates, 5, events, networkChance, travel) : undefined
  const critical = classes.length - 1
  const limitOf = (isolate: number) =>
    Math.floor(
      adaptive
        ? adaptive.stateOf(isolate).limit
        : ((limit as number | undefined) ?? Number.POSITIVE_INFINITY),
    )

  let shares: readonly [appliedMs: number, shares: number[]] = [0, []]
  const sharesAt = (appliedMs: number) => {
    if (shares[0] !== appliedMs || shares[1].length === 0)
      shares = [appliedMs, shedShares(appliedMs, critical, shedding!)]
    return shares[1]
  }

  let inFlight = 0
  const turns = classes.map(({ callers }) => new Uint16Array(callers))
  const refused = classes.map(({ callers }) => new Uint8Array(callers))
  const rows: Second[] = []
  let row = newSecond()

  function newSecond(): Second {
    return {
      seconds: Math.round(events.now / 1000),
      utilization: 0,
      inFlight: 0,
      limit: 0,
      baselineMs: 0,
      pressureMs: 0,
      limitedWithRoom: 0,
      answered: 0,
      latencyMs: 0,
      failed: 0,
      shares: [],
      classes: classes.map(() => ({ wanted: 0, attempts: 0, shed: 0, limited: 0, succeeded: 0, failed: 0 })),
    }
  }

  function attempt(number: number, caller: number, left: number): void {
    const tally = row.classes[number]!
    tally.attempts++
    const isolate = chance.below(isolates)
    const retry = () => {
      if (left === 0) {
        row.classes[number]!.failed++
        return
      }
      const nth = classes[number]!.retries - left
      events.after(BACKOFF_MS * 2 ** nth * (0.5 + chance.uniform()), () => attempt(number, caller, left - 1))
    }

    if (pressure && shedding && number !== critical) {
      const { appliedMs, episode } = pressure.stateOf(isolate)
      const share = sharesAt(appliedMs)[number]!
      const isRefused = placeOf(`${classes[number]!.name}-${caller}`, episode) < share
      if (refused[number]![caller] !== Number(isRefused)) turns[number]![caller]!++
      refused[number]![caller] = Number(isRefused)
      if (isRefused) {
        tally.shed++
        retry()
        return
      }
    }
    const most =
      number === critical
        ? limitOf(isolate)
        : limitForClass(OTHERS, limitOf(isolate) - reserved, { rank: critical - number })
    if (inFlight >= most) {
      tally.limited++
      adaptive?.report(isolate, [0, 0, 0, 0, 1])
      if (origin.busyShare < ROOM) row.limitedWithRoom++
      retry()
      return
    }

    inFlight++
    const inFlightAtStart = inFlight
    origin.handle(({ isOk, latencyMs, utilization }) => {
      adaptive?.report(isolate, [1, isOk ? 0 : 1, isOk ? latencyMs : 0, inFlightAtStart, 0])
      if (utilization !== undefined) pressure?.report(isolate, [Math.round(utilization * 1000), 1])
      inFlight--
      if (!isOk) {
        row.failed++
        retry()
        return
      }
      row.answered++
      row.latencyMs += latencyMs
      row.classes[number]!.succeeded++
    })
  }

  for (const [number, { perSecond, callers, retries }] of classes.entries()) {
    const arrive = () => {
      const rate = perSecond(events.now / 1000)
      events.after(rate > 0 ? chance.gapMs(rate) : 1000, arrive)
      if (rate === 0) return
      row.classes[number]!.wanted++
      attempt(number, chance.below(callers), retries)
    }
    events.after(0, arrive)
  }
  for (const [at, happen] of options.incidents ?? []) events.at(at * 1000, () => happen(origin))

  for (let second = 0; second < seconds; second++) {
    row = newSecond()
    for (let part = 1; part <= 10; part++) {
      events.runUntil(second * 1000 + part * 100)
      row.utilization += Math.min(1, origin.busyShare) / 10
      row.inFlight += inFlight / 10
    }
    row.limit = limitOf(0)
    row.baselineMs = adaptive?.stateOf(0).baselineMs ?? 0
    row.pressureMs = pressure?.stateOf(0).pressureMs ?? 0
    row.shares = pressure ? sharesAt(pressure.stateOf(0).appliedMs) : []
    if (row.answered > 0) row.latencyMs /= row.answered
    rows.push(row)
  }
  return { seconds: rows, turns }
}

type C = ReturnType<typeof chanceFrom>
