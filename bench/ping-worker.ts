/**
 * The minimum of a gateway that asks its store about each request: it sends one PING with the client that Sluice uses, and then
 * proxies the request with the same code to the same origin. The difference to Sluice is the cost of a decision.
 */
import { proxy } from '../src/set-ups/gateway/proxy.ts'
import type { Store } from '../src/store/store.ts'
import { upstashStore } from '../src/store/upstash.ts'
import { UNBOUNDED_LOG } from '../test/support/log.ts'
import { proxyConfig } from './proxy-config.ts'

interface Environment {
  UPSTASH_REDIS_REST_URL: string
  UPSTASH_REDIS_REST_TOKEN: string
  ORIGIN_URL: string
}

let store: Store | undefined

export default {
  async fetch(request: Request, env: Environment): Promise<Response> {
    store ??= upstashStore({
      url: env.UPSTASH_REDIS_REST_URL,
      token: env.UPSTASH_REDIS_REST_TOKEN,
      deadlineMs: 250,
      keyLocking: true,
    })
    await store.ping()
    const { response } = await proxy(
      request,
      proxyConfig(env.ORIGIN_URL),
      { requestId: crypto.randomUUID() },
      UNBOUNDED_LOG,
    )
    return response
  },
}
