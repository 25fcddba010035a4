/**
 * Everything that a set-up calls may throw: the store, the hooks, the log, observers, the framework, the app and the
 * streams. Each test lets the first touch of a request throw, then only the second one, and so on, until a request touches nothing more.
 * Whatever throws, the client gets a reply or its connection is closed, the unit in flight is free afterwards, and nothing is thrown
 * outside of a handler.
 */
import { type RequestListener, request as send } from 'node:http'
import { getRequestListener } from '@hono/node-server'
import { Hono } from 'hono'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { SYSTEM_TIMER } from '../../src/clock.ts'
import { checkedConfig } from '../../src/config/check/check.ts'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { expressGuard, nodeListener } from '../../src/node/express.ts'
import { createApp } from '../../src/set-ups/gateway/app.ts'
import { createGuard, type GuardPlatform } from '../../src/set-ups/guard/guard.ts'
import { sluice } from '../../src/set-ups/hono/middleware.ts'
import { ALL_PARTS } from '../../src/set-ups/http/all-parts.ts'
import { upstashStore } from '../../src/store/upstash.ts'
import { SELECTION } from '../selection.ts'
import { replyToError, listening as serve } from '../support/endings.ts'
import { type FastStore, startFastStore } from '../support/fast-store.ts'
import { PATIENT, PATIENT_MS } from '../support/patience.ts'
import { type Failing, Touches } from '../support/touches.ts'
import { catchUncaught } from '../support/uncaught.ts'

const configWith = (touches: Touches) =>
  ({
    store: { deadline: '20s', breaker: false },
    refusals: { rememberFor: 0 },
    headers: { xRateLimit: 'unix-seconds' },
    routes: [{ name: 'refused', match: { path: '/denied' }, cost: 2 }],
    credentials: { accept: ['identify', 'anonymous'] },
    rules: [
      ...(['at-once', 'second'] as const).map(name => ({
        ...({ name, by: 'global', algorithm: 'concurrency', limit: 1, ttl: '1h' } as const),
        ...({ match: { path: '/*' }, onStoreFailure: 'closed' } as const),
      })),
      {
        ...({ name: 'paced', by: 'global', algorithm: 'leaky-bucket', limit: 1e6, period: '1s' } as const),
        ...({ queue: 1000, onStoreFailure: 'open' } as const),
      },
    ],
    hooks: {
      identify: touches.fn('hooks.identify', async () => 'acme'),
      skip: touches.fn('hooks.skip', async () => false),
      plan: touches.fn('hooks.plan', () => undefined),
      cost: touches.fn('hooks.cost', (_, { cost }) => cost),
      refusal: touches.fn('hooks.refusal', async (_, reply) => new Response(reply.body, reply)),
    },
  }) satisfies ConfigInput

const platformWith = (touches: Touches): GuardPlatform => ({
  sleep: touches.fn('sleep', async () => {}),
  // A reply that nothing reads is given up after ten seconds, which would take too long here. Longer timers, such as for silent bodies,
  // would change what happens if they ran early.
  timer: (ms, run, isOptional) => SYSTEM_TIMER(ms > 10_000 ? ms : Math.min(ms, 200), run, isOptional),
  reporting: {
    analytics: touches.of('analytics', { writeDataPoint() {} }),
    onFinish: touches.fn('onFinish', () => {}),
    timer: touches.fn('reporting.timer', (_: number, run: () => void) => SYSTEM_TIMER(20, run)),
  },
})

/** What a client sends, and what the app does. */
const REQUESTS = {
  'gets a text': { path: '/text' },
  'gets a stream': { path: '/stream' },
  'gets only a head': { path: '/text', method: 'HEAD' },
  'leaves a stream': { path: '/endless', leaves: true },
  'sends a body': { path: '/echo', method: 'POST', body: 'hello' },
  'is refused': { path: '/denied' },
  'gets an error of the app': { path: '/throws' },
  'finds no store': { path: '/text', isStoreDown: true },
} as const satisfies Record<string, Call>

interface Call {
  path: string
  method?: string
  body?: string
  leaves?: boolean
  isStoreDown?: boolean
}

/** @returns the status; 0 if the connection was closed, or the function has thrown */
type Ask = (call: Call) => Promise<number>

interface SetUp {
  ask: Ask
  close(): Promise<void>
}

async function app(request: Request, touches: Touches): Promise<Response> {
  const { pathname } = new URL(request.url)
  if (pathname === '/throws') throw new Error('The app has failed.')
  if (pathname === '/echo') return new Response(await request.text())
  if (pathname !== '/stream' && pathname !== '/endless') return new Response('text')
  let chunks = 0
  const stream = new ReadableStream<Uint8Array>({
    pull: touches.fn('body.pull', (controller: ReadableStreamDefaultController<Uint8Array>) => {
      chunks += 1
      if (chunks < 4) return controller.enqueue(new Uint8Array(10_000))
      return pathname === '/stream' ? controller.close() : new Promise<void>(() => {})
    }),
    cancel: touches.fn('body.cancel', () => {}),
  })
  return new Response(stream)
}

type Row = [name: keyof typeof REQUESTS, failing: Failing]

const NAMES = Object.keys(REQUESTS) as (keyof typeof REQUESTS)[]
const AFTER_WORK = ['gets a stream', 'leaves a stream', 'is refused'] as const

const ROWS: readonly Row[] =
  SELECTION === 'all'
    ? [
        ...NAMES.map((name): Row => [name, 'throws']),
        ...AFTER_WORK.map((name): Row => [name, 'works, and then throws']),
      ]
    : [['gets a stream', 'throws']]

/** `npm test` lets every eighth touch throw. */
const STEP = SELECTION === 'all' ? 1 : 8

const SETUPS: Record<string, (touches: Touches, env: FastStore['env']) => Promise<SetUp>> = {
  async expressGuard(touches, env) {
    const limits = expressGuard(
      configWith(touches),
      { env, address: touches.fn('address', () => '192.0.2.1') },
      platformWith(touches),
    )
    const handle = getRequestListener(request => app(request, touches), { overrideGlobalObjects: false })
    return await listening((req, res) => {
      const next = (error?: unknown) => {
        if (error !== undefined) replyToError(res)
        else void handle(req, res)
      }
      limits(touches.of('req', req), touches.of('res', res), touches.fn('next', next))
    })
  },

  async nodeListener(touches, env) {
    const limits = createGuard(configWith(touches), { env }, platformWith(touches))
    const run = touches.fn('handler', (request: Request) => app(request, touches))
    const listener = nodeListener((request, ...platform) => limits(request, platform, () => run(request)))
    return await listening((req, res) => void listener(req, touches.of('res', res)))
  },

  async 'Hono middleware'(touches, env) {
    const limits = sluice(
      configWith(touches),
      { env, address: touches.fn('address', () => '192.0.2.1') },
      platformWith(touches),
    )
    const hono = new Hono()
    hono.use((c, next) => limits(touches.of('c', c as never), touches.fn('next', next)))
    hono.all('*', c => app(c.req.raw, touches))
    hono.onError((_, c) => c.text('failed', 500))
    return await listening(nodeListener(hono.fetch))
  },

  async 'guard as a function'(touches, env) {
    const limits = createGuard(
      configWith(touches),
      { env, address: touches.fn('address', () => '192.0.2.1') },
      platformWith(touches),
    )
    const run = touches.fn('handler', (request: Request) => app(request, touches))
    const context = touches.of('ctx', { waitUntil: (task: Promise<unknown>) => void task })
    return {
      async ask({ path, method, body, leaves }) {
        const gone = new AbortController()
        const init = { ...(method && { method }), ...(body && { body }), signal: gone.signal }
        const request = new Request(`https://api.test${path}`, init)
        try {
          const reply = await limits(touches.of('request', request, { getters: true }), [{}, context], () =>
            run(request),
          )
          if (leaves) await reply.body?.getReader().read()
          if (leaves) gone.abort()
          else await reply.arrayBuffer()
          return reply.status
        } catch {
          return 0
        }
      },
      close: async () => {},
    }
  },

  async gateway(touches, env) {
    const origin = await listening(nodeListener(request => app(request, touches)))
    const config = checkedConfig({ ...configWith(touches), origin: origin.url, address: { from: 'peer' } })
    const { UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: token } = env
    const { storeDeadlineMs: deadlineMs, keyLocking } = config
    const store = touches.of('store', upstashStore({ url, token, deadlineMs, keyLocking }))
    const platform = { ...platformWith(touches), peerOf: touches.fn('peerOf', () => '192.0.2.1') }
    const gateway = createApp(config, store, ALL_PARTS, platform)
    const context = touches.of('ctx', { waitUntil() {}, passThroughOnException() {}, props: {} })
    const { ask, close } = await listening(nodeListener(request => gateway.fetch(request, {}, context)))
    return {
      ask,
      async close() {
        await close()
        await origin.close()
      },
    }
  },
}

async function listening(listener: RequestListener): Promise<SetUp & { url: string }> {
  const { url, close } = await serve(listener)
  return { url, ask: askAt(url), close }
}

const askAt =
  (url: string): Ask =>
  ({ path, method = 'GET', body, leaves }) =>
    new Promise(resolve => {
      const client = send(url + path, { method, agent: false }, response => {
        const end = () => resolve(response.statusCode!)
        response.on('error', () => {})
        response.on('close', end)
        if (leaves) response.once('data', () => client.destroy())
        response.resume()
      })
      client.on('error', () => resolve(0))
      client.end(body)
    })

let store: FastStore
beforeAll(async () => {
  store = await startFastStore()
})
afterAll(() => store?.close())

/** Over all set-ups, because each run has an environment of its own: the last request of a run can be held for longer than its set-up. */
let runs = 0

describe.each(Object.entries(SETUPS))('%s', (_, start) => {
  const uncaught = catchUncaught()
  let known = 0

  /**
   * Sends a request whose touch with this number throws.
   * @returns what has thrown, if the request has touched so often; and what must not happen
   */
  async function runWith(touches: Touches, call: Call): Promise<string[]> {
    const env = { ...store.env, SLUICE_ENVIRONMENT: `run${++runs}` }
    const { fetch } = globalThis
    let { isStoreDown } = call
    const toStore = touches.fn('fetch of the store', fetch)
    const toOrigin = touches.fn('fetch of the origin', fetch)
    vi.stubGlobal('fetch', async (...args: Parameters<typeof fetch>) => {
      const isStore = String(args[0]).startsWith(env.UPSTASH_REDIS_REST_URL)
      if (isStore && isStoreDown) throw new TypeError('fetch failed')
      return await (isStore ? toStore : toOrigin)(...args)
    })
    for (const level of ['error', 'warn', 'info'] as const)
      vi.spyOn(console, level).mockImplementation(touches.fn(`console.${level}`, () => {}))
    const setUp = await start(touches, env)
    const mistakes: string[] = []

    const ask = async (call: Call) => {
      const hanging = Promise.withResolvers<never>()
      const timer = setTimeout(() => hanging.reject(new Error('The client hangs.')), PATIENT_MS)
      return await Promise.race([setUp.ask(call), hanging.promise]).finally(() => clearTimeout(timer))
    }
    const untilAdmitted = () =>
      vi
        .waitUntil(async () => (await ask(REQUESTS['gets a text'])) === 200, PATIENT)
        .catch(error => {
          mistakes.push(`the unit is not free: ${error}`)
        })

    try {
      await ask(call).catch(error => mistakes.push(String(error)))
      isStoreDown = false
      // This request can throw, too: it runs with what the first one has left.
      await untilAdmitted()
      touches.end()
      await untilAdmitted()
    } finally {
      touches.end()
      await setUp.close()
      vi.unstubAllGlobals()
      vi.restoreAllMocks()
    }
    mistakes.push(
      ...uncaught()
        .slice(known)
        .map(error => `not caught: ${(error as Error).stack}`),
    )
    known = uncaught().length
    return mistakes
  }

  it.each(ROWS)('replies to a client that %s, and frees its unit, whatever %s', async (name, failing) => {
    const mistakes: unknown[] = []
    let touched = 0
    for (let isOver = false; !isOver && mistakes.length < 3; touched += STEP) {
      const touches = new Touches(touched + 1, failing)
      const found = await runWith(touches, REQUESTS[name])
      if (found.length > 0) mistakes.push({ touch: touches.thrown, found })
      isOver = touches.thrown === undefined
    }
    expect(mistakes).toEqual([])
    expect(touched).toBeGreaterThan(20)
  })
})
