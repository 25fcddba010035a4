/** The minimum of a proxy in a Worker: it passes each request to the origin, with the code that Sluice uses. */
import { proxy } from '../src/set-ups/gateway/proxy.ts'
import { UNBOUNDED_LOG } from '../test/support/log.ts'
import { proxyConfig } from './proxy-config.ts'

export default {
  async fetch(request: Request, env: { ORIGIN_URL: string }): Promise<Response> {
    const { response } = await proxy(
      request,
      proxyConfig(env.ORIGIN_URL),
      { requestId: crypto.randomUUID() },
      UNBOUNDED_LOG,
    )
    return response
  },
}
