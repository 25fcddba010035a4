/** The Worker in workerd, with a bridge and a private Redis, and a client that floods it from another process. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { startBridge } from '../../src/node/rest-bridge/bridge.ts'
import { type Stack, startStack } from '../../src/node/start/stack.ts'
import { type CountingProxy, startCountingProxy } from './counting-proxy.ts'
import { CLIENT, type FloodOrder, type FloodReplies, flood } from './flood-client.ts'
import { startOrigin } from './origin.ts'
import { startRedis } from './redis.ts'

const TOKEN = 'a token for tests'

export interface FloodBed {
  stack: Stack
  /** The proxy between the Worker and the bridge. */
  store: CountingProxy
  flood(path: string, order: Omit<FloodOrder, 'url'>): Promise<FloodReplies>
  close(): Promise<void>
}

export async function startFloodBed(): Promise<FloodBed> {
  const redis = await startRedis('redis-server')
  const bridge = await startBridge({ redisUrl: redis.url, token: TOKEN, port: 0 })
  const store = await startCountingProxy(bridge.url)
  const origin = await startOrigin()
  const stack = await startStack({
    redis: 'auto',
    rest: { url: store.url, token: TOKEN },
    origin: origin.url,
    ports: { gateway: 0, bridge: 0, origin: 0 },
    watch: false,
    configFile: fileURLToPath(new URL('flood.config.ts', import.meta.url)),
  })
  return {
    stack,
    store,
    async flood(path, order) {
      const url = stack.url + path
      if (order.atOnce === 1) return await flood({ url, ...order })
      const client = fork(CLIENT, { execArgv: ['--no-warnings'] })
      client.send({ url, ...order } satisfies FloodOrder)
      const [replies] = await once(client, 'message')
      return replies as FloodReplies
    },
    async close() {
      for (const part of [stack, origin, store, bridge, redis]) await part.close()
    },
  }
}

/** How many replies have this status, with any value of `Sluice-Degraded`. */
export function withStatus(replies: FloodReplies, status: number): number {
  const counts = Object.entries(replies).map(([reply, count]) => (reply.startsWith(`${status}`) ? count : 0))
  return counts.reduce((sum, count) => sum + count, 0)
}
