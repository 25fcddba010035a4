/** The gateway as a proxy: its own paths, and the forwarding of all other requests to the origin. */

import { Hono } from 'hono/tiny'
import type { Config } from '../../config/compile.ts'
import type { Store } from '../../store/store.ts'
import type { ApiOptions, ApiParts } from '../api/create-api.ts'
import { addressIdentity } from '../http/address.ts'
import { deny } from '../http/deny.ts'
import { createHandler, type Platform, refuseAmbiguousPath } from '../http/handle.ts'
import type { Parts } from '../http/parts.ts'
import { isReserved } from '../http/path.ts'
import { problem } from '../http/problem.ts'
import { replyToException, runOrLog } from '../http/unexpected.ts'
import { isPreflight } from '../http/web-page.ts'
import { backgroundOf } from './background.ts'
import { createHealthCheck } from './health.ts'
import type { MetricsParts } from './metrics.ts'
import { type FetchOrigin, proxy } from './proxy.ts'

export type { Platform }

/** The paths of the metrics and of the API are absent if their parts are. */
export type GatewayParts = Parts & Partial<MetricsParts & ApiParts>

/** What the gateway needs of its platform, beside what all set-ups need. */
export interface GatewayPlatform extends Platform, Pick<ApiOptions, 'connection' | 'limiter' | 'secret'> {
  fetchOrigin?: FetchOrigin
}

export interface Gateway {
  app: Hono
  /** Sends what the isolate still has to tell the store, and gives back what it has leased. Called after the last request. */
  stop(): Promise<void>
}

export const createApp = (...of: Parameters<typeof createGateway>): Hono => createGateway(...of).app

/**
 * Creates the gateway.
 *
 * @param parts at least those that the config uses
 */
export function createGateway(
  config: Config,
  store: Store,
  parts: GatewayParts,
  platform: GatewayPlatform = {},
): Gateway {
  const { variables, fetchOrigin } = platform
  const app = new Hono()
  const handler = createHandler(config, store, parts, platform)
  const { log } = handler

  app.get('/_sluice/health', createHealthCheck(store, handler.clock))

  const { pushes } = config.shedding?.workerUtilization ?? {}
  if (pushes) {
    const receive = parts.createPushReceiver(store, pushes, variables, parts.signalScript)
    app.all('/_sluice/utilization', c => receive(c.req.raw))
  }

  const serveMetrics =
    handler.metrics && parts.createMetricsEndpoint?.(config, handler.metrics, parts, variables, handler.clock)
  if (serveMetrics) app.get('/_sluice/metrics', c => serveMetrics(c.req.raw))

  const serveApi =
    config.api &&
    (parts as Parts & ApiParts).createApi(config, store, parts as Parts & ApiParts, {
      ...{ variables, clock: handler.clock, board: platform.board, connection: platform.connection },
      ...{ limiter: platform.limiter, secret: platform.secret },
      decisions: handler.decisions,
    })
  if (serveApi)
    app.all('/_sluice/v1/*', c => {
      const request = c.req.raw
      const peer = () => handler.peerOf?.(request, c.env, c)
      const address = handler.identifier.addressOf(request, peer())
      return serveApi.handle({
        ...{ request, url: new URL(request.url), peer, background: backgroundOf(c) },
        address: address && addressIdentity(address, config.address.ipv6Prefix),
        refusal: handler.identifier.refuse(request, address),
      })
    })

  // One handler: Hono would compose several as middleware, for each request.
  app.all('*', c => {
    const request = c.req.raw
    const url = new URL(request.url)
    const refusal = refuseAmbiguousPath(url)
    if (refusal) return refusal
    // Nothing under /_sluice/ reaches the origin, in any spelling.
    if (isReserved(url.pathname)) return notFound()
    const peer = () => handler.peerOf?.(request, c.env, c)
    if (isPreflight(request)) return passPreflight(request, peer())
    const background = backgroundOf(c)
    const reply = handler.handle({ request, url, peer, background }, toOrigin)
    // Without this, the platform ends this code if the client leaves before the reply has started.
    if (handler.awaitsEndings) background(reply)
    return reply
  })

  app.onError(error => replyToException(log, error))

  return {
    app,
    async stop() {
      await Promise.all([handler.stop(), serveApi?.stop()])
    },
  }

  function toOrigin(request: Request, context: Parameters<typeof proxy>[2]) {
    return proxy(request, config, context, log, fetchOrigin)
  }

  async function passPreflight(request: Request, peer: string | undefined): Promise<Response> {
    const { identifier } = handler
    const address = identifier.addressOf(request, peer)
    const refusal = identifier.refuse(request, address)
    if (refusal) return deny(refusal)
    if (config.cors) return parts.answerPreflight(request, config.cors)
    const context = { requestId: crypto.randomUUID(), ...(address !== undefined && { address }) }
    const { response } = await proxy(request, config, context, log, fetchOrigin)
    runOrLog(log, () => handler.originLoad?.hideSignal(response.headers))
    return response
  }
}

function notFound(): Response {
  return problem({
    status: 404,
    title: 'Not Found',
    detail: 'The gateway serves nothing at this path. GET /_sluice/health shows its health.',
  })
}
