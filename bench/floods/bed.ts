/** Starts all parts of a flood. Each part is its own process, and the parent only sends questions to them. */
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connectRedis, type RedisConnection } from '../../src/node/rest-bridge/redis-connection.ts'
import { startGuardian } from '../../src/node/start/guardian.ts'
import { findServer, startPrivateServer } from '../../src/node/start/redis.ts'
import { type Child, startChild } from '../child.ts'
import { NoRedis, type Rest } from '../test-bed.ts'
import { startBareWorkerd } from './bare-workerd.ts'
import { type NodeGateways, startNodeGateways } from './node-gateways.ts'
import { KEY_SECRET_ID } from './requests.ts'
import type { StoreSideSettings } from './store-side.ts'
import { CONFIG_FILE, type FloodedWorker, nameOfTree, startWorkerOf } from './worker.ts'

export interface FloodBed {
  redisVersion: string
  redis: RedisConnection
  rest: Rest
  /** Answers with the number of HTTP requests that it has received. */
  storeSide: Child<{ url: string }>
  origin: Child<{ url: string }>
  flooding: Child<object>
  innocent: Child<object>
  contenders: readonly Contender[]
  close(): Promise<void>
}

/** The Worker of one checkout, and the same gateway in Node. */
export interface Contender extends FloodedWorker {
  /** The heading of its column. */
  label: string
  tree: string
  /** The Worker in workerd alone, several times. */
  bare: readonly FloodedWorker[]
  /** The gateway in Node, with its callers. */
  inNode: NodeGateways
}

/**
 * @param bareIsolates the Worker of each checkout also runs so many times in workerd alone
 * @throws NoRedis
 */
export async function startFloodBed(
  trees: Readonly<Record<string, string>>,
  bareIsolates: number,
): Promise<FloodBed> {
  const program = await findServer(['redis-server'])
  if (!program) throw new NoRedis()
  const guardian = startGuardian()
  const directory = mkdtempSync(join(tmpdir(), 'sluice-floods-'))
  guardian.guard({ directory })
  const parts: { close(): Promise<void> }[] = [{ close: () => guardian.dismiss() }]
  const close = async () => {
    for (const part of parts.splice(0).reverse()) await part.close()
  }
  const started = <T extends { close(): Promise<void> }>(part: T): T => {
    parts.push(part)
    return part
  }
  const child = async <Ready>(file: string, settings: object = {}) =>
    started(await startChild<Ready>(`floods/${file}`, settings, { guardian, directory }))
  try {
    const server = started(await startPrivateServer(program, { guardian, directory: join(directory, 'r') }))
    const redis = await connectRedis(server.url, 5000)
    started({ close: async () => redis.close() })
    const token = 'token-of-the-benchmark'
    const settings: StoreSideSettings = { redisUrl: server.url, token }
    const storeSide = await child<{ url: string }>('store-side.ts', settings)
    const origin = await child<{ url: string }>('origin.ts')
    const bindings = {
      UPSTASH_REDIS_REST_URL: storeSide.ready.url,
      UPSTASH_REDIS_REST_TOKEN: token,
      ORIGIN_URL: origin.ready.url,
      SLUICE_KEY_SECRET: `${KEY_SECRET_ID}:${'only-for-the-benchmark'.repeat(2)}`,
    }
    const contenders: Contender[] = []
    for (const [label, tree] of Object.entries(trees)) {
      const place = { bindings, guardian, directory: join(directory, `w${contenders.length}`) }
      const worker = started(await startWorkerOf(tree, place))
      const bare: FloodedWorker[] = []
      for (let i = 0; i < bareIsolates; i++)
        bare.push(started(await startBareWorkerd(tree, { ...place, directory: `${place.directory}-${i}` })))
      const settings = { tree, configFile: CONFIG_FILE, bindings }
      const inNode = started(await startNodeGateways(settings, { guardian, directory }))
      contenders.push({ ...worker, bare, label, tree: nameOfTree(tree), inNode })
    }
    return {
      redisVersion: program.version,
      redis,
      rest: { url: storeSide.ready.url, token },
      ...{ storeSide, origin, contenders, close },
      flooding: await child('flood-client.ts'),
      innocent: await child('innocent-client.ts'),
    }
  } catch (error) {
    await close()
    throw error
  }
}
