/** Reads the statistics of Redis about its commands and keys. */
import type { RedisConnection } from '../src/node/rest-bridge/redis-connection.ts'

export interface CommandStatistics {
  /** All commands, including those inside scripts: Upstash bills each of them. */
  commands: number
  /** Time inside EVALSHA and EVAL, including the commands that they call, in microseconds. */
  scriptMicroseconds: number
}

/** Runs a function, and returns what it cost Redis. */
export async function commandsOf(
  redis: RedisConnection,
  run: () => Promise<unknown>,
): Promise<CommandStatistics> {
  await redis.send(['CONFIG', 'RESETSTAT'])
  await run()
  let commands = 0
  let scriptMicroseconds = 0
  for (const { name, calls, microseconds } of await statisticsOf(redis)) {
    // The commands that read the statistics do not count.
    if (name === 'info' || name.startsWith('config')) continue
    commands += calls
    if (isScript(name)) scriptMicroseconds += microseconds
  }
  return { commands, scriptMicroseconds }
}

/** Statistics since Redis was started. */
export interface RedisTotals {
  /** Calls of EVALSHA and EVAL. */
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

/** The bytes that Redis needs for all of these keys together. */
export async function bytesOf(redis: RedisConnection, keys: readonly string[]): Promise<number> {
  // SAMPLES 0 measures every element of a collection instead of a sample of five.
  const sizes = await Promise.all(keys.map(key => redis.send(['MEMORY', 'USAGE', key, 'SAMPLES', '0'])))
  return sizes.reduce((sum: number, size) => sum + Number(size), 0)
}

/** The bytes that Redis has allocated (`used_memory`). */
export async function usedMemory(redis: RedisConnection): Promise<number> {
  const info = String(await redis.send(['INFO', 'memory']))
  return Number(/^used_memory:(\d+)/m.exec(info)![1])
}
