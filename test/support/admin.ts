/** The store for administration, over the real client and the bridge. */

import { type AdminStore, type AdminStoreOptions, createAdminStore } from '../../src/ops/admin-store.ts'
import { startCountedBridge } from './counted-bridge.ts'
import type { CountingProxy } from './counting-proxy.ts'
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
  const bridge = await startCountedBridge(redis.url, TOKEN)
  const { proxy } = bridge
  const storeOf: TestAdmin<T>['storeOf'] = options =>
    createAdminStore({ url: proxy.url, token: TOKEN, ...options })
  return {
    redis,
    store: storeOf(options),
    proxy,
    storeOf,
    async close() {
      await bridge.close()
      await redis.close()
    },
  }
}
