/** The store for administration, over the real client and the bridge. */

import { afterAll, beforeAll, beforeEach } from 'vitest'
import type { Reply } from '../../src/node/rest-bridge/redis-connection.ts'
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

export interface AdminOnRedis extends TestAdmin<TestRedis> {
  /** Sends a command to Redis itself. */
  send(...command: string[]): Promise<Reply>
  /** The reply to a command as text. */
  text(...command: string[]): Promise<string>
}

/** Provides a store for administration to the tests of a `describe`. Each test begins with an empty Redis, and a count of 0. */
export function useAdmin(start: () => Promise<TestRedis>): AdminOnRedis {
  const send = (...command: string[]) => admin.redis.connection.send(command)
  // The first hook adds the rest, before tests and later hooks use it.
  const admin = { send, text: async (...command: string[]) => String(await send(...command)) } as AdminOnRedis
  beforeAll(async () => {
    Object.assign(admin, await startAdmin(await start()))
  })
  // `close` is absent if the start has failed.
  afterAll(() => admin.close?.())
  beforeEach(async () => {
    await send('FLUSHALL')
    admin.proxy.count()
  })
  return admin
}
