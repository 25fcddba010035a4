/**
 * Redis kept busy: the commands of some decisions are written down as they are made, and then sent again and again,
 * without waiting for one reply before the next command. A client that decides meanwhile would take its processor
 * from Redis.
 */
import { type Contender, eachOnce } from './contenders.ts'
import { commandsOf } from './redis-statistics.ts'
import type { Identity, TestBed } from './test-bed.ts'
import { straightTo, type Transport } from './transport.ts'

export interface HotLoop<Who extends Identity> {
  make: (transport: Transport) => Contender<Who>
  /** Whom it is about; nobody has seen them yet. */
  callers: readonly Who[]
  expected: 'allowed' | 'refused'
  /** How often each is allowed before, at least once: then all state exists. */
  before?: number
  repeats?: number
}

/** @returns microseconds inside Redis of one decision */
export async function inHotLoop<Who extends Identity>(
  { redis }: TestBed,
  { make, callers, expected, before = 1, repeats = 20 }: HotLoop<Who>,
): Promise<number> {
  const sent: (readonly (string | Buffer)[])[] = []
  const contender = make(straightTo(redis, sent))
  const written = async (answer: 'allowed' | 'refused') => {
    sent.length = 0
    await eachOnce(contender, callers, answer)
    return sent.splice(0)
  }
  const again = async (commands: Awaited<ReturnType<typeof written>>, times: number) => {
    for (let i = 0; i < times; i++) await Promise.all(commands.map(command => redis.send(command)))
  }

  // The first time the script itself may have to be sent.
  await written('allowed')
  if (before > 1) await again(await written('allowed'), before - 2)
  const commands = await written(expected)
  const { scriptMicroseconds } = await commandsOf(redis, () => again(commands, repeats))
  // Still the same answer, so it was so all along.
  await eachOnce(contender, callers, expected)
  return scriptMicroseconds / (repeats * callers.length)
}
