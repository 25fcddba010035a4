/** Express, Connect and plain Node: the guard as middleware `(req, res, next)`, and a listener for `node:http`. */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { getRequestListener } from '@hono/node-server'
import { SYSTEM_TIMER } from '../clock.ts'
import type { ConfigInput } from '../config/check/schema.ts'
import { onClientGoneOf } from '../config/compile.ts'
import { countsByField } from '../config/identity-parts.ts'
import type { Ending } from '../limiter/engine-shape.ts'
import type { WithMetrics } from '../metrics/metrics-reader.ts'
import type { CallerInfo } from '../set-ups/guard/caller-info.ts'
import {
  type Closable,
  createGuard,
  type FetchHandler,
  type GuardOptions,
  type GuardPlatform,
} from '../set-ups/guard/guard.ts'
import { MAX_BODY_BYTES } from '../set-ups/http/origin-load.ts'
import { createReadOn, type ReadOn } from '../set-ups/http/tap-pump.ts'
import { checkOptions } from '../set-ups/limits/arguments.ts'
import { declaredTypeOf } from '../usage/body-type.ts'
import { tapResponse } from './tap-response.ts'

declare module 'node:http' {
  interface IncomingMessage {
    /** The caller of the request, and how its limits stand: set by `expressGuard`. */
    sluice?: CallerInfo
  }
}

/** Options of `expressGuard`. All are optional. `Req` is the request type of the framework, for `address`. */
export interface ExpressOptions<Req extends IncomingMessage = IncomingMessage>
  extends Pick<GuardOptions, 'env' | 'redis' | 'passPreflights'> {
  /** The client's address (default: the peer of the connection). Do not read it from a header that clients can set. */
  address?: (req: Req) => string | undefined
}

/** Middleware of Express and Connect. It answers refused requests itself, and calls `next` for all others. */
export type Middleware<Req extends IncomingMessage = IncomingMessage> = (
  req: Req,
  res: ServerResponse,
  next: (error?: unknown) => void,
) => void

/**
 * Limits an Express or Connect app:
 *
 *     app.use(expressGuard(config, { redis }))
 *     app.get('/', (req, res) => res.json(req.sluice))
 *
 * The limits' headers are set before the app runs. What a request holds (`concurrency`) is free again when its response has ended
 * or its connection has closed. A limit that follows the origin (`adaptive`) measures the time until then. Call `close()` of the middleware
 * before the process ends.
 * @throws ConfigError naming every mistake of the config; TypeError for an unknown option
 */
export function expressGuard<Req extends IncomingMessage = IncomingMessage>(
  config: ConfigInput,
  expressOptions: ExpressOptions<Req> = {},
  platform: GuardPlatform = {},
): Middleware<Req> & Closable & WithMetrics {
  checkOptions('expressGuard', expressOptions, ['redis', 'env', 'address', 'passPreflights'])
  const { address, ...options } = expressOptions
  const guarded = createGuard(config, options, platform)
  const readOn = onClientGoneOf(config) === 'read-on' ? createReadOn() : undefined
  const readsBody =
    Object.values(config.units ?? {}).some(({ estimate = 0 }) => typeof estimate !== 'number') ||
    countsByField((config.rules ?? []).map(({ by }) => ({ by: [by].flat() })))
  const middleware: Middleware<Req> = (req, res, next) => {
    let isAdmitted = false
    async function decide(): Promise<void> {
      const request = requestOf(req, res, readsBody)
      if (typeof request === 'number') {
        res.statusCode = request
        res.end()
        return
      }
      // Read while the request is decided: an exception of `address` is a failure of limiting code, as in the other set-ups.
      const remoteAddr = {
        get hostname() {
          return address?.(req) ?? ''
        },
      }
      const peer = address ? { remoteAddr } : { incoming: req }
      const response = await guarded(request, [peer], (info, { headers }) => {
        isAdmitted = true
        if (info) req.sluice = info
        // Without the encodings in which the reply could not be read.
        const encoding = headers.get('accept-encoding')
        if (encoding !== null) req.headers['accept-encoding'] = encoding
        const app = Promise.withResolvers<void>()
        const sentBefore = req.socket.bytesWritten
        return {
          response: new Response(),
          ended: endOf(res, app.promise, readOn),
          sent: () => ({
            response: new Response(null, { status: Math.max(200, res.statusCode) }),
            isLarge: req.socket.bytesWritten - sentBefore > MAX_BODY_BYTES,
          }),
          observe: (begin, onError) => tapResponse(res, begin, onError, app.resolve),
        }
      })
      if (isAdmitted) setHeaders(response, res)
      else await send(response, res)
    }
    decide()
      // One `then` with two handlers, so that an exception of the app in the first `next()` does not call `next` again.
      .then(() => isAdmitted && next(), next)
      .catch(error => replyToException(error, res))
  }
  return Object.assign(middleware, { close: guarded.close, metrics: guarded.metrics })
}

/** Makes a listener for `http.createServer` from a handler, guarded or not. If the handler throws, logs the error and replies with a 500. */
export function nodeListener(handler: FetchHandler): RequestListener {
  const listener = getRequestListener(async (request, env) => {
    try {
      return await handler(request, env)
    } catch (error) {
      // biome-ignore lint/suspicious/noConsole: an exception of the app, in full.
      console.error(error)
      return new Response(null, { status: 500 })
    }
  })
  // It rejects if its reply to an error fails, too.
  return (req, res) => void listener(req, res).catch(() => res.destroy())
}

/**
 * Ends the response to an exception of `next`. Express and Connect catch those of the app themselves. Without them, the exception would
 * end the process.
 */
function replyToException(error: unknown, res: ServerResponse): void {
  // biome-ignore lint/suspicious/noConsole: an exception of the app, in full.
  console.error(error)
  if (res.headersSent) res.destroy()
  else res.writeHead(500).end()
}

/** Headers with lists, to which each middleware adds its own values. */
const LISTS = new Set(['vary', 'access-control-expose-headers'])

function setHeaders(response: Response, res: ServerResponse): void {
  // Other middleware has replied while the request was decided.
  if (res.headersSent) return
  for (const [name, value] of response.headers) {
    if (name === 'set-cookie') continue
    if (LISTS.has(name)) {
      res.setHeader(name, mergeLists(String(res.getHeader(name) ?? ''), value))
      continue
    }
    // If middleware of the app has set which web pages may read its replies, that also holds for replies of the guard.
    if (name === 'access-control-allow-origin' && value === '*' && res.hasHeader(name)) continue
    res.setHeader(name, value)
  }
  for (const cookie of response.headers.getSetCookie()) res.appendHeader('set-cookie', cookie)
}

/** Adds the values that a list does not have yet, in any case of letters. */
function mergeLists(list: string, added: string): string {
  const valuesOf = (text: string) =>
    text
      .split(',')
      .map(value => value.trim())
      .filter(Boolean)
  const values = valuesOf(list)
  const known = new Set(values.map(value => value.toLowerCase()))
  return [...values, ...valuesOf(added).filter(value => !known.has(value.toLowerCase()))].join(', ')
}

async function send(response: Response, res: ServerResponse): Promise<void> {
  const body = Buffer.from(await response.arrayBuffer())
  // Other middleware has replied while the request was decided.
  if (res.headersSent) return
  res.statusCode = response.status
  setHeaders(response, res)
  res.end(body)
}

/** Methods that a Request cannot have (Fetch Standard, forbidden methods). */
const IMPOSSIBLE = /^(CONNECT|TRACE|TRACK)$/i

/** Parts of a path that a URL parser resolves and the app does not. The app would route another path than the limits have checked. */
const AMBIGUOUS = /[\\#]|\/(?:\.|%2e){1,2}(?=[/?]|$)/i

/** The body that middleware such as `express.json()` has parsed. Undefined without such a body, and for one that cannot be JSON. */
function parsedBodyOf(req: IncomingMessage): string | Uint8Array<ArrayBuffer> | undefined {
  const { body } = req as { body?: unknown }
  if (isLeftBehind(body, req)) return undefined
  if (typeof body === 'string' || body instanceof Uint8Array) return body as string | Uint8Array<ArrayBuffer>
  try {
    return typeof body === 'object' ? JSON.stringify(body) : undefined
  } catch {
    return undefined
  }
}

/** The parsers of Express 4 make an object without members of a body that they have not read, such as a form. */
function isLeftBehind(body: unknown, { headers }: IncomingMessage): boolean {
  const isEmpty = typeof body === 'object' && body !== null && Object.keys(body).length === 0
  return isEmpty && declaredTypeOf(headers['content-type']) !== 'json'
}

/**
 * The request without its body, which only the app reads.
 * @param readsBody the request gets the body that was parsed before, for an estimate
 * @returns an error status if the app and the limits could read the target, the host or the method differently
 */
function requestOf(req: IncomingMessage, res: ServerResponse, readsBody: boolean): Request | number {
  if (IMPOSSIBLE.test(req.method ?? '')) return 501
  const url = urlOf(req)
  if (!url) return 400
  const gone = new AbortController()
  if (res.closed || res.destroyed || req.socket.destroyed) gone.abort()
  res.once('close', () => {
    if (!res.writableFinished) gone.abort()
  })
  const headers = new Headers()
  for (let i = 0; i < req.rawHeaders.length; i += 2) {
    const name = req.rawHeaders[i]!
    // Pseudo-headers of HTTP/2.
    if (!name.startsWith(':')) headers.append(name, req.rawHeaders[i + 1]!)
  }
  const { method = 'GET' } = req
  const body = readsBody && !/^(GET|HEAD)$/i.test(method) ? parsedBodyOf(req) : undefined
  // An object that was parsed from a form is JSON here.
  if (body !== undefined && !(body instanceof Uint8Array) && hasForm(req))
    headers.set('content-type', 'application/json')
  return new Request(url, { method, headers, signal: gone.signal, ...(body !== undefined && { body }) })
}

const hasForm = ({ headers, ...req }: IncomingMessage) =>
  typeof (req as { body?: unknown }).body === 'object' &&
  /^application\/x-www-form-urlencoded\b/i.test(headers['content-type'] ?? '')

function urlOf(req: IncomingMessage): URL | undefined {
  // Express removes the path at which the middleware is mounted from `url`.
  const target = (req as { originalUrl?: string }).originalUrl ?? req.url ?? '/'
  const scheme = 'encrypted' in req.socket && req.socket.encrypted ? 'https' : 'http'
  const host = (req.headers.host ?? String(req.headers[':authority'] ?? 'localhost')).toLowerCase()
  if (!isHost(host)) return undefined
  if (target.startsWith('/')) {
    return AMBIGUOUS.test(target.split('?', 1)[0]!) ? undefined : new URL(`${scheme}://${host}${target}`)
  }
  // A whole URL as the target, as clients send it to proxies (RFC 9112, section 3.2.2). The app routes by its path.
  const [, path = ''] = /^https?:\/\/[^/?#\\]+(.*)$/is.exec(target) ?? []
  if (!path.startsWith('/') || AMBIGUOUS.test(path.split('?', 1)[0]!)) return undefined
  return new URL(`${scheme}://${host}${path}`)
}

/** Whether the text is only a host. If it contained a `/` or `?`, the rest of the text would become part of the path. */
function isHost(host: string): boolean {
  return /^[^\s/?#\\@]+$/.test(host) && URL.canParse(`http://${host}`)
}

/**
 * Resolves when the app has sent its response, or the connection has closed before that. Independent of the method: HEAD has no body.
 * @param written resolves when the app has written its response, which is read on although the client has left
 */
function endOf(res: ServerResponse, written: Promise<void>, readOn: ReadOn | undefined): Promise<Ending> {
  const { promise, resolve } = Promise.withResolvers<Ending>()
  const end = () => {
    const endReadingOn = res.writableFinished ? undefined : readOn?.begin()
    if (!endReadingOn) return resolve(res.writableFinished ? 'complete' : 'cancelled')
    const stop = () => {
      cancelTimer()
      endReadingOn()
      resolve('cancelled')
    }
    const cancelTimer = SYSTEM_TIMER(readOn!.forMs, stop, true)
    void written.then(stop)
  }
  // The response has closed while earlier middleware was running, so no `close` event will follow.
  if (res.closed || res.destroyed || res.req.socket.destroyed) end()
  else res.once('close', end)
  return promise
}
