/** Two Worker processes on one Redis, each with its own proxy to the store that can inject faults, and an origin that counts. */
import { randomBytes } from 'node:crypto'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { vi } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { Config } from '../../src/config/compile.ts'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { startGuardian } from '../../src/node/start/guardian.ts'
import { startWorker } from '../../src/node/start/worker.ts'
import { type AdminStore, createAdminStore } from '../../src/ops/admin-store.ts'
import configInput from './concurrency.config.ts'
import { type CountingProxy, startCountingProxy } from './counting-proxy.ts'
import { type EndingOrigin, startEndingOrigin } from './ending-origin.ts'
import { PATIENT_MS } from './patience.ts'
import { startRedis, type TestRedis } from './redis.ts'
import { Tally } from './tally.ts'

export interface BedWorker {
  readonly url: string
  /** The proxy between this Worker and the bridge. */
  store: CountingProxy
  /** Kills the whole process group. */
  kill(): void
  /** Starts another process with the same config, at another URL. */
  restart(): Promise<void>
}

export interface ConcurrencyBed {
  workers: readonly BedWorker[]
  origin: EndingOrigin
  tally: Tally
  bridgeUrl: string
  redis: TestRedis
  config: Config
  /** The store for administration. Faults do not affect it. */
  admin: AdminStore
  close(): Promise<void>
}

export async function startConcurrencyBed(): Promise<ConcurrencyBed> {
  const token = randomBytes(12).toString('hex')
  const guardian = startGuardian()
  const directory = mkdtempSync(join(tmpdir(), 'sluice-'))
  guardian.guard({ directory })
  const redis = await startRedis('redis-server')
  const bridge = await startBridge({ redisUrl: redis.url, token, port: 0 })
  const tally = new Tally()
  const origin = await startEndingOrigin(tally)
  const parts: { close(): Promise<void> }[] = [redis, bridge, origin]

  async function startOne(name: string): Promise<BedWorker> {
    const store = await startCountingProxy(bridge.url)
    parts.push(store)
    let starts = 0
    const start = () =>
      startWorker({
        guardian,
        directory: join(directory, `${name}${++starts}`),
        host: '127.0.0.1',
        port: 0,
        watch: false,
        configFile: fileURLToPath(new URL('concurrency.config.ts', import.meta.url)),
        bindings: {
          UPSTASH_REDIS_REST_URL: store.url,
          UPSTASH_REDIS_REST_TOKEN: token,
          ORIGIN_URL: origin.url,
        },
      })
    let worker = await start()
    parts.push({ close: () => worker.close() })
    return {
      get url() {
        return worker.url
      },
      store,
      // The process is the leader of its own group, which includes workerd.
      kill: () => void process.kill(-worker.pid, 'SIGKILL'),
      async restart() {
        worker = await start()
      },
    }
  }

  const workers = await Promise.all([startOne('a'), startOne('b')])
  // The first request compiles and connects, which can take longer than the deadline of the store.
  for (const { url } of workers) {
    await vi.waitUntil(async () => (await fetch(`${url}/many/204`)).status === 204, { timeout: PATIENT_MS })
  }
  return {
    workers,
    origin,
    tally,
    bridgeUrl: bridge.url,
    redis,
    config: checkedConfig(configInput),
    admin: createAdminStore({ url: bridge.url, token }),
    async close() {
      for (const part of parts.reverse()) await part.close()
      await guardian.dismiss()
    },
  }
}
