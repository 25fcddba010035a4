/** Rules by a field of the body in each set-up around the user's code, which gets its body whole. */
import type { Server } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { Hono } from 'hono'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { KEY_SECRET, newKeySecret } from '../../src/credentials/key-signature.ts'
import { expressGuard } from '../../src/node/express.ts'
import { guard } from '../../src/set-ups/guard/guard.ts'
import { sluice } from '../../src/set-ups/hono/middleware.ts'
import { type FastStore, startFastStore } from '../support/fast-store.ts'
import { quickTime } from '../support/quick-time.ts'

const RULE = {
  name: 'logins',
  by: 'field:email',
  algorithm: 'fixed-window',
  limit: 100,
  period: '1d',
} as const
const CONFIG: ConfigInput = {
  store: { deadline: '20s' },
  log: { perSecond: 0 },
  stats: { keep: false },
  credentials: { accept: ['anonymous'] },
  rules: [{ ...RULE, limit: 1 }],
}
const KEY = newKeySecret()

let store: FastStore
beforeAll(async () => {
  store = await startFastStore()
})
afterAll(() => store.close())
beforeEach(() => store.clear())
const servers: Server[] = []
afterAll(() => {
  for (const server of servers) {
    server.closeAllConnections()
    server.close()
  }
})
const options = () => ({ env: { ...store.env, [KEY_SECRET]: KEY } })

/** Sends bodies one after the other. @returns what the user's code has received, or the status of a refusal */
async function replies(send: (init: RequestInit) => Promise<Response>): Promise<unknown[]> {
  const bodies: [string, string][] = [
    ['{"email":"ada"}', 'application/json'],
    ['email=Ada', 'application/x-www-form-urlencoded'],
    ['{"email":"bob"}', 'application/json'],
  ]
  const received: unknown[] = []
  for (const [body, type] of bodies) {
    const reply = await send({ method: 'POST', body, headers: { 'content-type': type } })
    received.push(reply.ok ? await reply.text() : reply.status)
  }
  return received
}

it('counts by the field around a handler of web requests', async () => {
  const handler = guard(CONFIG, options())(async (request: Request) => new Response(await request.text()))
  expect(await replies(async init => await handler(new Request('http://a.test/', init)))).toEqual([
    '{"email":"ada"}',
    429,
    '{"email":"bob"}',
  ])
})

it.each<[what: string, status: number, config: Partial<ConfigInput>, headers: Record<string, string>]>([
  ['reach a handler that does not read them', 200, {}, {}],
  ['are refused by a limit', 429, { rules: [{ ...RULE, limit: 1 }] }, {}],
  ['come with a key that is malformed', 401, {}, { 'x-api-key': 'x' }],
])('keeps no room for bodies of more than 8 kB that %s', async (_, status, more, headers) => {
  const handler = guard(
    { ...CONFIG, rules: [RULE], ...more },
    options(),
  )(async (_: Request) => new Response())
  const send = async (body: ReadableStream) => {
    const init = { method: 'POST', body, headers: { 'content-type': 'application/json', ...headers } }
    return (await handler(new Request('http://a.test/', { ...init, duplex: 'half' } as RequestInit))).status
  }
  const inChunks = () =>
    new ReadableStream({
      start(controller) {
        controller.enqueue(new Uint8Array(100_000).fill(32))
        controller.close()
      },
    })
  const statuses: number[] = []
  for (let i = 0; i < 20; i++) statuses.push(await send(inChunks()))
  expect(statuses.slice(1)).toEqual(Array(19).fill(status))
})

it('counts by the field in a Hono app', async () => {
  const app = new Hono()
  app.use(sluice(CONFIG, options(), quickTime()))
  app.post('/', async c => c.text(await c.req.text()))
  expect(await replies(async init => await app.request('/', init))).toEqual([
    '{"email":"ada"}',
    429,
    '{"email":"bob"}',
  ])
})

it('counts by the field in an Express app that has parsed the body before', async () => {
  const express = createRequire(import.meta.url)('express')
  const app = express()
  app.use(express.json(), express.urlencoded({ extended: true }))
  app.use(expressGuard(CONFIG, options(), quickTime()))
  app.post('/', (req: { body: unknown }, res: { json(body: unknown): void }) => res.json(req.body))
  const server: Server = app.listen(0, '127.0.0.1')
  servers.push(server)
  await new Promise(resolve => server.once('listening', resolve))
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  expect(await replies(async init => await fetch(url, init))).toEqual([
    '{"email":"ada"}',
    429,
    '{"email":"bob"}',
  ])
})
