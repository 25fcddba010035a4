/**
 * Tests a set-up with every method, every way in which an app ends a request (ending-list.ts), and clients that leave. In each case, never
 * more requests than the limit are at work at once, the reply is what the app sent, all units are free afterwards, and nothing is thrown
 * outside of a handler.
 */
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  request,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { SELECTION } from '../selection.ts'
import {
  APP_HEADER,
  AppError,
  ENDS,
  type End,
  endOf,
  endOfPath,
  FIRST,
  hasBody,
  LAST,
  LIMIT,
  METHODS,
  type Method,
  pathOf,
  type Turns,
  type Work,
} from './ending-list.ts'
import { listen } from './listen.ts'
import { PATIENT } from './patience.ts'
import { catchUncaught } from './uncaught.ts'

export interface Order {
  name: string
  method: Method
  end: End
  /** The client never sends the rest of the body of its request. */
  isUnfinished?: boolean
}

export interface Asked {
  /** Resolves when the reply has ended, or has broken off. */
  reply: Promise<Reply>
  /** Resolves with the first bytes of the body. */
  begun: Promise<unknown>
  leave(): void
}

export interface Reply {
  /** 0: no head has arrived. */
  status: number
  /** The header of the app; absent if the app did not send this reply. */
  app?: string | undefined
  body: string
  isWhole: boolean
}

/** A set-up that is running. Its app reports to the turns that it was started with. */
export interface RunningSetUp {
  ask(order: Order): Asked
  close(): Promise<void>
}

export type StartSetUp = (turns: Turns) => Promise<RunningSetUp>

/** Where the test lets apps continue. It counts the requests that are at work. */
export class TestTurns implements Turns {
  readonly #atWork = new Map<string, Map<string, () => void>>()
  readonly #most = new Map<string, number>()

  begin({ name, id }: Work): void {
    const all = this.#atWork.get(name) ?? new Map<string, () => void>()
    if (!all.has(id)) all.set(id, () => {})
    this.#atWork.set(name, all)
    this.#most.set(name, Math.max(this.most(name), all.size))
  }

  turn(work: Work, isLast: boolean): Promise<void> {
    return new Promise(resolve => {
      this.begin(work)
      this.#atWork.get(work.name)!.set(work.id, () => {
        if (isLast) this.stop(work)
        resolve()
      })
    })
  }

  stop({ name, id }: Work): void {
    this.#atWork.get(name)?.delete(id)
  }

  atWork = (name: string) => this.#atWork.get(name)?.size ?? 0
  most = (name: string) => this.#most.get(name) ?? 0

  continueAll(name: string): void {
    for (const resume of [...(this.#atWork.get(name)?.values() ?? [])]) resume()
  }
}

let cases = 0

/** @param methods default: all with `npm run test:all`, half of them with `npm test` */
export function describeSetUp(
  title: string,
  start: StartSetUp,
  methods: readonly Method[] = SELECTION === 'all' ? METHODS : ['HEAD', 'POST'],
): void {
  describe(title, () => {
    const turns = new TestTurns()
    const uncaught = catchUncaught()
    let setUp: RunningSetUp
    const { error: log } = console
    beforeAll(async () => {
      setUp = await start(turns)
      // The servers log what the app throws. Not a spy: the first test that ends would restore it for all others.
      console.error = () => {}
    })
    afterAll(async () => {
      console.error = log
      await setUp?.close()
    })

    const newName = () => `case-${++cases}-${title}`

    /** Fills the limit, and expects that a further request is refused and does not reach the app. */
    async function fill(order: Order): Promise<Asked[]> {
      const asked = Array.from({ length: LIMIT }, () => setUp.ask(order))
      await vi.waitUntil(() => turns.atWork(order.name) === LIMIT, PATIENT)
      await expectFull(order)
      return asked
    }

    async function expectFull({ name, method, end }: Order): Promise<void> {
      const { status, app } = await setUp.ask({ name, method, end }).reply
      expect([status, app, turns.most(name)]).toEqual([429, undefined, LIMIT])
    }

    /** Waits until the whole limit can be used again. */
    async function untilFree(name: string): Promise<void> {
      await vi.waitUntil(async () => {
        const all = Array.from(
          { length: LIMIT },
          () => setUp.ask({ name, method: 'GET', end: 'sends a text' }).reply,
        )
        const timer = setInterval(() => turns.continueAll(name), 2)
        const replies = await Promise.all(all).finally(() => clearInterval(timer))
        return replies.every(({ status }) => status === 200)
      }, PATIENT)
      expect(turns.most(name)).toBe(LIMIT)
      expect(uncaught()).toEqual([])
    }

    const ends = Object.keys(ENDS) as End[]
    const rows = ends.flatMap(end => methods.map(method => [method, end] as const))

    it.concurrent.each(rows)('%s holds its unit until the app %s', async (method, end) => {
      const order = { name: newName(), method, end }
      const asked = await fill(order)
      turns.continueAll(order.name)
      // A reply to HEAD has no body, so an app need not stream it.
      if (endOf(end).stream && method !== 'HEAD') {
        for (const { begun } of asked) await begun
        await expectFull(order)
        await vi.waitUntil(() => {
          turns.continueAll(order.name)
          return turns.atWork(order.name) === 0
        }, PATIENT)
      }
      for (const { reply } of asked) expectReply(await reply, method, end)
      await untilFree(order.name)
    })

    it.concurrent.each(methods)(
      '%s frees its unit after its client has left before the head',
      async method => {
        const order = { name: newName(), method, end: 'sends a text' } as const
        const asked = await fill(order)
        for (const { leave } of asked) leave()
        turns.continueAll(order.name)
        await untilFree(order.name)
      },
    )

    it.concurrent.each(methods.filter(method => method !== 'HEAD'))(
      '%s frees its unit after its client has left in the body',
      async method => {
        const order = { name: newName(), method, end: 'streams and ends' } as const
        const asked = await fill(order)
        turns.continueAll(order.name)
        for (const { begun } of asked) await begun
        for (const { leave } of asked) leave()
        turns.continueAll(order.name)
        await untilFree(order.name)
      },
    )

    it.concurrent.each(
      methods
        .filter(hasBody)
        .flatMap(method =>
          (['sends a text', 'reads the request and sends a text'] as const).map(
            end => [method, end] as const,
          ),
        ),
    )(
      '%s frees its unit after its client has left before it has sent its body, if the app %s',
      async (method, end) => {
        const order = { name: newName(), method, end, isUnfinished: true }
        const asked = await fill(order)
        for (const { leave } of asked) leave()
        turns.continueAll(order.name)
        await untilFree(order.name)
      },
    )
  })
}

function expectReply(reply: Reply, method: Method, end: End): void {
  const { status, body, stream, throws } = endOf(end)
  // What the client gets is up to the framework's error handler.
  if (throws) expect(reply.status).toBe(500)
  else if (method === 'HEAD') expect(reply).toEqual({ status, app: method, body: '', isWhole: true })
  else if (stream === 'breaks off')
    expect(reply).toEqual({ status, app: method, body: FIRST, isWhole: false })
  else
    expect(reply).toEqual({ status, app: method, body: stream ? FIRST + LAST : (body ?? ''), isWhole: true })
}

/** The app as a listener of `node:http`, for Express and as the origin of a gateway. */
export async function serveApp(req: IncomingMessage, res: ServerResponse, turns: Turns): Promise<void> {
  const { status, body, stream, throws, reads } = endOf(endOfPath(req.url!))
  const work = { name: String(req.headers['x-case']), id: crypto.randomUUID() }
  await turns.begin(work)
  res.once('close', () => turns.stop(work))
  if (reads) await text(req)
  const isStream = stream !== undefined && req.method !== 'HEAD'
  await turns.turn(work, !isStream)
  if (throws) throw new AppError()
  res.writeHead(status, { [APP_HEADER]: req.method })
  if (!isStream) return void res.end(body ?? undefined)
  res.write(FIRST)
  await turns.turn(work, true)
  if (stream === 'breaks off') res.destroy()
  else res.end(LAST)
}

/** Replies to an error as the error handler of Express does. */
export function replyToError(res: ServerResponse): void {
  if (res.headersSent) res.destroy()
  else res.writeHead(500).end()
}

/** A set-up that is a listener of `node:http`. */
export async function listening(listener: RequestListener): Promise<RunningSetUp & { url: string }> {
  const server = createServer(listener)
  await listen(server, 0)
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return {
    url,
    ask: askAt(url),
    close: () =>
      new Promise(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

/** Sends each request on a new connection. Every second client that leaves resets its connection; the others close it. */
export function askAt(url: string): RunningSetUp['ask'] {
  let leaves = 0
  return ({ name, method, end, isUnfinished }) => {
    const headers = { 'x-case': name, ...(hasBody(method) && { 'content-length': '3' }) }
    const client = request(url + pathOf(end), { method, headers, agent: false })
    const begun = Promise.withResolvers<void>()
    const reply = new Promise<Reply>(resolve => {
      client.on('error', () => resolve({ status: 0, body: '', isWhole: false }))
      client.on('response', response => {
        let body = ''
        response.on('error', () => {})
        response.on('data', data => {
          body += String(data)
          begun.resolve()
        })
        response.on('close', () =>
          resolve({
            status: response.statusCode!,
            app: response.headers[APP_HEADER] as string | undefined,
            body,
            isWhole: response.complete,
          }),
        )
      })
    })
    if (!hasBody(method)) client.end()
    else if (isUnfinished) client.write('a')
    else client.end('abc')
    const leave = () => {
      if (++leaves % 2 === 0) client.socket?.resetAndDestroy()
      client.destroy()
    }
    return { reply, begun: begun.promise, leave }
  }
}

/** Calls a function of a request, as a server does that passes on what its client does. */
export function askFunction(handle: (request: Request) => Response | Promise<Response>): RunningSetUp['ask'] {
  return ({ name, method, end, isUnfinished }) => {
    const gone = new AbortController()
    const begun = Promise.withResolvers<void>()
    let sending: ReadableStreamDefaultController<Uint8Array> | undefined
    let reader: ReadableStreamDefaultReader<Uint8Array> | undefined
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        sending = controller
        controller.enqueue(new TextEncoder().encode(isUnfinished ? 'a' : 'abc'))
        if (!isUnfinished) controller.close()
      },
    })
    const sent = new Request(`https://api.test${pathOf(end)}`, {
      method,
      headers: { 'x-case': name, ...(hasBody(method) && { 'content-length': '3' }) },
      signal: gone.signal,
      ...(hasBody(method) && { body, duplex: 'half' }),
    } as RequestInit)

    async function read(): Promise<Reply> {
      let response: Response
      try {
        response = await handle(sent)
      } catch (error) {
        // The platform replies with a 500 to an exception of the app. Any other exception is a mistake.
        if (!(error instanceof AppError || gone.signal.aborted)) throw error
        return { status: 500, body: '', isWhole: true }
      }
      const reply = { status: response.status, app: response.headers.get(APP_HEADER) ?? undefined, body: '' }
      if (gone.signal.aborted) await response.body?.cancel().catch(() => {})
      reader = response.body?.getReader()
      const decoder = new TextDecoder()
      try {
        for (;;) {
          const { done, value } = (await reader?.read()) ?? { done: true }
          if (done) return { ...reply, isWhole: true }
          reply.body += decoder.decode(value)
          begun.resolve()
        }
      } catch {
        return { ...reply, isWhole: false }
      }
    }

    return {
      reply: read(),
      begun: begun.promise,
      leave() {
        gone.abort()
        if (isUnfinished) sending?.error(new Error('The client has left.'))
        void reader?.cancel().catch(() => {})
      },
    }
  }
}
