/** A private redis-server that tests can kill, freeze and restart. By default it keeps no files, so it is empty after a restart. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { RedisServer, type Reply, withDeadline } from '../../src/node/rest-bridge/redis-server.ts'
import { freePort } from './free-port.ts'
import { STORE_SERVER } from './servers.ts'

export interface RedisProcess {
  port: number
  host: string
  /** The working directory. If it is removed, Redis cannot write snapshots. */
  directory: string
  /** As the default user. */
  url: string
  start(): Promise<void>
  kill(): Promise<void>
  freeze(): void
  thaw(): void
  /** Sends a command over a new connection. */
  send(...command: string[]): Promise<Reply>
  close(): Promise<void>
}

const host = '127.0.0.1'
const DEADLINE_MS = 5000

/**
 * @param own settings of redis.conf in addition to those of all tests. Paths of files are relative to the working directory.
 * @param prepare writes files into the working directory, before the server starts
 */
export async function startRedisProcess(
  own: Readonly<Record<string, string>> = {},
  prepare: (directory: string) => void = () => {},
): Promise<RedisProcess> {
  const directory = mkdtempSync(join(tmpdir(), 'sluice-'))
  prepare(directory)
  const port = await freePort()
  let child: ChildProcess

  async function start(): Promise<void> {
    const settings = {
      port: String(port),
      bind: host,
      save: '',
      dir: directory,
      'repl-diskless-sync-delay': '0',
      ...own,
    }
    const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value])
    child = spawn(STORE_SERVER, args, { stdio: 'ignore', cwd: directory })
    const until = performance.now() + 10_000
    while (!(await send('PING').catch(() => undefined))) {
      if (performance.now() > until) throw new Error('The Redis of this test does not start.')
      await new Promise(resolve => setTimeout(resolve, 10))
    }
  }

  async function kill(): Promise<void> {
    const exited = once(child, 'exit')
    child.kill('SIGKILL')
    await exited
  }

  const send = (...command: string[]) => sendTo(`redis://${host}:${port}`, command)

  await start()
  return {
    port,
    host,
    directory,
    url: `redis://${host}:${port}`,
    start,
    kill,
    freeze: () => void child.kill('SIGSTOP'),
    thaw: () => void child.kill('SIGCONT'),
    send,
    async close() {
      if (child.exitCode === null && child.signalCode === null) await kill()
      rmSync(directory, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}

/** Sends a command over a new connection. */
export async function sendTo(url: string, command: readonly string[]): Promise<Reply> {
  // Does not use connectRedis(), which sends a PING first: a server that is busy or cannot write refuses it.
  const server = new RedisServer(url, DEADLINE_MS)
  try {
    return await withDeadline(
      server.connected.then(() => server.send(command)),
      DEADLINE_MS,
    )
  } finally {
    server.destroy()
  }
}
