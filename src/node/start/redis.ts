/** Which Redis the local stack runs on: the one that is named, else a real server found here, else the embedded one. */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { createRedisCommandExecutor, RedisServerState, Resp2Server } from 'js-redis-server/core'
import { redisClient } from '../rest-bridge/redis-client.ts'
import type { Guardian } from './guardian.ts'

export interface LocalRedis {
  /** For the bridge: `redis://…` or `unix:///…` */
  url: string
  /** For people: what was taken, and why. */
  description: string
  /** Resolves with what happened when it ends by itself. */
  lost?: Promise<string>
  close(): Promise<void>
}

/** How long a server may take over its own end. */
const STOP_MS = 1000

/** Programs that speak Redis' protocol, the one to be preferred first. */
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
}

/** @param choice `auto`, `embedded`, or a URL (`redis://`, `rediss://`, `unix://`) */
export async function takeRedis(choice: string, context: RedisContext): Promise<LocalRedis> {
  if (/^(rediss?|unix):\/\//.test(choice)) {
    return { url: choice, description: `Redis at ${withoutSecrets(choice)}, as asked`, close: async () => {} }
  }
  if (choice === 'embedded') return await embeddedRedis('as asked', context)
  const program = await findServer()
  if (!program) return await embeddedRedis('no valkey-server or redis-server is on the PATH', context)
  return await privateServer(program, context)
}

/** The real server that is installed here, if any. */
export async function findServer(
  names: readonly (typeof SERVERS)[number][] = SERVERS,
): Promise<ServerProgram | undefined> {
  for (const name of names) {
    try {
      const { stdout } = await promisify(execFile)(name, ['--version'])
      return { name, version: /v=(\S+)/.exec(stdout)?.[1] ?? 'of unknown version' }
    } catch {
      // Not on the PATH: the next one.
    }
  }
  return undefined
}

/** A TypeScript Redis with Redis' own Lua in WebAssembly, in this process, on a private unix socket. */
export async function embeddedRedis(why: string, { guardian, directory }: RedisContext): Promise<LocalRedis> {
  const socket = privateSocket(directory)
  guardian.guard({ directory })
  const server = new Resp2Server({ server: new RedisServerState(), executor: createRedisCommandExecutor() })
  // Its own listen() takes a port and opens it on every interface of the machine.
  await once(server.server.listen(socket), 'listening')
  await withClient(socket, async client => {
    // Loads its Lua, which takes longer than the gateway would wait for the first decision.
    await client.eval('return 1')
  })
  return {
    url: `unix://${socket}`,
    description: `the embedded Redis (${why}); its data ends with it`,
    close: () => server.close(),
  }
}

/** A server of its own, on a unix socket that only this user can open, without files. */
export async function privateServer(
  program: ServerProgram,
  { guardian, directory }: RedisContext,
): Promise<LocalRedis> {
  const socket = privateSocket(directory)
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
  const child = spawn(program.name, args, { detached: true, stdio: 'ignore' })
  if (child.pid) guardian.guard({ group: child.pid })
  guardian.guard({ directory })
  const exited = new Promise<void>(resolve => child.once('exit', () => resolve()))
  let isClosing = false
  const lost = new Promise<string>(resolve => {
    child.once('exit', (code, signal) => {
      if (!isClosing)
        resolve(`${program.name} has ended (${signal ?? `code ${code}`}), and its data with it.`)
    })
  })

  const url = `unix://${socket}`
  await answers(socket)
  return {
    url,
    description: `${program.name} ${program.version}, found on the PATH, on a private socket; its data ends with it`,
    lost,
    async close() {
      isClosing = true
      child.kill('SIGTERM')
      // One that is frozen does not hear it; the guardian kills what is left.
      await Promise.race([exited, new Promise(resolve => setTimeout(resolve, STOP_MS).unref())])
    },
  }
}

/** Only this user can reach into the directory. The name is short: a socket's path has room for about 100 bytes. */
function privateSocket(directory: string): string {
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  return join(directory, 's')
}

async function answers(socket: string): Promise<void> {
  const until = Date.now() + 5000
  for (;;) {
    try {
      await withClient(socket, async client => {
        await client.ping()
      })
      return
    } catch (error) {
      if (Date.now() > until) throw new Error(`The Redis server started here does not answer: ${error}`)
      await new Promise(resolve => setTimeout(resolve, 15))
    }
  }
}

async function withClient(
  socket: string,
  work: (client: ReturnType<typeof redisClient>) => Promise<void>,
): Promise<void> {
  const client = redisClient({ socket: { path: socket, tls: false, reconnectStrategy: false } })
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
