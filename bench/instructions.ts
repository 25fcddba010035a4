/**
 * Counts the instructions that a server executes for some work, under callgrind. Unlike times, they do not depend on what else runs on the
 * machine, so a difference of one percent is visible in one run. They do not include cache misses, so confirm a result by times.
 *
 *     const server = await startCountingServer('redis-server', directory)
 *     await server.instructionsOf(() => redis.send(['EVALSHA', sha1, '0']))
 */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { connectRedis, RedisUnavailable } from '../src/node/rest-bridge/redis-connection.ts'

export interface CountingServer {
  pid: number
  /** `unix://…` */
  url: string
  /** Runs some work. @returns the instructions that the server executes meanwhile */
  instructionsOf(work: () => Promise<unknown>): Promise<number>
  close(): Promise<void>
}

const DEADLINE_MS = 60_000

/**
 * @param directory for its socket, and for a profile of each count: `counts.1`, `counts.2` and so on, for callgrind_annotate
 * @throws Error if valgrind or the server is not installed
 */
export async function startCountingServer(
  program: 'redis-server' | 'valkey-server',
  directory: string,
): Promise<CountingServer> {
  const [socket, counts, pipes] = ['s', 'counts', 'vgdb'].map(name => join(directory, name)) as [
    string,
    string,
    string,
  ]
  const settings = { port: '0', unixsocket: socket, save: '', appendonly: 'no', dir: directory }
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value])
  // From the arguments of a command to its reply. The server's timer, which runs by the clock, would add instructions to a slower run.
  const counted = ['--instr-atstart=no', '--toggle-collect=processInputBuffer']
  const callgrind = ['--tool=callgrind', ...counted, `--callgrind-out-file=${counts}`]
  const child = spawn('valgrind', [...callgrind, `--vgdb-prefix=${pipes}`, program, ...args], {
    detached: true,
    stdio: 'ignore',
  })
  const exited = once(child, 'exit')
  await listening(`unix://${socket}`, exited)
  const tell = (...words: string[]) =>
    promisify(execFile)('vgdb', [
      `--pid=${child.pid}`,
      `--vgdb-prefix=${pipes}`,
      '--max-invoke-ms=1',
      ...words,
    ])
  let taken = 0
  return {
    pid: child.pid!,
    url: `unix://${socket}`,
    async instructionsOf(work) {
      await tell('instrumentation', 'on')
      await work()
      await tell('dump')
      await tell('instrumentation', 'off')
      taken += 1
      return Number(/^totals: (\d+)/m.exec(readFileSync(`${counts}.${taken}`, 'utf8'))![1])
    },
    async close() {
      child.kill('SIGKILL')
      await exited
    },
  }
}

/** Waits until the server listens, which takes seconds under callgrind. */
async function listening(url: string, exited: Promise<unknown[]>): Promise<void> {
  const ended = exited.then(() => {
    throw new Error('The server has not started. Are valgrind and the server installed?')
  })
  for (const until = Date.now() + DEADLINE_MS; ; ) {
    try {
      const redis = await Promise.race([connectRedis(url, DEADLINE_MS), ended])
      redis.close()
      return
    } catch (error) {
      if (Date.now() > until || !(error instanceof RedisUnavailable)) throw error
      await new Promise(resolve => setTimeout(resolve, 100))
    }
  }
}
