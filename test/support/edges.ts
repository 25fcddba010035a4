/** All edges as their users run them: on real sockets if the edge has any, each with its own store and environment. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { serve } from '@hono/node-server'
import { Hono } from 'hono'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import type { Environment } from '../../src/config/environment.ts'
import { withEnvironment } from '../../src/config/environment.ts'
import { createApp } from '../../src/edges/gateway/app.ts'
import { callerOf, guard } from '../../src/edges/guard/guard.ts'
import { sluice } from '../../src/edges/hono/middleware.ts'
import { ALL_PARTS } from '../../src/edges/http/all-parts.ts'
import { expressGuard, nodeListener } from '../../src/node/express.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { startOrigin } from './origin.ts'

export interface Edge {
  fetch(path: string, init?: RequestInit): Promise<Response>
  /** How many requests the user's code, or the origin, has received. */
  received(): number
  close(): Promise<void>
}

export type StartEdge = (config: ConfigInput, env: Environment) => Promise<Edge>

/** Every edge reads the client's address from this header, because on one machine all clients have the same address. */
export const ADDRESS_HEADER = 'x-test-address'

const addressOf = (request: Request) => request.headers.get(ADDRESS_HEADER) ?? undefined

const body = (consumer: string | undefined) => Response.json({ hello: consumer ?? null })

export const EDGES: Record<string, StartEdge> = {
  async gateway(config, env) {
    const origin = await startOrigin()
    const { url, token, ...settings } = withEnvironment(
      checkedConfig({ ...config, origin: origin.url, address: { from: 'peer' } }),
      env,
    )
    const store = upstashStore({
      url,
      token,
      deadlineMs: settings.storeDeadlineMs,
      keyLocking: true,
      environment: settings.environment,
    })
    const app = createApp(settings, store, ALL_PARTS, { peerOf: addressOf })
    return {
      fetch: async (path, init) => await app.request(`http://gateway.test${path}`, init),
      received: () => origin.received.length,
      close: origin.close,
    }
  },

  async guard(config, env) {
    let count = 0
    const handler = guard(config, { env, address: addressOf })((request: Request) => {
      count += 1
      return body(callerOf(request)?.consumer)
    })
    return {
      fetch: async (path, init) => await handler(new Request(`http://guard.test${path}`, init)),
      received: () => count,
      close: async () => {},
    }
  },

  async 'guard of node:http'(config, env) {
    let count = 0
    const handler = guard(config, { env, address: addressOf })((request: Request) => {
      count += 1
      return body(callerOf(request)?.consumer)
    })
    return listening(createServer(nodeListener(handler)), () => count)
  },

  async 'hono middleware'(config, env) {
    let count = 0
    const app = new Hono()
    app.use(sluice(config, { env, address: c => addressOf(c.req.raw) }))
    app.all('*', c => {
      count += 1
      return c.json({ hello: c.get('sluice')?.consumer ?? null })
    })
    const server = serve({ fetch: app.fetch, port: 0 })
    await new Promise(resolve => server.once('listening', resolve))
    return {
      fetch: (path, init) => fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`, init),
      received: () => count,
      close: () => new Promise(resolve => void server.close(() => resolve())),
    }
  },

  async 'express middleware'(config, env) {
    let count = 0
    const middleware = expressGuard(config, {
      env,
      address: req => req.headers[ADDRESS_HEADER] as string | undefined,
    })
    const server = createServer((req, res) =>
      middleware(req, res, () => {
        count += 1
        res.setHeader('content-type', 'application/json')
        res.end(JSON.stringify({ hello: req.sluice?.consumer ?? null }))
      }),
    )
    return listening(server, () => count)
  },
}

async function listening(server: ReturnType<typeof createServer>, received: () => number): Promise<Edge> {
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    fetch: (path, init) => fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`, init),
    received,
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}
