/** The store for administration, over the real client and the bridge. */

import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { type AdminStore, type AdminStoreOptions, createAdminStore } from '../../src/ops/admin-store.ts'
import { type CountingProxy, startCountingProxy } from './counting-proxy.ts'
import { PATIENT_MS } from './patience.ts'
import type { TestRedis } from './redis.ts'

const TOKEN = 'a token for tests'

export interface TestAdmin<T> {
  redis: T
  store: AdminStore
  /** Counts the HTTP requests of the store. */
  proxy: CountingProxy
  /** Another store on the same database, with other options. */
  storeOf(options: Omit<AdminStoreOptions, 'url' | 'token'>): AdminStore
  close(): Promise<void>
}

export async function startAdmin<T extends Pick<TestRedis, 'url' | 'close'>>(
  redis: T,
  options: Omit<AdminStoreOptions, 'url' | 'token'> = {},
): Promise<TestAdmin<T>> {
  const bridge = await startBridge({ redisUrl: redis.url, token: TOKEN, port: 0, deadlineMs: PATIENT_MS })
  const proxy = await startCountingProxy(bridge.url)
  const storeOf: TestAdmin<T>['storeOf'] = options =>
    createAdminStore({ url: proxy.url, token: TOKEN, ...options })
  return {
    redis,
    store: storeOf(options),
    proxy,
    storeOf,
    async close() {
      await proxy.close()
      await bridge.close()
      await redis.close()
    },
  }
}
