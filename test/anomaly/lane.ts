/**
 * A Worker in workerd with its dependencies, and a proxy on each connection for faults: between Worker and bridge, between bridge and
 * Redis, and between Worker and origin. Scenarios that run at the same time use separate lanes.
 */
import { randomBytes } from 'node:crypto'
import { mkdtempSync } from 'node:fs'
import { Agent } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  createKeySigner,
  KEY_SECRET,
  newKeySecret,
  readKeySecrets,
} from '../../src/credentials/key-signature.ts'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { startGuardian } from '../../src/node/start/guardian.ts'
import { startWorker } from '../../src/node/start/worker.ts'
import { type AdminStore, createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { type CountingProxy, startCountingProxy } from '../support/counting-proxy.ts'
import { startTcpProxy, type TcpProxy, targetOf } from '../support/fault-proxy.ts'
import { type LatenessMeter, startLatenessMeter } from '../support/lateness.ts'
import { startOrigin, type TestOrigin } from '../support/origin.ts'
import { endOfCommand } from '../support/resp.ts'
import { type Ask, exchange, type Observed } from './exchange.ts'

export interface Lane {
  url: string
  /** The proxy between the Worker and the bridge. */
  store: CountingProxy
  /** The proxy between the bridge and Redis. */
  redis: TcpProxy
  /** The proxy between the Worker and the origin. */
  originProxy: TcpProxy
  origin: TestOrigin
  /** Of this process, which has all parts of the lane except the Worker and Redis. */
  lateness: LatenessMeter
  /** Only affected by faults of Redis. */
  admin: AdminStore
  /** The parent process of workerd. */
  pid: number
  /** Absent unless `inspect` was set. */
  inspectorUrl?: string
  ask(path: string, ask?: Ask): Promise<Observed>
  key(consumer: string): Promise<string>
  signedKey(consumer: string): Promise<string>
  /** Resolves when the store answers. There must be no active fault. */
  ready(): Promise<void>
  /** A new name that no other caller has. */
  name(): string
  address(): string
  close(): Promise<void>
}

const TOKEN = randomBytes(12).toString('hex')
const SECRETS = newKeySecret()
const KEY_SECRETS = readKeySecrets(SECRETS)
/** The configs of the Workers, by name. */
const CONFIGS = {
  ordinary: new URL('anomaly.config.ts', import.meta.url).pathname,
  leases: new URL('leases.config.ts', import.meta.url).pathname,
  streams: new URL('streams.config.ts', import.meta.url).pathname,
}
export type ConfigName = keyof typeof CONFIGS

const READY_MS = 10_000

let names = 0

interface LaneOptions {
  config?: ConfigName
  inspect?: boolean
}

/** @param redisUrl a Redis that may be shared, because scenarios have no callers in common */
export async function startLane(
  redisUrl: string,
  { config = 'ordinary', inspect = false }: LaneOptions = {},
): Promise<Lane> {
  const guardian = startGuardian()
  const directory = mkdtempSync(join(tmpdir(), 'sluice-'))
  guardian.guard({ directory })
  const redis = await startTcpProxy(targetOf(redisUrl), endOfCommand)
  const bridge = await startBridge({ redisUrl: `redis://127.0.0.1:${redis.port}`, token: TOKEN, port: 0 })
  const store = await startCountingProxy(bridge.url)
  const origin = await startOrigin()
  const originProxy = await startTcpProxy(targetOf(origin.url))
  const admin = createAdminStore({ url: bridge.url, token: TOKEN })
  const worker = await startWorker({
    guardian,
    directory: join(directory, 'w'),
    host: '127.0.0.1',
    port: 0,
    watch: false,
    configFile: CONFIGS[config],
    inspect,
    bindings: {
      UPSTASH_REDIS_REST_URL: store.url,
      UPSTASH_REDIS_REST_TOKEN: TOKEN,
      [KEY_SECRET]: SECRETS,
      ORIGIN_URL: `http://127.0.0.1:${originProxy.port}`,
    },
  })
  // A new connection for each request, so that requests do not affect each other.
  const agent = new Agent({ keepAlive: false })
  const lateness = startLatenessMeter()
  return {
    url: worker.url,
    store,
    redis,
    originProxy,
    origin,
    lateness,
    admin,
    pid: worker.pid,
    ...(worker.inspectorUrl !== undefined && { inspectorUrl: worker.inspectorUrl }),
    ask: (path, ask) => exchange(agent, worker.url + path, ask),
    key: async consumer => (await createKey(admin, { consumer, plan: 'free' })).key,
    signedKey: async consumer =>
      (await createKey({ ...admin, keySigner: createKeySigner(KEY_SECRETS[0]!) }, { consumer, plan: 'free' }))
        .key,
    async ready() {
      const until = performance.now() + READY_MS
      const answers = () =>
        admin.decisions.ping().then(
          () => true,
          () => false,
        )
      while (!(await answers())) {
        if (performance.now() > until) throw new Error('The store of this lane does not come back.')
        await new Promise(resolve => setTimeout(resolve, 10))
      }
    },
    name: () => `caller-${process.pid}-${++names}`,
    address: () => {
      names += 1
      return `10.${(names >> 16) & 255}.${(names >> 8) & 255}.${names & 255}`
    },
    async close() {
      agent.destroy()
      lateness.stop()
      await worker.close()
      for (const part of [originProxy, origin, store, bridge, redis]) await part.close()
      await guardian.dismiss()
    },
  }
}

/** A pool of lanes. Each lane is used by one scenario at a time. */
export class Lanes {
  readonly #all: readonly Lane[]
  readonly #free: Lane[]
  readonly #waiting: ((lane: Lane) => void)[] = []

  private constructor(lanes: readonly Lane[]) {
    this.#all = lanes
    this.#free = [...lanes]
  }

  static async start(count: number, redisUrl: string, config: ConfigName = 'ordinary'): Promise<Lanes> {
    return new Lanes(await Promise.all(Array.from({ length: count }, () => startLane(redisUrl, { config }))))
  }

  async use<T>(work: (lane: Lane) => Promise<T>): Promise<T> {
    const lane = this.#free.pop() ?? (await new Promise<Lane>(resolve => this.#waiting.push(resolve)))
    try {
      return await work(lane)
    } finally {
      const next = this.#waiting.shift()
      if (next) next(lane)
      else this.#free.push(lane)
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#all.map(lane => lane.close()))
  }
}
