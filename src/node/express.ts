/** Express, Connect and plain Node: the guard as middleware `(req, res, next)`, and a listener for `node:http`. */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { getRequestListener } from '@hono/node-server'
import type { ConfigInput } from '../config/check/schema.ts'
import type { CallerInfo } from '../edges/guard/caller-info.ts'
import {
  type Closable,
  createGuard,
  type FetchHandler,
  type GuardOptions,
  type GuardPlatform,
} from '../edges/guard/guard.ts'

declare module 'node:http' {
  interface IncomingMessage {
    /** The caller of the request, and how its limits stand: set by `expressGuard`. */
    sluice?: CallerInfo
  }
}

export interface ExpressOptions<Req extends IncomingMessage = IncomingMessage>
  extends Pick<GuardOptions, 'env' | 'passPreflights'> {
  /** The client's address (default: the other end of the connection). It must not be something that a client can write. */
  address?: (req: Req) => string | undefined
}

export type Middleware<Req extends IncomingMessage = IncomingMessage> = (
  req: Req,
  res: ServerResponse,
  next: (error?: unknown) => void,
) => void

/**
 * Limits an Express or Connect app:
 *
 *     app.use(expressGuard(config))
 *     app.get('/', (req, res) => res.json(req.sluice))
 *
 * The limits' headers are set before the app runs. What a request holds (`concurrency`) is free again when its response has ended
 * or its connection has closed. A limit that follows the origin (`adaptive`) does not see how long the app takes here. A process that
 * leases (`lease`) calls `close()` of the middleware before it ends.
 * @throws ConfigError naming every mistake of the config
 */
export function expressGuard<Req extends IncomingMessage = IncomingMessage>(
  config: ConfigInput,
  { address, ...options }: ExpressOptions<Req> = {},
  platform: GuardPlatform = {},
): Middleware<Req> & Closable {
  const guarded = createGuard(config, options, platform)
  const middleware: Middleware<Req> = (req, res, next) => {
    const request = requestOf(req, res)
    if (typeof request === 'number') {
      res.statusCode = request
      res.end()
      return
    }
    const peer = address ? { remoteAddr: { hostname: address(req) ?? '' } } : { incoming: req }
    let isAdmitted = false
    guarded(request, [peer], info => {
      isAdmitted = true
      if (info) req.sluice = info
      return new Response(untilEnd(res))
    })
      .then(async response => {
        if (!isAdmitted) return await send(response, res)
        setHeaders(response, res)
        drain(response)
        return undefined
      })
      // Not behind one another: an exception of the app is not handed to it once more.
      .then(() => isAdmitted && next(), next)
  }
  return Object.assign(middleware, { close: guarded.close })
}

/** A listener for `http.createServer`, of a handler that may be guarded. What the handler throws is logged, and becomes a 500. */
export function nodeListener(handler: FetchHandler): RequestListener {
  return getRequestListener(async (request, env) => {
    try {
      return await handler(request, env)
    } catch (error) {
      console.error(error)
      return new Response(null, { status: 500 })
    }
  })
}

function setHeaders(response: Response, res: ServerResponse): void {
  for (const [name, value] of response.headers) {
    if (name === 'set-cookie') continue
    // Middleware of the app knows which web pages may read its replies, those of the guard too.
    if (name === 'access-control-allow-origin' && value === '*' && res.hasHeader(name)) continue
    res.setHeader(name, value)
  }
  for (const cookie of response.headers.getSetCookie()) res.appendHeader('set-cookie', cookie)
}

async function send(response: Response, res: ServerResponse): Promise<void> {
  const body = Buffer.from(await response.arrayBuffer())
  res.statusCode = response.status
  setHeaders(response, res)
  res.end(body)
}

/** Methods that a Request cannot have (Fetch Standard, forbidden methods). */
const IMPOSSIBLE = /^(CONNECT|TRACE|TRACK)$/i

/** Segments and signs that a URL parser resolves, and the app does not: it would route another path than the one that is judged. */
const AMBIGUOUS = /[\\#]|\/(?:\.|%2e){1,2}(?=[/?]|$)/i

/**
 * The request without its body, which stays with the app.
 * @returns a status for a request whose target, host or method the app and the limits could read in two ways
 */
function requestOf(req: IncomingMessage, res: ServerResponse): Request | number {
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
  return new Request(url, { method: req.method ?? 'GET', headers, signal: gone.signal })
}

function urlOf(req: IncomingMessage): URL | undefined {
  // Express takes the path that it is mounted at out of `url`.
  const target = (req as { originalUrl?: string }).originalUrl ?? req.url ?? '/'
  const scheme = 'encrypted' in req.socket && req.socket.encrypted ? 'https' : 'http'
  const host = (req.headers.host ?? String(req.headers[':authority'] ?? 'localhost')).toLowerCase()
  if (!isHost(host)) return undefined
  if (target.startsWith('/')) {
    return AMBIGUOUS.test(target.split('?', 1)[0]!) ? undefined : new URL(`${scheme}://${host}${target}`)
  }
  // For a proxy (RFC 9112, section 3.2.2): the app routes by the path in it.
  const [, path = ''] = /^https?:\/\/[^/?#\\]+(.*)$/i.exec(target) ?? []
  if (!path.startsWith('/') || AMBIGUOUS.test(path.split('?', 1)[0]!)) return undefined
  return new URL(`${scheme}://${host}${path}`)
}

/** Whether it is a host and nothing else: with a `/` or `?` in it, it would begin the path. */
function isHost(host: string): boolean {
  return /^[^\s/?#\\@]+$/.test(host) && URL.canParse(`http://${host}`)
}

/** A body that is as long as the response of the app: it ends with it, and breaks off with its connection. */
function untilEnd(res: ServerResponse): ReadableStream {
  return new ReadableStream({
    start(controller) {
      const end = () => {
        if (res.writableFinished) controller.close()
        else controller.error(new Error('The connection was closed.'))
      }
      // It has closed while middleware before this one was at work: there is no event to come.
      if (res.closed || res.destroyed || res.req.socket.destroyed) end()
      else res.once('close', end)
    },
  })
}

/** Lets the body pass: its end is what the guard waits for. */
function drain(response: Response): void {
  response.body?.pipeTo(new WritableStream()).catch(() => {})
}
