/** What requests to the user's code have cost in units, in each set-up that runs it. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { Hono } from 'hono'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import type { ConfigInput } from '../../src/config/check/schema.ts'
import { expressGuard } from '../../src/node/express.ts'
import { callerOf, createGuard, guard } from '../../src/set-ups/guard/guard.ts'
import { sluice } from '../../src/set-ups/hono/middleware.ts'
import { type FastStore, startFastStore } from '../support/fast-store.ts'
import { PATIENT } from '../support/patience.ts'
import { quickTime } from '../support/quick-time.ts'

const CONFIG: ConfigInput = {
  store: { deadline: '20s' },
  log: { perSecond: 0 },
  stats: { keep: false },
  credentials: { accept: ['anonymous'] },
  units: {
    tokens: { estimate: { defaultOutput: 100 }, actual: { usage: 'openai' } },
    cost: { estimate: 50, actual: { header: 'x-cost' } },
  },
  rules: [
    { name: 'tokens', unit: 'tokens', by: 'global', algorithm: 'fixed-window', limit: 10_000, period: '1d' },
    { name: 'cost', unit: 'cost', by: 'global', algorithm: 'gcra', limit: 10_000, period: '1d' },
  ],
}
const BODY = JSON.stringify({ messages: [{ role: 'user', content: 'x'.repeat(400) }], max_tokens: 30 })
const RESERVED = Math.ceil(BODY.length / 4) + 30
const USAGE = { prompt_tokens: 12, completion_tokens: 8, total_tokens: 20 }

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

type Send = (init: RequestInit) => Promise<Response>

const leftIn = (response: Response) =>
  [...(response.headers.get('RateLimit') ?? '').matchAll(/;r=(\d+)/g)].map(([, left]) => Number(left))

/** Waits until so much is left of both limits. */
async function expectLeft(left: number[]): Promise<void> {
  const peeking = guard(
    { ...CONFIG, hooks: { amounts: () => ({ tokens: 0, cost: 0 }) } },
    { env: store.env },
  )((_: Request) => new Response())
  await vi.waitFor(
    async () => expect(leftIn(await peeking(new Request('http://a.test/')))).toEqual(left),
    PATIENT,
  )
}

/** Sends a request to a model to the user's code, which gets its whole body. */
async function expectSettled(send: Send): Promise<void> {
  const response = await send({ method: 'POST', body: BODY, headers: { 'content-type': 'application/json' } })
  expect(leftIn(response)).toEqual([10_000 - RESERVED, 9950])
  expect(response.headers.get('x-cost')).toBeNull()
  expect(await response.json()).toMatchObject({ received: BODY })
  await expectLeft([10_000 - 20, 10_000 - 7])
}

const reply = (received: string) => Response.json({ received, usage: USAGE }, { headers: { 'x-cost': '7' } })

/** What is used here of Express, which has no types of its own. */
interface Express {
  (): { use(...handlers: unknown[]): { listen(port: number, host: string): Server } }
  json(): unknown
}
type OnError = (
  error: { status: number },
  req: IncomingMessage,
  res: ServerResponse,
  next: (error: unknown) => void,
) => void
const express = createRequire(import.meta.url)('express') as Express

describe('a body that express.json() cannot parse', () => {
  it('counts, if the guard also handles the error', async () => {
    const minute = {
      name: 'minute',
      by: 'global',
      algorithm: 'fixed-window',
      limit: 3,
      period: '1d',
    } as const
    const limit = expressGuard(
      { ...CONFIG, rules: [minute, ...CONFIG.rules!] },
      { env: store.env },
      quickTime(),
    )
    const counted: OnError = (error, req, res, next) => limit(req, res, () => next(error))
    // Express recognizes it by its four parameters.
    const status: OnError = (error, _, res, __) => void res.writeHead(error.status).end()
    const server = express().use(express.json(), counted, limit, status).listen(0, '127.0.0.1')
    servers.push(server)
    await new Promise(resolve => server.once('listening', resolve))
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
    const init = { method: 'POST', body: '{"a":', headers: { 'content-type': 'application/json' } }
    const statuses: number[] = []
    for (let i = 0; i < 6; i++) statuses.push((await fetch(url, init)).status)
    expect(statuses).toEqual([400, 400, 400, 429, 429, 429])
  })
})

describe('a request to a model', () => {
  it('is settled by the reply of guarded code', async () => {
    const options = { env: store.env }
    const guarded = createGuard(CONFIG, options, quickTime())
    await expectSettled(init => {
      const request = new Request('http://a.test/', init)
      return guarded(request, [], async (info, copy) => {
        expect(callerOf(copy)).toBe(info)
        return reply(await copy.text())
      })
    })
  })

  it('is settled by the reply of a Hono app', async () => {
    const app = new Hono()
    app.use(sluice(CONFIG, { env: store.env }, quickTime()))
    app.post('/', async c => reply(await c.req.text()))
    await expectSettled(async init => await app.request('/', init))
  })

  it.each<[string, (text: string) => unknown]>([
    ['JSON', JSON.parse],
    ['bytes', text => Buffer.from(text)],
  ])('is settled by the reply of an Express app, whose body was parsed before as %s', async (_, parse) => {
    const middleware = expressGuard(CONFIG, { env: store.env }, quickTime())
    const server = createServer(async (req, res) => {
      const chunks: Buffer[] = []
      for await (const chunk of req) chunks.push(chunk as Buffer)
      const received = Buffer.concat(chunks).toString()
      Object.assign(req, { body: parse(received) })
      middleware(req, res, () => {
        res.writeHead(200, { 'content-type': 'application/json', 'x-cost': '7' })
        res.write(JSON.stringify({ received }).slice(0, -1))
        res.end(`,"usage":${JSON.stringify(USAGE)}}`)
      })
    })
    servers.push(server)
    await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve))
    await expectSettled(init => fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`, init))
  })

  it('gets only encodings in which its reply can be read', async () => {
    const init = { method: 'POST', body: BODY, headers: { 'accept-encoding': 'br, deflate' } }
    const guarded = createGuard(CONFIG, { env: store.env }, quickTime())
    const seen: (string | null | undefined)[] = []
    await guarded(new Request('http://a.test/', init), [], (_, copy) => {
      seen.push(copy.headers.get('accept-encoding'))
      return new Response()
    })
    const middleware = expressGuard(CONFIG, { env: store.env }, quickTime())
    const server = createServer((req, res) => {
      middleware(req, res, () => {
        seen.push(req.headers['accept-encoding'] as string)
        res.end()
      })
    })
    servers.push(server)
    await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve))
    await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`, init)
    expect(seen).toEqual(['identity', 'identity'])
  })

  it('costs what an Express app goes on to write after its client has left', async () => {
    const middleware = expressGuard(CONFIG, { env: store.env }, quickTime())
    const client = new AbortController()
    const server = createServer((req, res) => {
      middleware(req, res, () => {
        res.writeHead(200, { 'content-type': 'text/event-stream', 'x-cost': '7' })
        res.write('data: {"choices":[]}\n\n')
        res.once('close', () => {
          res.write(`data: {"choices":[],"usage":${JSON.stringify(USAGE)}}\n\n`)
          res.end()
        })
      })
    })
    servers.push(server)
    await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
    const response = await fetch(url, { method: 'POST', body: BODY, signal: client.signal })
    await response.body!.getReader().read()
    client.abort()
    await expectLeft([10_000 - 20, 10_000 - 7])
  })

  it('is estimated without the body if a parser of an Express app made something that JSON cannot have', async () => {
    const middleware = expressGuard(CONFIG, { env: store.env }, quickTime())
    const server = createServer((req, res) => {
      Object.assign(req, { body: { id: 1n } })
      middleware(req, res, error => res.writeHead(error ? 500 : 200).end())
    })
    servers.push(server)
    await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
    expect((await fetch(url, { method: 'POST', body: 'id=1' })).status).toBe(200)
  })

  it('is refused if its body cannot be read, before guarded code or a Hono app gets it', async () => {
    const app = new Hono()
    app.use(sluice(CONFIG, { env: store.env }, quickTime()))
    const run = vi.fn(() => new Response())
    app.post('/', run)
    const guarded = guard(CONFIG, { env: store.env })((_: Request) => run())
    const sends: ((init: RequestInit) => Response | Promise<Response>)[] = [
      init => guarded(new Request('http://a.test/', init)),
      init => app.request('/', init),
    ]
    const form = new FormData()
    form.set('file', new Blob(['x']))
    for (const send of sends) {
      const headers = { 'content-type': 'application/json' }
      const notJson = await send({ method: 'POST', body: '{"messages":[],"x":NaN}', headers })
      expect([notJson.status, leftIn(notJson)]).toEqual([400, []])
      expect((await send({ method: 'POST', body: form })).status).toBe(415)
    }
    expect(run).not.toHaveBeenCalled()
    await expectLeft([10_000, 10_000])
  })

  it('reaches guarded code whole if it is large, and costs what its rest says', async () => {
    const tokens = { estimate: { maxBytes: 100 }, actual: { usage: 'openai' as const, includeUsage: true } }
    const config = { ...CONFIG, units: { ...CONFIG.units, tokens } }
    const guarded = createGuard(config, { env: store.env }, quickTime())
    const body = `{"messages":["${'x'.repeat(3000)}"],"stream":true,"max_tokens":30}`
    const stream = new Blob([body.slice(0, 1000), body.slice(1000)]).stream()
    const headers = { 'content-type': 'application/json', 'content-length': String(body.length) }
    const init = { method: 'POST', body: stream, headers, duplex: 'half' } as RequestInit
    const log = vi.spyOn(console, 'warn').mockImplementation(() => {})
    const response = await guarded(new Request('http://a.test/', init), [], async (_, copy) => {
      expect(await copy.json()).toMatchObject({ stream: true, stream_options: { include_usage: true } })
      return Response.json({})
    })
    await response.text()
    await expectLeft([10_000 - Math.ceil(body.length / 4) - 30, 10_000 - 50])
    log.mockRestore()
  })

  it('is not estimated by what the parsers of Express leave behind of a form', async () => {
    const middleware = expressGuard(CONFIG, { env: store.env }, quickTime())
    const run = vi.fn()
    const server = createServer((req, res) => {
      Object.assign(req, { body: {} })
      middleware(req, res, () => {
        run()
        res.end()
      })
    })
    servers.push(server)
    await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve))
    const body = new FormData()
    body.set('file', new Blob(['x'.repeat(1000)]))
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
    expect((await fetch(url, { method: 'POST', body })).status).toBe(415)
    expect(run).not.toHaveBeenCalled()
  })

  it('costs its estimate if the user’s code throws: it may have called a model', async () => {
    const guarded = createGuard(CONFIG, { env: store.env }, quickTime())
    const failing = guarded(new Request('http://a.test/', { method: 'POST', body: BODY }), [], () => {
      throw new Error('broken')
    })
    await expect(failing).rejects.toThrow('broken')
    await expectLeft([10_000 - RESERVED, 9950])
  })
})
