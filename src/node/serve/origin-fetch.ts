/**
 * Sends requests to the origin through undici. The `fetch` of Node would decompress replies, and passes bodies through web streams.
 *
 * A response must not reach another caller than the one who sent its request (RFC 9112, section 9.2). An origin can leave bytes on a
 * connection: a body after the head of a response that has no body, or what follows an early response. So the connection is closed
 * after such a response, and when bytes arrive while it is idle.
 *
 * If the origin closes a kept connection instead of answering, an idempotent request is sent once more, on a new connection.
 */
import { Readable } from 'node:stream'
import type { Dispatcher } from 'undici'
import { cleanResponse, type FetchOrigin } from '../../set-ups/gateway/proxy.ts'
import { bodyStream } from './body-stream.ts'
import { type Exchange, exchangeOf } from './exchange.ts'
import {
  type Connection,
  type ConnectionSettings,
  isClosed,
  MAX_RESPONSE_HEAD,
  OriginConnections,
} from './origin-connections.ts'
import type { Reading } from './paced-reading.ts'
import { RequestBody } from './request-body.ts'

/** Statuses whose responses have no body (Fetch Standard). */
const WITHOUT_BODY = new Set([204, 205, 304])

/** RFC 9110, section 9.2.2. */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE'])

const bodies = new WeakMap<Response, OriginBody>()

/** The body of a response of the origin. Undefined for any other response, and if the body was read. */
export function originBodyOf(response: Response): OriginBody | undefined {
  const body = bodies.get(response)
  return body && !body.readableDidRead && body.listenerCount('readable') === 0 ? body : undefined
}

export interface Origin {
  fetchOrigin: FetchOrigin
  close(): void
}

export function connectToOrigin(settings: ConnectionSettings): Origin {
  const connections = new OriginConnections(settings)
  return {
    async fetchOrigin(target, request, { headers, signal }) {
      const exchange = exchangeOf(request)
      if (exchange) exchange.isForwarded = true
      // The paths of the gateway begin after the third slash.
      const slash = target.indexOf('/', target.indexOf('//') + 2)
      const origin = target.slice(0, slash)
      const body = bodyOf(request, exchange)
      const sending: Sending = {
        path: target.slice(slash),
        method: request.method,
        headers: headersOf(headers as Headers, hostOf(origin), body !== undefined),
        ...{ body, signal: signal ?? undefined },
      }
      signal?.throwIfAborted()
      const first = new Attempt(sending, connections.take(origin), connections)
      return await first.response.catch(error => {
        if (!first.canRepeat()) throw error
        return new Attempt(sending, connections.take(origin, true), connections).response
      })
    },
    close: () => connections.close(),
  }
}

const hostOf = (origin: string) => origin.slice(origin.indexOf('//') + 2)

function bodyOf(request: Request, exchange: Exchange | undefined): RequestBody | undefined {
  if (exchange) return exchange.hasBody ? new RequestBody(exchange.takeBody()) : undefined
  type WebStream = Parameters<typeof Readable.fromWeb>[0]
  return request.body ? new RequestBody(Readable.fromWeb(request.body as WebStream)) : undefined
}

/** Headers that are not for the origin: it has no WebSockets here, and the client's expectation is met before its body is read. */
const NOT_PASSED_ON = new Set(['upgrade', 'expect'])

/** Names and values in turn. */
function headersOf(headers: Headers, host: string, hasBody: boolean): string[] {
  const list = ['host', host]
  for (const [name, value] of headers) {
    if (NOT_PASSED_ON.has(name) || (name === 'content-length' && !hasBody)) continue
    list.push(name, value)
  }
  return list
}

interface Sending {
  path: string
  method: string
  headers: string[]
  body: RequestBody | undefined
  signal: AbortSignal | undefined
}

/** A request that is sent on a connection once. */
class Attempt implements Dispatcher.DispatchHandler {
  /** Rejects if the origin does not answer. */
  readonly response: Promise<Response>
  readonly #sending: Sending
  readonly #connection: Connection
  readonly #connections: OriginConnections
  readonly #resolve: (response: Response) => void
  readonly #reject: (error: unknown) => void
  #controller: Dispatcher.DispatchController | undefined
  #body: OriginBody | undefined
  #isAnswered = false
  /** Whether the connection has carried a request before. */
  #isReused = false
  /** What the connection had received before. */
  #bytesBefore = 0
  #isClosedByOrigin = false

  constructor(sending: Sending, connection: Connection, connections: OriginConnections) {
    const { promise, resolve, reject } = Promise.withResolvers<Response>()
    this.response = promise
    this.#resolve = resolve
    this.#reject = reject
    this.#sending = sending
    this.#connection = connection
    this.#connections = connections
    const { path, method, headers, body, signal } = sending
    signal?.addEventListener('abort', () => this.#abort(signal.reason))
    const options = { path, method: method as Dispatcher.HttpMethod, headers, body: body?.open() ?? null }
    connection.client.dispatch(options, this)
  }

  /** Whether the request can be sent again: the origin has closed a kept connection without a byte of a response. */
  canRepeat(): boolean {
    const { method, body, signal } = this.#sending
    return this.#isClosedByOrigin && IDEMPOTENT.has(method) && (body?.canRepeat ?? true) && !signal?.aborted
  }

  #abort(reason: unknown): void {
    if (this.#isAnswered) this.#body?.destroy(reason as Error)
    else this.#reject(reason)
    if (this.#controller) this.#controller.abort(reason as Error)
    else this.#connection.abandon(reason as Error)
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    const { signal } = this.#sending
    this.#controller = controller
    const connection = this.#connection
    this.#isReused = connection.requests++ > 0
    this.#bytesBefore = connection.socket?.bytesRead ?? 0
    connection.interimFilter?.expectResponse()
    if (signal?.aborted) controller.abort(signal.reason)
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number): void {
    // Interim responses, as 103, are not passed on.
    if (status < 200) return
    this.#isAnswered = true
    const { method, body } = this.#sending
    const isEarly = body !== undefined && !body.isWhole
    const hasBody = method !== 'HEAD' && !WITHOUT_BODY.has(status)
    // The origin may take the rest of the body for the next request.
    if (isEarly) this.#connection.isRetired = true
    try {
      if (status > 599) throw statusError(status)
      const rawHeaders = controller.rawHeaders as Buffer[]
      if (hasBody) this.#body = new OriginBody(controller, this.#connection.reading!)
      this.#resolve(responseOf(status, rawHeaders, method, this.#body))
    } catch (error) {
      this.#reject(error)
      controller.abort(error as Error)
      return
    }
    if (!hasBody) {
      // A body nevertheless would be taken for the response to the next request.
      this.#connection.retire()
      controller.abort(new Error('The response has no body.'))
    }
  }

  onResponseData(_: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#body?.receive(chunk)
  }

  onResponseEnd(): void {
    this.#body?.finish()
    if (this.#connection.isRetired) {
      this.#connection.retire()
      this.#sending.body?.discard()
    } else this.#connections.give(this.#connection)
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    if (this.#isAnswered) {
      this.#body?.destroy(error)
      return
    }
    this.#isClosedByOrigin =
      this.#isReused && isClosed(error) && this.#connection.socket?.bytesRead === this.#bytesBefore
    this.#reject(isHeadTooLong(error) ? headError() : error)
  }
}

/** The body of a response, which arrives as fast as it is read. */
export class OriginBody extends Readable {
  readonly #controller: Dispatcher.DispatchController
  readonly #reading: Reading
  /** Whether all of it has arrived. As of a message of `node:http`. */
  complete = false

  constructor(controller: Dispatcher.DispatchController, reading: Reading) {
    super({ highWaterMark: 65_536 })
    this.#controller = controller
    this.#reading = reading
    // Without a listener, a response that breaks off would end the process.
    this.on('error', () => {})
  }

  receive(chunk: Buffer): void {
    if (!this.push(chunk)) this.#reading.pause()
  }

  finish(): void {
    this.complete = true
    this.push(null)
    // Bytes that arrive while the connection is idle must be noticed.
    this.#reading.resume()
  }

  override _read(): void {
    this.#reading.resume()
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    if (!this.complete) this.#controller.abort(error ?? new Error('The body is not wanted.'))
    done(error)
  }
}

function responseOf(
  status: number,
  rawHeaders: Buffer[],
  method: string,
  body: OriginBody | undefined,
): Response {
  const headers = new Headers()
  // Bytes, as Node reads them: a name of a file in UTF-8 stays as it is.
  for (let i = 0; i < rawHeaders.length; i += 2)
    headers.append(rawHeaders[i]!.toString('latin1'), rawHeaders[i + 1]!.toString('latin1'))
  cleanResponse(headers)
  // The client would wait for a body of this length, and take the next response for it.
  if (!body && method !== 'HEAD' && status !== 304) headers.delete('content-length')
  const response = new Response(null, { status, headers })
  if (!body) return response
  let stream: ReadableStream | undefined
  Object.defineProperty(response, 'body', {
    get() {
      stream ??= bodyStream(body)
      return stream
    },
  })
  bodies.set(response, body)
  return response
}

const isHeadTooLong = ({ code }: NodeJS.ErrnoException) => code === 'UND_ERR_HEADERS_OVERFLOW'

const headError = () =>
  new Error(
    `The status line and headers of the origin's response have more than ${MAX_RESPONSE_HEAD / 1024} kB.`,
  )

const statusError = (status: number) => new Error(`The origin has answered with the status ${status}.`)
