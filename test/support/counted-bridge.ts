/** A bridge whose requests are counted where they arrive: a proxy in front of it would make each of them two HTTP requests. */
import { timingSafeEqual } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createBridgeListener } from '../../src/node/rest-bridge/bridge-listener.ts'
import { RedisCommands } from '../../src/node/rest-bridge/redis-commands.ts'
import { connectRedis } from '../../src/node/rest-bridge/redis-connection.ts'
import { type CountingProxy, startCountingProxy } from './counting-proxy.ts'
import { listen } from './listen.ts'
import { PATIENT_MS } from './patience.ts'

export interface CountedBridge {
  proxy: CountingProxy
  /** The same bridge. Its requests are not counted, and have no faults. */
  url: string
  close(): Promise<void>
}

export async function startCountedBridge(redisUrl: string, token: string): Promise<CountedBridge> {
  const redis = await connectRedis(redisUrl, PATIENT_MS)
  const listener = createBridgeListener({
    commands: new RedisCommands(redis),
    isHealthy: async () => true,
    token,
    isEqual: timingSafeEqual,
    maxRequestBytes: 10e6,
  })
  // As in bridge.ts.
  const server = createServer({ joinDuplicateHeaders: true }, listener)
  server.keepAliveTimeout = 120_000
  await listen(server, 0)
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const proxy = await startCountingProxy(url, listener)
  return {
    proxy,
    url,
    async close() {
      await proxy.close()
      const closed = new Promise(resolve => server.close(resolve))
      server.closeAllConnections()
      await closed
      redis.close()
    },
  }
}
