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
  let commands = 0
  let scriptMicroseconds = 0
  for (const { name, calls, microseconds } of await statisticsOf(redis)) {
    // The questions asked here.
    if (name === 'info' || name.startsWith('config')) continue
    commands += calls
    if (isScript(name)) scriptMicroseconds += microseconds
  }
  return { commands, scriptMicroseconds }
}

/** What Redis has done since it started. */
export interface RedisTotals {
  /** EVALSHA and EVAL. */
  scriptCalls: number
  scriptMicroseconds: number
  /** CPU time of the whole process, user and system together. */
  cpuMicroseconds: number
}

export async function totalsOf(redis: RedisConnection): Promise<RedisTotals> {
  const scripts = (await statisticsOf(redis)).filter(({ name }) => isScript(name))
  const cpu = String(await redis.send(['INFO', 'cpu']))
  const seconds = [...cpu.matchAll(/^used_cpu_(?:user|sys):([\d.]+)/gm)].map(([, value]) => Number(value))
  return {
    scriptCalls: scripts.reduce((sum, { calls }) => sum + calls, 0),
    scriptMicroseconds: scripts.reduce((sum, { microseconds }) => sum + microseconds, 0),
    cpuMicroseconds: 1e6 * seconds.reduce((sum, value) => sum + value, 0),
  }
}

const isScript = (name: string) => name === 'evalsha' || name === 'eval'

async function statisticsOf(redis: RedisConnection) {
  const info = String(await redis.send(['INFO', 'commandstats']))
  return [...info.matchAll(/^cmdstat_(\S+?):calls=(\d+),usec=(\d+)/gm)].map(([, name, calls, usec]) => ({
    name: name!,
    calls: Number(calls),
    microseconds: Number(usec),
  }))
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
