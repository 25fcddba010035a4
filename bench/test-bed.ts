/** The parts that all measurements share: a private redis-server, the remote parts, and a direct connection to Redis. */
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connectRedis, type RedisConnection } from '../src/node/rest-bridge/redis-connection.ts'
import { type Guardian, startGuardian } from '../src/node/start/guardian.ts'
import { findServer, startPrivateServer } from '../src/node/start/redis.ts'
import { createAdminStore } from '../src/ops/admin-store.ts'
import { createKey } from '../src/ops/keys.ts'
import { startChild } from './child.ts'
import type { FarSide, FarSideSettings } from './far-side.ts'
import { type CountingServer, startCountingServer } from './instructions.ts'
import { countsInstructions } from './measure.ts'

export interface Rest {
  url: string
  token: string
}

export interface TestBed {
  /** `7.0.15` */
  redisVersion: string
  redisUrl: string
  /** A direct connection, so that its commands are not counted by the bridge. */
  redis: RedisConnection
  /** With `--instructions`: counts those of Redis during some work. */
  instructionsOf?: CountingServer['instructionsOf']
  near: Rest
  far: Rest
  origin: string
  guardian: Guardian
  directory: string
  close(): Promise<void>
}

export class NoRedis extends Error {
  constructor() {
    super('The benchmark needs a real redis-server on the PATH. Install one: apt-get install redis-server')
  }
}

/** @throws NoRedis without a redis-server: the embedded Redis has no command statistics and another speed */
export async function startTestBed(): Promise<TestBed> {
  const program = await findServer(['redis-server'])
  if (!program) throw new NoRedis()
  const guardian = startGuardian()
  const directory = mkdtempSync(join(tmpdir(), 'sluice-bench-'))
  guardian.guard({ directory })
  const closers: (() => Promise<void>)[] = [() => guardian.dismiss()]
  const close = async () => {
    for (const closer of closers.splice(0).reverse()) await closer()
  }
  try {
    const counting = countsInstructions ? await startCountingServer('redis-server', directory) : undefined
    if (counting) guardian.guard({ group: counting.pid })
    const server =
      counting ?? (await startPrivateServer(program, { guardian, directory: join(directory, 'r') }))
    closers.push(server.close)
    const token = 'token-of-the-benchmark'
    const settings: FarSideSettings = { redisUrl: server.url, token }
    const farSide = await startChild<FarSide>('far-side.ts', settings, { guardian, directory })
    closers.push(farSide.close)
    const redis = await connectRedis(server.url, counting ? 60_000 : 5000)
    closers.push(async () => redis.close())
    const { near, far, origin } = farSide.ready
    return {
      redisVersion: program.version,
      redisUrl: server.url,
      redis,
      ...(counting && { instructionsOf: counting.instructionsOf }),
      near: { url: near, token },
      far: { url: far, token },
      origin,
      guardian,
      directory,
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

export interface Identity {
  consumer: string
  address: string
}

export interface Caller extends Identity {
  request: Request
}

let identitiesMade = 0

/** New identities, without any state in the store. */
export function newIdentities(count: number): Identity[] {
  return Array.from({ length: count }, () => {
    identitiesMade += 1
    return {
      consumer: `consumer-${String(identitiesMade).padStart(5, '0')}`,
      address: `198.${18 + (identitiesMade >> 16)}.${(identitiesMade >> 8) & 255}.${identitiesMade & 255}`,
    }
  })
}

/** New callers with valid API keys. */
export async function newCallers(count: number, { near }: TestBed): Promise<Caller[]> {
  return await Promise.all(
    newIdentities(count).map(async ({ consumer, address }) => {
      const { key: apiKey } = await createKey(createAdminStore(near), { consumer, plan: 'free' })
      const headers = { 'x-api-key': apiKey, 'cf-connecting-ip': address }
      return { consumer, address, request: new Request('https://api.example.com/hello', { headers }) }
    }),
  )
}
