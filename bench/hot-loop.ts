/**
 * Measures a Redis that is always busy: records the commands of some decisions, and then sends them repeatedly without waiting for
 * replies. A client that computes decisions at the same time would take CPU from Redis.
 */
import type { RedisConnection } from '../src/node/rest-bridge/redis-connection.ts'
import { type Contender, eachOnce } from './contenders.ts'
import { countsInstructions } from './measure.ts'
import { commandsOf } from './redis-statistics.ts'
import type { Identity, TestBed } from './test-bed.ts'
import { straightTo, type Transport } from './transport.ts'

export interface HotLoop<C extends Identity> {
  make: (transport: Transport) => Contender<C>
  /** New callers, without any state. */
  callers: readonly C[]
  expected: 'allowed' | 'refused'
  /** How many allowed requests of each caller precede the measured ones. At least one, so that all state exists. */
  before?: number
  repeats?: number
}

/** @returns the cost of one decision, in the unit of `costOf` */
export async function inHotLoop<C extends Identity>(
  bed: TestBed,
  { make, callers, expected, before = 1, repeats: most = 20 }: HotLoop<C>,
): Promise<number> {
  const { redis } = bed
  const repeats = countsInstructions ? Math.min(most, 8) : most
  await warmUp(redis)
  const sent: (readonly (string | Buffer)[])[] = []
  const contender = make(straightTo(redis, sent))
  const record = async (answer: 'allowed' | 'refused') => {
    sent.length = 0
    await eachOnce(contender, callers, answer)
    return sent.splice(0)
  }
  const replay = async (commands: Awaited<ReturnType<typeof record>>, count: number) => {
    for (let i = 0; i < count; i++) await Promise.all(commands.map(command => redis.send(command)))
  }

  // The first decision may have to send the script itself.
  await record('allowed')
  if (before > 1) await replay(await record('allowed'), before - 2)
  const commands = await record(expected)
  const cost = await costOf(bed, () => replay(commands, repeats))
  // If the answer is still the same, it was the same for all repeats.
  await eachOnce(contender, callers, expected)
  return cost / (repeats * callers.length)
}

const WARM_UP = 20_000
let warmedUp: Promise<void> | undefined

/** While the code of the client is not compiled yet, Redis would wait for it. */
async function warmUp(redis: RedisConnection): Promise<void> {
  if (countsInstructions) return
  warmedUp ??= (async () => {
    for (let i = 0; i < WARM_UP; i += 100)
      await Promise.all(Array.from({ length: 100 }, () => redis.send(['GET', 'nothing'])))
  })()
  await warmedUp
}

/** @returns microseconds inside Redis; with `--instructions`, thousands of instructions of Redis */
export async function costOf(
  { redis, instructionsOf }: TestBed,
  work: () => Promise<unknown>,
): Promise<number> {
  return instructionsOf
    ? (await instructionsOf(work)) / 1000
    : (await commandsOf(redis, work)).scriptMicroseconds
}
