/** What Redis itself says about the commands it ran and the keys it holds. */
import type { RedisConnection } from '../src/node/rest-bridge/redis-connection.ts'

export interface CommandStatistics {
  /** All commands, those inside scripts too: Upstash bills each of them. */
  commands: number
  /** Time inside EVALSHA and EVAL, the commands they call included, in microseconds. */
  scriptMicroseconds: number
}

/** Runs something and tells what it cost Redis. */
export async function commandsOf(
  redis: RedisConnection,
  run: () => Promise<unknown>,
): Promise<CommandStatistics> {
  await redis.send(['CONFIG', 'RESETSTAT'])
  await run()
  const info = String(await redis.send(['INFO', 'commandstats']))

  let commands = 0
  let scriptMicroseconds = 0
  for (const [, name, calls, usec] of info.matchAll(/^cmdstat_(\S+?):calls=(\d+),usec=(\d+)/gm)) {
    // The questions asked here.
    if (name === 'info' || name?.startsWith('config')) continue
    commands += Number(calls)
    if (name === 'evalsha' || name === 'eval') scriptMicroseconds += Number(usec)
  }
  return { commands, scriptMicroseconds }
}

export async function keysOf(redis: RedisConnection, pattern: string): Promise<string[]> {
  return ((await redis.send(['KEYS', pattern])) as Buffer[]).map(String)
}

/** What it holds for all of these keys together. */
export async function bytesOf(redis: RedisConnection, keys: readonly string[]): Promise<number> {
  // Of a collection every element counts, not a sample of five.
  const sizes = await Promise.all(keys.map(key => redis.send(['MEMORY', 'USAGE', key, 'SAMPLES', '0'])))
  return sizes.reduce((sum: number, size) => sum + Number(size), 0)
}
