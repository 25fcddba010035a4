/**
 * What one decision about a caller costs Redis, for two contenders side by side: time while Redis is busy, billed
 * commands, bytes that stay.
 */
import { atClockBack } from './clock.ts'
import { type Contender, eachOnce } from './contenders.ts'
import { inHotLoop } from './hot-loop.ts'
import { inRounds } from './measure.ts'
import { bytesOf, commandsOf, keysOf } from './redis-statistics.ts'
import type { RawTable } from './report.ts'
import { type Identity, newIdentities, type TestBed } from './test-bed.ts'
import { straightTo, type Transport } from './transport.ts'

export const OUTCOMES = ['allowed', 'refused'] as const
export type Outcome = (typeof OUTCOMES)[number]

/** One side. `full`: so set up that it refuses who has been allowed `before` times. */
export type Make = (transport: Transport, full: boolean) => Contender<Identity>

export interface Match {
  own: Make
  theirs: Make
  /** How often a caller is allowed before what is measured, by outcome (else once). */
  before?: Record<Outcome, number>
  callers?: number
  repeats?: number
}

export interface Costs {
  /** µs of one decision, by round. */
  time: number[]
  /** Billed commands of one decision; not the first in a window. */
  commands: number
}

export interface Pair<T> {
  own: T
  theirs: T
}

const ROUNDS = 8
const ONCE = { allowed: 1, refused: 1 }

export async function costsOf(bed: TestBed, match: Match): Promise<Record<Outcome, Pair<Costs>>> {
  return {
    allowed: await costsWhere(bed, match, 'allowed'),
    refused: await costsWhere(bed, match, 'refused'),
  }
}

/** The values behind the medians. */
export function rawOf(what: string, against: string, costs: Awaited<ReturnType<typeof costsOf>>): RawTable[] {
  return OUTCOMES.map(outcome => ({
    title: `Redis server time, ${what}, ${outcome}, µs per decision`,
    columns: { Sluice: costs[outcome].own.time, [against]: costs[outcome].theirs.time },
    digits: 1,
  }))
}

/** Contenders take turns. */
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
    // Each finds a database of the same size, not one that still grows with those before.
    await bed.redis.send(['FLUSHDB', 'SYNC'])
    return time
  }
  // The first round finds a client whose code is not compiled yet, and which keeps Redis waiting.
  await inRounds(1, { own: loop(own), theirs: loop(theirs) })
  const time = await inRounds(ROUNDS, { own: loop(own), theirs: loop(theirs) })
  const commands = async (make: Make) => {
    const contender = make(straightTo(bed.redis, []), outcome === 'refused')
    const identities = newIdentities(10)
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
 * What Redis holds for one caller after so many decisions.
 * @param lastWindow milliseconds; where a limit has keys by window, those of the window before are there too
 */
export async function bytesAfter(
  { redis }: TestBed,
  make: Make,
  decisions: number,
  lastWindow = 0,
): Promise<number> {
  // Then every key is this caller's.
  await redis.send(['FLUSHDB', 'SYNC'])
  const [caller] = newIdentities(1)
  const contender = make(straightTo(redis, []), false)
  for (const back of lastWindow > 0 ? [lastWindow, 0] : [0]) {
    await atClockBack(back, async () => {
      for (let i = 0; i < decisions; i++) await eachOnce(contender, [caller!], 'allowed')
    })
  }
  return await bytesOf(redis, await keysOf(redis, '*'))
}
