/**
 * Counts the instructions that a server executes for some commands, under callgrind. Unlike times, they do not depend on what else runs on the
 * machine, so a difference of one percent is visible in one run. They do not include cache misses, so confirm a result by times.
 *
 *     await instructionsOf({ before: [['SCRIPT', 'LOAD', source]], repeated: [['EVALSHA', sha1, '0']] })
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  type Command,
  connectRedis,
  type RedisConnection,
  RedisUnavailable,
} from '../src/node/rest-bridge/redis-connection.ts'

export interface Sequence {
  /** Run once, to create the state and to load scripts. */
  before: readonly Command[]
  /** What is measured. It must do the same each time. */
  repeated: readonly Command[]
}

export interface InstructionOptions {
  server?: 'redis-server' | 'valkey-server'
  times?: number
  /** Where to keep the profile of the longer run, for callgrind_annotate. */
  profile?: string
}

const DEADLINE_MS = 60_000

/**
 * Counts the instructions of one repetition: the difference between a run with one and a run with two times as many repetitions, so that the
 * start of the server does not count.
 * @throws Error if valgrind or the server is not installed, or a command fails
 */
export async function instructionsOf(
  { before, repeated }: Sequence,
  { server = 'redis-server', times = 200, profile }: InstructionOptions = {},
): Promise<number> {
  const run = (repetitions: number) =>
    underCallgrind(server, profile, async redis => {
      for (const command of before) await redis.send(command)
      for (let i = 0; i < repetitions; i++) for (const command of repeated) await redis.send(command)
    })
  const once = await run(times)
  return ((await run(2 * times)) - once) / times
}

/** @returns the instructions of the whole run */
async function underCallgrind(
  server: string,
  profile: string | undefined,
  work: (redis: RedisConnection) => Promise<void>,
): Promise<number> {
  const directory = mkdtempSync(join(tmpdir(), 'sluice-count-'))
  const [socket, counts] = [join(directory, 's'), profile ?? join(directory, 'counts')]
  // The server's timer runs by the clock, so it adds instructions to a slower run. Once a second, they do not matter.
  const settings = { port: '0', unixsocket: socket, save: '', appendonly: 'no', dir: directory, hz: '1' }
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value])
  const child = spawn('valgrind', ['--tool=callgrind', `--callgrind-out-file=${counts}`, server, ...args], {
    stdio: 'ignore',
  })
  try {
    const exited = once(child, 'exit')
    const redis = await connected(`unix://${socket}`, exited)
    await work(redis)
    redis.send(['SHUTDOWN', 'NOSAVE']).catch(() => {})
    await exited
    redis.close()
    return Number(/^(?:summary|totals): (\d+)/m.exec(readFileSync(counts, 'utf8'))![1])
  } finally {
    child.kill('SIGKILL')
    rmSync(directory, { recursive: true, force: true })
  }
}

/** Connects as soon as the server listens, which takes seconds under callgrind. */
async function connected(url: string, exited: Promise<unknown[]>): Promise<RedisConnection> {
  const ended = exited.then(() => {
    throw new Error('The server has not started. Are valgrind and the server installed?')
  })
  for (const until = Date.now() + DEADLINE_MS; ; ) {
    try {
      return await Promise.race([connectRedis(url, DEADLINE_MS), ended])
    } catch (error) {
      if (Date.now() > until || !(error instanceof RedisUnavailable)) throw error
      await new Promise(resolve => setTimeout(resolve, 100))
    }
  }
}
