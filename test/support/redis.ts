/**
 * The Redis servers that suites run on: with `npm run test:all` the embedded one, and a real Redis and a real Valkey if they are
 * installed; with `npm test` one of them. With SLUICE_REQUIRE_REDIS=1, a missing Redis is an error.
 */
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe } from 'vitest'
import { connectRedis, type RedisConnection } from '../../src/node/rest-bridge/redis-connection.ts'
import { type Guardian, startGuardian } from '../../src/node/start/guardian.ts'
import { startEmbeddedRedis, startPrivateServer } from '../../src/node/start/redis.ts'
import type { RedisKind } from '../selection.ts'
import { PATIENT_MS } from './patience.ts'
import { ANY_REDIS, REDIS_KINDS, SERVERS, STORE_SERVER, titleOf } from './servers.ts'

export interface TestRedis {
  url: string
  connection: RedisConnection
  close(): Promise<void>
}

/** Describes a suite that runs on every Redis of this run. */
export function describeOnRedis(
  name: string,
  suite: (start: () => Promise<TestRedis>, kind: RedisKind) => void,
): void {
  for (const kind of REDIS_KINDS) {
    describe(`${name}, on ${titleOf(kind)}`, () => suite(() => startRedis(kind), kind))
  }
}

/** Servers that suites have closed. The next suite of this worker reuses them, so that each worker starts a server only once. */
const idle = new Map<RedisKind, Server[]>()

type Server = { url: string }

/** A Redis without data, scripts and statistics, as after its start. */
export async function startRedis(kind: RedisKind = ANY_REDIS): Promise<TestRedis> {
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
    : await startPrivateServer(
        SERVERS.find(({ name }) => name === (kind === 'redis-server' ? STORE_SERVER : kind))!,
        context,
      )
}
