/** What `startTestStore` gives to tests, on a real Redis if there is one: the embedded one takes ten times as long. */

import type { TestStore } from '../../src/node/testing.ts'
import { createAdminStore } from '../../src/ops/admin-store.ts'
import { createKey } from '../../src/ops/keys.ts'
import { startCountedBridge } from './counted-bridge.ts'
import { startRedis } from './redis.ts'

const TOKEN = 'a-token-for-tests'

export type FastStore = Omit<TestStore, 'createKey'> & { createKey(consumer: string): Promise<string> }

export async function startFastStore(): Promise<FastStore> {
  const redis = await startRedis()
  const bridge = await startCountedBridge(redis.url, TOKEN)
  const rest = { url: bridge.url, token: TOKEN }
  return {
    env: { UPSTASH_REDIS_REST_URL: rest.url, UPSTASH_REDIS_REST_TOKEN: TOKEN },
    createKey: async consumer => (await createKey(createAdminStore(rest), { consumer })).key,
    async clear() {
      await redis.connection.send(['FLUSHALL'])
    },
    async close() {
      await bridge.close()
      await redis.close()
    },
  }
}
