/**
 * A request holds its unit while the app works on it, in every set-up on Node, whatever the method, the status and the end of the request.
 * Then the unit is free again. The gateway has the same list in test/e2e/endings.test.ts and test/e2e/concurrency.test.ts.
 */
import { createServer, type IncomingMessage, type Server, request as send } from 'node:http'
import type { AddressInfo } from 'node:net'
import { getRequestListener } from '@hono/node-server'
import { Hono } from 'hono'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { guard } from '../../src/edges/guard/guard.ts'
import { sluice } from '../../src/edges/hono/middleware.ts'
import { expressGuard, nodeListener } from '../../src/node/express.ts'
import { startTestStore, type TestStore } from '../../src/node/testing.ts'
import { SELECTION } from '../selection.ts'
import { PATIENT_MS } from '../support/patience.ts'

const LIMIT = 2
const PATIENTLY = { timeout: PATIENT_MS, interval: 5 }
const CONFIG: ConfigInput = {
  store: { deadline: '20s', breaker: false },
  log: { perSecond: 0 },
  stats: { keep: false },
  refusals: { rememberFor: 0 },
  credentials: { accept: ['anonymous'] },
  // Each case counts by itself.
  rules: [{ name: 'at-once', by: 'header:x-case', algorithm: 'concurrency', limit: LIMIT, ttl: '1h' }],
}

/** What the app does when the test lets it continue. */
const ENDS = {
  'sends a text': { status: 200, body: 'text' },
  'sends an empty body': { status: 200, body: '' },
  'sends 204': { status: 204, body: null },
  'sends 304': { status: 304, body: null },
  'sends an error': { status: 500, body: 'error' },
  'streams and ends': { status: 200, body: 'stream' },
  'streams and breaks off': { status: 200, body: 'break off' },
  throws: { status: 500, body: 'throw' },
} as const
type End = keyof typeof ENDS

/** The work of the app that has begun and not ended, by case. */
const working = new Map<string, (() => void)[]>()
const mostAtOnce = new Map<string, number>()

/** Resolves when the test lets the app continue. */
function untilContinued(name: string): Promise<void> {
  return new Promise(resolve => {
    const all = working.get(name) ?? []
    all.push(resolve)
    working.set(name, all)
    mostAtOnce.set(name, Math.max(mostAtOnce.get(name) ?? 0, all.length))
  })
}

function continueAll(name: string): void {
  for (const resume of working.get(name)?.splice(0) ?? []) resume()
}

async function handler(request: Request): Promise<Response> {
  const end = decodeURIComponent(new URL(request.url).pathname.slice(1)) as End
  await untilContinued(request.headers.get('x-case')!)
  const { status, body } = ENDS[end]
  if (body === 'throw') throw new Error('the app has failed')
  if (body !== 'stream' && body !== 'break off') return new Response(body, { status })
  const stream = new ReadableStream({
    start(controller) {
      controller.enqueue(new TextEncoder().encode('first'))
      if (body === 'stream') controller.close()
      else setImmediate(() => controller.error(new Error('the body has failed')))
    },
  })
  return new Response(stream, { status })
}

type Env = TestStore['env']
const SETUPS: Record<string, (env: Env) => Server> = {
  expressGuard: env => {
    const middleware = expressGuard(CONFIG, { env })
    return createServer((req, res) => {
      middleware(req, res, async error => {
        if (error) return res.writeHead(500).end()
        await untilContinued(String(req.headers['x-case']))
        const { status, body } = ENDS[decodeURIComponent(req.url!.slice(1)) as End]
        if (body === 'throw') return res.writeHead(500).end()
        res.writeHead(status)
        if (body === 'break off') res.write('first', () => res.destroy())
        else res.end(body ?? undefined)
        return undefined
      })
    })
  },
  'nodeListener of a guard': env => createServer(nodeListener(guard(CONFIG, { env })(handler))),
  'Hono middleware': env => {
    const app = new Hono()
    app.use(sluice(CONFIG, { env }))
    app.all('/:end', c => handler(c.req.raw))
    app.onError((_, c) => c.text('failed', 500))
    return createServer(getRequestListener(app.fetch))
  },
}

let store: TestStore
beforeAll(async () => {
  store = await startTestStore()
})
afterAll(() => store?.close())

// The servers log what the app throws.
beforeEach(() => void vi.spyOn(console, 'error').mockReturnValue())

let cases = 0
/** Errors of a set-up outside of its handlers: each of them would end a process. */
const uncaught: unknown[] = []
const catchError = (error: unknown) => void uncaught.push(error)
beforeAll(() => void process.on('uncaughtException', catchError).on('unhandledRejection', catchError))
afterAll(() => void process.off('uncaughtException', catchError).off('unhandledRejection', catchError))

describe.each(Object.entries(SETUPS))('%s', (_, start) => {
  let server: Server
  beforeAll(async () => {
    server = start(store.env)
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  })
  afterAll(() => {
    server?.closeAllConnections()
    server?.close()
  })

  /** Sends a request on a new connection. */
  function ask(name: string, method: string, end: End) {
    const { port } = server.address() as AddressInfo
    const path = `/${encodeURIComponent(end)}`
    const headers = { 'x-case': name, ...(method === 'POST' && { 'content-length': '3' }) }
    const client = send({ host: '127.0.0.1', port, path, method, headers, agent: false })
    const reply = new Promise<number>(resolve => {
      client.on('error', () => resolve(0))
      client.on('response', (response: IncomingMessage) => {
        response.on('error', () => {})
        response.on('close', () => resolve(response.statusCode!))
        response.resume()
      })
    })
    client.end(method === 'POST' ? 'abc' : undefined)
    return { reply, leave: () => client.destroy() }
  }

  /** Fills the limit, and expects that a further request is refused and does not reach the app. */
  async function fill(name: string, method: string, end: End) {
    const asked = Array.from({ length: LIMIT }, () => ask(name, method, end))
    await vi.waitUntil(() => working.get(name)?.length === LIMIT, PATIENTLY)
    expect(await ask(name, method, end).reply).toBe(429)
    expect(mostAtOnce.get(name)).toBe(LIMIT)
    return asked
  }

  /** Waits until the whole limit can be used again. */
  async function untilFree(name: string): Promise<void> {
    await vi.waitUntil(async () => {
      const both = [1, 2].map(() => ask(name, 'GET', 'sends a text').reply)
      const timer = setInterval(() => continueAll(name), 2)
      const statuses = await Promise.all(both).finally(() => clearInterval(timer))
      return statuses.every(status => status === 200)
    }, PATIENTLY)
    expect(uncaught).toEqual([])
  }

  const methods = ['GET', 'HEAD', 'POST', ...(SELECTION === 'all' ? ['PUT', 'DELETE', 'OPTIONS'] : [])]
  const rows = (Object.keys(ENDS) as End[]).flatMap(end => methods.map(method => [method, end] as const))

  it.concurrent.each(rows)('%s holds its unit until the app %s', async (method, end) => {
    const name = `case-${++cases}`
    const asked = await fill(name, method, end)
    continueAll(name)
    // A body that breaks off at once can reach the client as an error, or not at all.
    const statuses = end === 'streams and breaks off' ? [200, 500, 0] : [ENDS[end].status]
    for (const { reply } of asked) expect(statuses).toContain(await reply)
    await untilFree(name)
  })

  it.concurrent.each(methods)(
    '%s holds its unit until the app has ended, or its client has left',
    async method => {
      const name = `case-${++cases}`
      const asked = await fill(name, method, 'sends a text')
      for (const { leave } of asked) leave()
      continueAll(name)
      await untilFree(name)
    },
  )
})
