/** The Redis servers of this machine, and those that suites run on. Imports nothing from vitest, so that reporters can use it as well. */
import { findServer, type ServerProgram } from '../../src/node/start/redis.ts'
import { enginesOf, type RedisKind, SELECTION } from '../selection.ts'

const found = await Promise.all([findServer(['redis-server']), findServer(['valkey-server'])])

export const SERVERS: readonly ServerProgram[] = found.filter(program => program !== undefined)

/** The server that suites start which need a real Redis, and with `STORE_SERVER` the only one that any suite runs on. */
export const STORE_SERVER = (process.env.STORE_SERVER ?? 'redis-server') as ServerProgram['name']

export const hasRedisServer = SERVERS.some(({ name }) => name === STORE_SERVER)

if (!hasRedisServer && process.env.STORE_SERVER) {
  throw new Error(
    `STORE_SERVER is ${STORE_SERVER}, and no such server is on the PATH. Use redis-server or valkey-server.`,
  )
}
if (!hasRedisServer && process.env.SLUICE_REQUIRE_REDIS) {
  throw new Error(
    'SLUICE_REQUIRE_REDIS is set, and no redis-server is on the PATH. Install one: apt-get install redis-server',
  )
}

export const INSTALLED_KINDS: readonly RedisKind[] = process.env.STORE_SERVER
  ? [STORE_SERVER]
  : ['embedded', ...SERVERS.map(({ name }) => name)]

/** What `describeOnRedis` runs a suite on. */
export const REDIS_KINDS = enginesOf(SELECTION, INSTALLED_KINDS)

/** For suites that need a Redis, whichever it is: a real one if there is one, because it is ten times as fast. */
export const [ANY_REDIS] = enginesOf('quick', INSTALLED_KINDS) as [RedisKind]

/** As suites are titled: `the embedded Redis`, `Redis 7.0.15`, `Valkey 8.0.1`. */
export function titleOf(kind: RedisKind): string {
  if (kind === 'embedded') return 'the embedded Redis'
  const product = kind === 'valkey-server' ? 'Valkey' : 'Redis'
  const server = SERVERS.find(({ name }) => name === kind)
  return server ? `${product} ${server.version}` : product
}
