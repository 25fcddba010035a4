/**
 * The Redis servers that the suites run on: the embedded one, and a real one. Without a real one its suites are
 * skipped under a name that says so; with SLUICE_REQUIRE_REDIS=1 its absence is an error.
 */
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe } from 'vitest'
import { connectRedis, type RedisConnection } from '../../src/node/rest-bridge/redis-connection.ts'
import { startGuardian } from '../../src/node/start/guardian.ts'
import { embeddedRedis, findServer, privateServer } from '../../src/node/start/redis.ts'

export interface TestRedis {
  url: string
  connection: RedisConnection
  close(): Promise<void>
}

const program = await findServer(['redis-server'])
if (!program && process.env.SLUICE_REQUIRE_REDIS) {
  throw new Error(
    'SLUICE_REQUIRE_REDIS is set, and no redis-server is on the PATH. Install one: apt-get install redis-server',
  )
}

export type RedisKind = 'embedded' | 'real'

/** One suite, on every Redis there is. */
export function describeOnRedis(
  name: string,
  suite: (start: () => Promise<TestRedis>, kind: RedisKind) => void,
): void {
  const suiteOn = (kind: RedisKind) => () => suite(() => startRedis(kind), kind)
  describe(`${name}, on the embedded Redis`, suiteOn('embedded'))
  if (program) describe(`${name}, on Redis ${program.version}`, suiteOn('real'))
  else describe.skip(`${name}, on a real Redis (none is installed)`, suiteOn('real'))
}

export const hasRealRedis = program !== undefined

export async function startRedis(kind: RedisKind): Promise<TestRedis> {
  const guardian = startGuardian()
  const context = { guardian, directory: mkdtempSync(join(tmpdir(), 'sluice-')) }
  const redis =
    kind === 'real' ? await privateServer(program!, context) : await embeddedRedis('for tests', context)
  const connection = await connectRedis(redis.url, 5000)
  return {
    url: redis.url,
    connection,
    async close() {
      connection.close()
      await redis.close()
      await guardian.dismiss()
    },
  }
}
