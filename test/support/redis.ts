/**
 * The Redis servers that suites run on: the embedded one, and a real Redis and a real Valkey if they are installed. If neither is
 * installed, a suite that is marked as skipped stands for both. With SLUICE_REQUIRE_REDIS=1, a missing Redis is an error.
 */
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe } from 'vitest'
import { connectRedis, type RedisConnection } from '../../src/node/rest-bridge/redis-connection.ts'
import { type Guardian, startGuardian } from '../../src/node/start/guardian.ts'
import {
  findServer,
  type ServerProgram,
  startEmbeddedRedis,
  startPrivateServer,
} from '../../src/node/start/redis.ts'
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

/** Every available Redis. */
export const REDIS_KINDS: readonly RedisKind[] = ['embedded', ...servers.map(({ name }) => name)]

/** Describes a suite that runs on every available Redis. */
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

/** Servers that suites have closed. The next suite of this worker reuses them, so that each worker starts a server only once. */
const idle = new Map<RedisKind, Server[]>()

type Server = { url: string }

/** A Redis without data, scripts and statistics, as after its start. */
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

/** Ends the servers when this process ends. */
let guardian: Guardian | undefined

async function startServer(kind: RedisKind): Promise<Server> {
  guardian ??= startGuardian()
  const context = { guardian, directory: mkdtempSync(join(tmpdir(), 'sluice-')) }
  return kind === 'embedded'
    ? await startEmbeddedRedis('for tests', context)
    : await startPrivateServer(servers.find(({ name }) => name === kind)!, context)
}
