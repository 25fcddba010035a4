/**
 * The Redis servers that the suites run on: the embedded one, and a real Redis and a real Valkey where they are
 * installed. Without a real one its suites are skipped under a name that says so; with SLUICE_REQUIRE_REDIS=1 the
 * absence of Redis is an error.
 */
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe } from 'vitest'
import { connectRedis, type RedisConnection } from '../../src/node/rest-bridge/redis-connection.ts'
import { type Guardian, startGuardian } from '../../src/node/start/guardian.ts'
import { embeddedRedis, findServer, privateServer, type ServerProgram } from '../../src/node/start/redis.ts'
import { PATIENT_MS } from './patience.ts'

export interface TestRedis {
  url: string
  connection: RedisConnection
  close(): Promise<void>
}

const found = await Promise.all([findServer(['redis-server']), findServer(['valkey-server'])])
const servers = found.filter(program => program !== undefined)
if (!servers.some(({ name }) => name === 'redis-server') && process.env.SLUICE_REQUIRE_REDIS) {
  throw new Error(
    'SLUICE_REQUIRE_REDIS is set, and no redis-server is on the PATH. Install one: apt-get install redis-server',
  )
}

export type RedisKind = 'embedded' | ServerProgram['name']

/** Every Redis there is here. */
export const REDIS_KINDS: readonly RedisKind[] = ['embedded', ...servers.map(({ name }) => name)]

/** One suite, on every Redis there is. */
export function describeOnRedis(
  name: string,
  suite: (start: () => Promise<TestRedis>, kind: RedisKind) => void,
): void {
  const suiteOn = (kind: RedisKind) => () => suite(() => startRedis(kind), kind)
  describe(`${name}, on the embedded Redis`, suiteOn('embedded'))
  for (const { name: kind, version } of servers) {
    const product = kind === 'valkey-server' ? 'Valkey' : 'Redis'
    describe(`${name}, on ${product} ${version}`, suiteOn(kind))
  }
  if (servers.length === 0)
    describe.skip(`${name}, on a real Redis (none is installed)`, suiteOn('redis-server'))
}

export const hasRedisServer = REDIS_KINDS.includes('redis-server')

/** What a server of its own costs comes once in each worker, not once in each suite: closed ones wait here for the next. */
const idle = new Map<RedisKind, Server[]>()

type Server = { url: string }

/** As one that has just been started: without data, scripts and statistics. */
export async function startRedis(kind: RedisKind): Promise<TestRedis> {
  const server = idle.get(kind)?.pop() ?? (await startServer(kind))
  const connection = await connectRedis(server.url, PATIENT_MS)
  for (const command of [['FLUSHALL'], ['SCRIPT', 'FLUSH']]) await connection.send(command)
  if (kind !== 'embedded') await connection.send(['CONFIG', 'RESETSTAT'])
  return {
    url: server.url,
    connection,
    async close() {
      connection.close()
      idle.set(kind, [...(idle.get(kind) ?? []), server])
    },
  }
}

/** Ends with this process, by its guardian. */
let guardian: Guardian | undefined

async function startServer(kind: RedisKind): Promise<Server> {
  guardian ??= startGuardian()
  const context = { guardian, directory: mkdtempSync(join(tmpdir(), 'sluice-')) }
  return kind === 'embedded'
    ? await embeddedRedis('for tests', context)
    : await privateServer(servers.find(({ name }) => name === kind)!, context)
}
