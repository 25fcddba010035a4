/**
 * Measures what one decision about a caller costs Redis, for two contenders: server time while Redis is busy, billed commands, and
 * stored bytes.
 */
import { withClockSetBack } from './clock.ts'
import { type Contender, eachOnce } from './contenders.ts'
import { inHotLoop } from './hot-loop.ts'
import { inRounds } from './measure.ts'
import { bytesOf, commandsOf, keysOf } from './redis-statistics.ts'
import type { Rounds } from './report.ts'
import { type Identity, newIdentities, type TestBed } from './test-bed.ts'
import { straightTo, type Transport } from './transport.ts'

export const OUTCOMES = ['allowed', 'refused'] as const
export type Outcome = (typeof OUTCOMES)[number]

/** Makes a contender. `full`: its limits refuse a caller after `before` allowed requests. */
export type Make = (transport: Transport, full: boolean) => Contender<Identity>

export interface Match {
  own: Make
  theirs: Make
  /** How many allowed requests of a caller precede the measured ones, by outcome. Default: one. */
  before?: Record<Outcome, number>
  callers?: number
  repeats?: number
}

export interface Costs {
  /** Server time of one decision in each round of a run (µs). */
  time: number[]
  /** Billed commands of one decision that is not the first in its window. */
  commands: number
}

export interface Pair<T> {
  own: T
  theirs: T
}

const ROUNDS = 2
const ONCE = { allowed: 1, refused: 1 }

export async function costsOf(bed: TestBed, match: Match): Promise<Record<Outcome, Pair<Costs>>> {
  return {
    allowed: await costsWhere(bed, match, 'allowed'),
    refused: await costsWhere(bed, match, 'refused'),
  }
}

/** The values of each round, from which the medians are taken. */
export function roundsOf(
  what: string,
  against: string,
  costs: Awaited<ReturnType<typeof costsOf>>,
): Rounds[] {
  return OUTCOMES.flatMap(outcome => {
    const { own, theirs } = costs[outcome]
    return [
      {
        title: `Redis server time, ${what}, ${outcome}, µs per decision`,
        columns: { Sluice: own.time, [against]: theirs.time },
      },
      { title: `${what}, ${outcome}`, columns: { 'billed commands': [own.commands] } },
    ]
  })
}

/** Measures both contenders in turns. */
async function costsWhere(
  bed: TestBed,
  { own, theirs, before = ONCE, callers = 64, repeats }: Match,
  outcome: Outcome,
): Promise<Pair<Costs>> {
  const loop = (make: Make) => async () => {
    const time = await inHotLoop(bed, {
      make: transport => make(transport, outcome === 'refused'),
      callers: newIdentities(callers),
      expected: outcome,
      before: before[outcome],
      ...(repeats && { repeats }),
    })
    // Every measurement starts with an empty database, so that the size of earlier ones has no influence.
    await bed.redis.send(['FLUSHDB', 'SYNC'])
    return time
  }
  const time = await inRounds(ROUNDS, { own: loop(own), theirs: loop(theirs) })
  const commands = async (make: Make) => {
    const contender = make(straightTo(bed.redis, []), outcome === 'refused')
    const identities = newIdentities(Math.min(10, callers))
    for (let i = 0; i < before[outcome]; i++) await eachOnce(contender, identities, 'allowed')
    const counted = await commandsOf(bed.redis, () => eachOnce(contender, identities, outcome))
    return counted.commands / identities.length
  }
  return {
    own: { time: time.own, commands: await commands(own) },
    theirs: { time: time.theirs, commands: await commands(theirs) },
  }
}

/**
 * The bytes that Redis stores for one caller after a number of decisions.
 * @param lastWindow for limits with a key for each window: the length of a window (ms), so that the key of the window before exists too
 */
export async function bytesAfter(
  { redis }: TestBed,
  make: Make,
  decisions: number,
  lastWindow = 0,
): Promise<number> {
  // From an empty database, so that every key belongs to this caller.
  await redis.send(['FLUSHDB', 'SYNC'])
  const [caller] = newIdentities(1)
  const contender = make(straightTo(redis, []), false)
  for (const back of lastWindow > 0 ? [lastWindow, 0] : [0]) {
    await withClockSetBack(back, async () => {
      for (let i = 0; i < decisions; i++) await eachOnce(contender, [caller!], 'allowed')
    })
  }
  return await bytesOf(redis, await keysOf(redis, '*'))
}
