/** Chooses the Redis of the local stack: the one that the user names, else a server program on the PATH, else the embedded one. */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { createRedisClient } from '../rest-bridge/redis-client.ts'
import type { Guardian } from './guardian.ts'

export interface LocalRedis {
  /** For the bridge: `redis://…` or `unix:///…` */
  url: string
  /** For messages: which Redis was chosen, and why. */
  description: string
  close(): Promise<void>
}

/** A server that we started has exited unexpectedly: it crashed or was killed. */
export interface RedisEnd {
  /** The message for users. */
  what: string
  /** Resolves when a new, empty server has taken its place; rejects when none could be started. */
  restarted: Promise<void>
}

/** How long a server may take to exit. */
const STOP_MS = 1000

/** Without this bound, a server that always crashes would be restarted forever. */
const MAX_RESTARTS = 3

/** Programs with the protocol of Redis, in order of preference. */
const SERVERS = ['valkey-server', 'redis-server'] as const

export interface ServerProgram {
  name: (typeof SERVERS)[number]
  /** `7.0.15` */
  version: string
}

export interface RedisContext {
  guardian: Guardian
  /** A private directory of this run. */
  directory: string
  onEnd?: (end: RedisEnd) => void
}

/** @param choice `auto`, `embedded`, or a URL (`redis://`, `rediss://`, `unix://`) */
export async function startRedis(choice: string, context: RedisContext): Promise<LocalRedis> {
  if (/^(rediss?|unix):\/\//.test(choice)) {
    return {
      url: choice,
      description: `Redis at ${withoutSecrets(choice)}, as configured`,
      close: async () => {},
    }
  }
  if (choice === 'embedded') return await startEmbeddedRedis('as configured', context)
  const program = await findServer()
  if (!program) return await startEmbeddedRedis('no valkey-server or redis-server is on the PATH', context)
  return await startPrivateServer(program, context)
}

/** The first of these server programs that is installed, if there is one. */
export async function findServer(
  names: readonly (typeof SERVERS)[number][] = SERVERS,
): Promise<ServerProgram | undefined> {
  for (const name of names) {
    try {
      const { stdout } = await promisify(execFile)(name, ['--version'])
      return { name, version: /v=(\S+)/.exec(stdout)?.[1] ?? '(unknown version)' }
    } catch {
      // This program is not on the PATH. Try the next one.
    }
  }
  return undefined
}

/** A TypeScript Redis with Redis' own Lua in WebAssembly, in this process, on a private unix socket. */
export async function startEmbeddedRedis(
  why: string,
  { guardian, directory }: RedisContext,
): Promise<LocalRedis> {
  const socket = privateSocket(directory)
  guardian.guard({ directory })
  // Not at the top: its code for WebAssembly awaits there, so `require('sluicegate/testing')` would throw.
  const { createRedisCommandExecutor, RedisServerState, Resp2Server } = await import('js-redis-server/core')
  const server = new Resp2Server({ server: new RedisServerState(), executor: createRedisCommandExecutor() })
  // Not Resp2Server's own listen(), which opens a port on every interface of the machine.
  await once(server.server.listen(socket), 'listening')
  await withClient(socket, async client => {
    // Makes the server load its Lua now. Loading takes longer than the gateway waits for a decision.
    await client.eval('return 1')
  })
  return {
    url: `unix://${socket}`,
    description: `the embedded Redis (${why}); its data is lost when it stops`,
    close: () => server.close(),
  }
}

/** Starts a server on a Unix socket that only this user can open. The server writes no data to disk. */
export async function startPrivateServer(
  program: ServerProgram,
  { guardian, directory, onEnd }: RedisContext,
): Promise<LocalRedis> {
  const socket = privateSocket(directory)
  guardian.guard({ directory })
  const settings = {
    port: '0',
    unixsocket: socket,
    unixsocketperm: '700',
    save: '',
    appendonly: 'no',
    dir: directory,
    daemonize: 'no',
  }
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value])
  let isClosing = false
  let restarts = 0
  let server = await run()
  return {
    url: `unix://${socket}`,
    description: `${program.name} ${program.version}, found on the PATH, on a private socket; its data is lost when it stops`,
    async close() {
      isClosing = true
      server.child.kill('SIGTERM')
      // A frozen server does not react to SIGTERM. The guardian kills it.
      await Promise.race([server.exited, new Promise(resolve => setTimeout(resolve, STOP_MS).unref())])
    },
  }

  /** Starts the server. Resolves when it answers. */
  async function run() {
    const child = spawn(program.name, args, { detached: true, stdio: 'ignore' })
    if (child.pid) guardian.guard({ group: child.pid })
    const exited = new Promise<string>(resolve => {
      child.once('exit', (code, signal) => resolve(signal ?? `code ${code}`))
    })
    await waitUntilReady(socket)
    void exited.then(how => {
      if (isClosing) return
      onEnd?.({ what: `${program.name} has stopped (${how}), and its data is lost.`, restarted: restart() })
    })
    return { child, exited }
  }

  async function restart(): Promise<void> {
    if (restarts === MAX_RESTARTS)
      throw new Error(
        `It has stopped ${restarts + 1} times. Start again with --redis embedded, or with the URL of another server.`,
      )
    restarts += 1
    server = await run()
  }
}

/** Only this user can reach into the directory. The name is short: a socket's path has room for about 100 bytes. */
function privateSocket(directory: string): string {
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  return join(directory, 's')
}

/** Waits up to 5 s for the server to answer. @throws Error that names the choices, if it does not */
async function waitUntilReady(socket: string): Promise<void> {
  const until = Date.now() + 5000
  for (;;) {
    try {
      await withClient(socket, async client => {
        await client.ping()
      })
      return
    } catch (error) {
      if (Date.now() > until)
        throw new Error(
          `The Redis server on the PATH was started, but does not answer. Use --redis embedded, or the URL of another server. ${error}`,
        )
      await new Promise(resolve => setTimeout(resolve, 15))
    }
  }
}

async function withClient(
  socket: string,
  work: (client: ReturnType<typeof createRedisClient>) => Promise<void>,
): Promise<void> {
  const client = createRedisClient({ socket: { path: socket, tls: false, reconnectStrategy: false } })
  client.on('error', () => {})
  try {
    await client.connect()
    await work(client)
  } finally {
    if (client.isOpen) client.destroy()
  }
}

function withoutSecrets(url: string): string {
  const parsed = new URL(url)
  if (parsed.password) parsed.password = '***'
  return parsed.href
}
