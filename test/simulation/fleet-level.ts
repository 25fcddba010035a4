/**
 * A level of the fleet whose three classes want equally much: Poisson arrivals, exponential durations of a second, no retries. This is the
 * model of a trunk group in telephone networks.
 */
import { limitForClass } from '../../src/config/compile-shedding.ts'
import { chanceFrom } from './chance.ts'
import { Events } from './events.ts'
import { SEED } from './scenarios.ts'

const SECONDS = 200

export interface LevelResult {
  /** The share of requests that was admitted, by class, the most important first. */
  admitted: number[]
  /** The mean share of the limit in use. */
  used: number
}

/** @param load requests that all classes want in flight, as a multiple of the limit @param hasRoom whether classes leave room */
export function runLevel(limit: number, load: number, hasRoom: boolean): LevelResult {
  const [chance, events] = [chanceFrom(SEED), new Events()]
  const rule = { match: { fromRank: 0 }, nextRank: hasRoom ? Number.POSITIVE_INFINITY : 1 }
  const limits = [0, 1, 2].map(rank => limitForClass(rule, limit, { rank }))
  const [wanted, admitted] = [
    [0, 0, 0],
    [0, 0, 0],
  ]
  let [inFlight, busyMs] = [0, 0]
  const arrive = () => {
    events.after(chance.gapMs(load * limit), arrive)
    const rank = chance.below(3)
    wanted[rank]!++
    if (inFlight >= limits[rank]!) return
    const ms = chance.gapMs(1)
    admitted[rank]!++
    inFlight++
    busyMs += ms
    events.after(ms, () => {
      inFlight--
    })
  }
  events.after(0, arrive)
  events.runUntil(SECONDS * 1000)
  return { admitted: admitted.map((count, i) => count / wanted[i]!), used: busyMs / (limit * SECONDS * 1000) }
}
