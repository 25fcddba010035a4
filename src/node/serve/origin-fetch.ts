/**
 * Sends requests to the origin through `node:http`. The `fetch` of Node would decompress replies, and passes bodies through web streams.
 *
 * Connections to the origin are kept open. If one was closed in the moment in which it was used again, a request that is safe to repeat
 * is sent once more.
 */
import {
  type ClientRequest,
  Agent as HttpAgent,
  request as httpRequest,
  type IncomingMessage,
} from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import { Readable } from 'node:stream'
import { cleanResponse, type FetchOrigin } from '../../set-ups/gateway/proxy.ts'
import { bodyStream } from './body-stream.ts'
import { type Exchange, exchangeOf } from './exchange.ts'

/** Idle connections to the origin that a process keeps. */
const MAX_IDLE_CONNECTIONS = 256

/** Statuses whose responses have no body (Fetch Standard). */
const WITHOUT_BODY = new Set([204, 205, 304])

/** Methods whose requests seldom have a body, so that none is announced (RFC 9110, section 8.6). */
const WITHOUT_REQUEST_BODY = new Set(['GET', 'HEAD', 'OPTIONS', 'DELETE'])

/** Repeated if the connection was closed before they arrived. */
const SAFE = new Set(['GET', 'HEAD', 'OPTIONS'])

const messages = new WeakMap<Response, IncomingMessage>()

/** The message whose body the response passes on. Undefined for any other response, and if the body was read. */
export function messageOf(response: Response): IncomingMessage | undefined {
  const message = messages.get(response)
  return message && !message.readableDidRead && message.listenerCount('readable') === 0 ? message : undefined
}

export interface OriginConnections {
  fetchOrigin: FetchOrigin
  close(): void
}

export function connectToOrigin(): OriginConnections {
  const options = { keepAlive: true, maxFreeSockets: MAX_IDLE_CONNECTIONS }
  const agents = { 'http:': new HttpAgent(options), 'https:': new HttpsAgent(options) }
  let last: { origin: string; base: ReturnType<typeof baseOf> } | undefined

  function baseOf({ protocol, hostname, port, host }: URL) {
    const isSecure = protocol === 'https:'
    return {
      send: isSecure ? httpsRequest : httpRequest,
      host,
      options: {
        protocol,
        // Brackets are part of the URL only.
        hostname: hostname.replace(/^\[|\]$/g, ''),
        port: port || (isSecure ? 443 : 80),
        agent: agents[protocol as keyof typeof agents],
      },
    }
  }

  /** Parsed once: a config has one origin. */
  function endpointOf(target: string) {
    if (!last || !target.startsWith(`${last.origin}/`)) {
      const url = new URL(target)
      last = { origin: url.origin, base: baseOf(url) }
    }
    return { ...last.base, path: target.slice(last.origin.length) }
  }

  function attempt(
    target: string,
    request: Request,
    settings: RequestInit,
    body: Body,
  ): Promise<IncomingMessage> {
    const { send, host, options, path } = endpointOf(target)
    const { method } = request
    return new Promise((resolve, reject) => {
      const signal = settings.signal as AbortSignal | null | undefined
      const sent = send({
        ...{ ...options, path, method },
        headers: headersOf(settings.headers as Headers, host, method, body !== undefined),
      })
      // Not the option `signal`, whose listeners take a fifth of the time of a request.
      if (signal?.aborted) sent.destroy(signal.reason)
      else signal?.addEventListener('abort', () => sent.destroy(signal.reason))
      let isAnswered = false
      sent.once('response', message => {
        isAnswered = true
        // Without a listener, a response that breaks off would end the process.
        message.on('error', () => {})
        resolve(message)
      })
      // Node would end the request without an error.
      sent.once('upgrade', (_, socket) => {
        socket.destroy()
        reject(statusError(101))
      })
      sent.on('error', (error: NodeJS.ErrnoException) => {
        const isClosed = sent.reusedSocket && (error.code === 'ECONNRESET' || error.code === 'EPIPE')
        if (isClosed && !isAnswered && body === undefined && SAFE.has(method) && !signal?.aborted)
          attempt(target, request, settings, body).then(resolve, reject)
        else reject(error)
      })
      if (body) sendBody(body, sent)
      else sent.end()
    })
  }

  return {
    async fetchOrigin(target, request, settings) {
      const exchange = exchangeOf(request)
      if (exchange) exchange.isForwarded = true
      const message = await attempt(target, request, settings, bodyOf(request, exchange))
      return responseOf(message, request.method)
    },
    close() {
      for (const agent of Object.values(agents)) agent.destroy()
    },
  }
}

type Body = Readable | undefined

function bodyOf(request: Request, exchange: Exchange | undefined): Body {
  if (exchange) return exchange.hasBody ? exchange.takeBody() : undefined
  return request.body ? Readable.fromWeb(request.body as Parameters<typeof Readable.fromWeb>[0]) : undefined
}

/** Names and values in turn, which Node sends as they are. */
function headersOf(headers: Headers, host: string, method: string, hasBody: boolean): string[] {
  const list = ['host', host]
  let hasLength = false
  for (const [name, value] of headers) {
    // The client's expectation is met here, before its body is read.
    if (name === 'expect' || (name === 'content-length' && !hasBody)) continue
    if (name === 'content-length') hasLength = true
    list.push(name, value)
  }
  if (hasBody && !hasLength) list.push('transfer-encoding', 'chunked')
  // Node would send an empty body in chunks, which some origins refuse.
  if (!hasBody && !WITHOUT_REQUEST_BODY.has(method)) list.push('content-length', '0')
  return list
}

function sendBody(body: Readable, sent: ClientRequest): void {
  const breakOff = () => {
    if (!body.readableEnded) sent.destroy(new Error('The client has broken off the body of its request.'))
  }
  // The client has left before the request was decided.
  if (body.destroyed) {
    breakOff()
    return
  }
  body.once('error', breakOff)
  body.once('close', breakOff)
  // The origin may answer, and close the connection, before it has read the body.
  sent.once('close', () => body.unpipe(sent))
  body.pipe(sent)
}

function responseOf(message: IncomingMessage, method: string): Response {
  const headers = new Headers()
  const { rawHeaders, statusCode = 0 } = message
  // Node handles 1xx itself.
  if (statusCode < 200 || statusCode > 599) {
    message.destroy()
    throw statusError(statusCode)
  }
  for (let i = 0; i < rawHeaders.length; i += 2) headers.append(rawHeaders[i]!, rawHeaders[i + 1]!)
  cleanResponse(headers)
  const init = { status: statusCode, headers }
  if (method === 'HEAD' || WITHOUT_BODY.has(statusCode)) {
    // The client would wait for a body of this length, and take the next response for it.
    if (method !== 'HEAD' && statusCode !== 304) headers.delete('content-length')
    // The connection can be used again only when the message was read.
    message.resume()
    return new Response(null, init)
  }
  const response = new Response(null, init)
  let body: ReadableStream | undefined
  Object.defineProperty(response, 'body', {
    get() {
      body ??= bodyStream(message)
      return body
    },
  })
  messages.set(response, message)
  return response
}

const statusError = (status: number) => new Error(`The origin has answered with the status ${status}.`)
