/** Serves the requests of one process: from `node:http` to the gateway, and back. */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { getRequestListener } from '@hono/node-server'
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response'
import { canonicalAddress, isInRanges } from '../../config/address-ranges.ts'
import type { AddressSettings } from '../../config/compile-address.ts'
import type { Log } from '../../log.ts'
import type { Gateway } from '../../set-ups/gateway/app.ts'
import { problem } from '../../set-ups/http/problem.ts'
import { logException } from '../../set-ups/http/unexpected.ts'
import { closeAfterReply } from './connections.ts'
import { Exchange, openExchange } from './exchange.ts'
import { MAX_HEADERS } from './limits-of-connections.ts'
import { originBodyOf } from './origin-fetch.ts'
import { sendReply } from './send-reply.ts'
import { asksForWebSocket } from './upgrade.ts'

/** What @hono/node-server passes beside a request. */
export interface NodeEnv {
  incoming: IncomingMessage
  outgoing: ServerResponse
}

export interface ListenerOptions {
  log: Log
  address: AddressSettings
  /** Keeps track of work after the reply. */
  waitUntil(task: Promise<unknown>): void
  /** Whether this server is about to stop, so that nothing new is to be sent to it. */
  isStopping(): boolean
  /**
   * Whether @hono/node-server replaces `Request` and `Response` of this process by its own, which take less CPU time. Tests do not, because
   * they share a process.
   */
  replacesGlobals: boolean
}

export interface Listeners {
  request: RequestListener
  /** For requests that wait for `100 Continue`. */
  checkContinue: RequestListener
}

/**
 * The platform's own response. If @hono/node-server had replaced `Response` when it made its constant, it would write the head of that one
 * behind a reply that is on its way.
 */
const ALREADY_SENT = RESPONSE_ALREADY_SENT.clone()

/** Methods that a Request cannot have (Fetch Standard, forbidden methods). */
const IMPOSSIBLE = /^(CONNECT|TRACE|TRACK)$/i

/** An ordinary host with an optional port. */
const HOST = /^(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?$/i

export function createListeners({ app }: Pick<Gateway, 'app'>, options: ListenerOptions): Listeners {
  const { waitUntil, isStopping, replacesGlobals, address, log } = options
  const context = { waitUntil, passThroughOnException() {}, props: {} }
  const awaitingContinue = new WeakSet<IncomingMessage>()

  async function serve(request: Request, env: NodeEnv): Promise<Response> {
    const { incoming, outgoing } = env
    const refusal = refuse(incoming)
    if (refusal) return refusal
    const exchange = new Exchange(incoming, outgoing, awaitingContinue.has(incoming))
    openExchange(request, exchange)
    const response = await app.fetch(request, env, context)
    // The client may send the body nevertheless, or not. It could be read as the next request.
    if (exchange.isAwaitingContinue) outgoing.shouldKeepAlive = false
    // A body of which a part was read for an estimate, before the request was refused.
    const isCutOff = exchange.hasBody && exchange.isRead && !incoming.complete
    // A copy of the request went to the origin, because its body was read before.
    const isFromOrigin = exchange.isForwarded || originBodyOf(response) !== undefined
    if (!isFromOrigin && !isCutOff) return response
    // The origin has answered early, or failed.
    if (exchange.hasBody && !incoming.complete) closeAfterReply(incoming, outgoing)
    await sendReply(response, outgoing)
    return ALREADY_SENT
  }

  function refuse(incoming: IncomingMessage): Response | undefined {
    const { method = '', url, headers, rawHeaders, httpVersion } = incoming
    const isForWebSocket = asksForWebSocket(incoming)
    if (rawHeaders.length > 2 * MAX_HEADERS) return tooManyHeaders()
    const hosts = countHosts(rawHeaders)
    if (hosts > 1 || (hosts === 0 && httpVersion === '1.1')) return badRequest({ connection: 'close' })
    const coding = headers['transfer-encoding']
    // Passing on the body would remove a coding from the head, and leave it in the body. A proxy in front that knows HTTP/1.0 only may see
    // the end of the body elsewhere (RFC 9112, section 6.1), so the connection is closed.
    if (coding !== undefined && (httpVersion === '1.0' || !/^chunked$/i.test(coding)))
      return notImplemented(NO_CODINGS, { connection: 'close' })
    if (IMPOSSIBLE.test(method)) return notImplemented(`This server does not implement ${method}.`)
    if (isForWebSocket) return notImplemented(NO_WEB_SOCKETS)
    if (isStopping() && url?.split('?', 1)[0] === '/_sluice/health') return stopping()
    return undefined
  }

  const listener = getRequestListener(serve as Parameters<typeof getRequestListener>[0], {
    overrideGlobalObjects: replacesGlobals,
    // Of clients without a header Host: those of HTTP/1.0.
    hostname: 'localhost',
    errorHandler(error) {
      // An invalid URL or host.
      if ((error as Error).name === 'RequestError') return badRequest()
      logException(log, error)
      return problem({
        status: 500,
        title: 'Internal Server Error',
        detail: 'The gateway failed to handle this request. Its log has the cause.',
      })
    },
  })

  /** Tells the gateway that the client uses https, if a trusted proxy says so, and not because the client names an https URL. */
  function useScheme(incoming: IncomingMessage): void {
    incoming.url = incoming.url?.replace(/^https:/i, 'http:')
    const { headers, socket, url = '' } = incoming
    const { host = '', 'x-forwarded-proto': proto } = headers
    if (proto !== 'https' || address.trustedProxies.length === 0 || !url.startsWith('/')) return
    const peer = canonicalAddress(socket.remoteAddress)
    if (isInRanges(address.trustedProxies, peer) && HOST.test(host)) incoming.url = `https://${host}${url}`
  }

  const request: RequestListener = (incoming, outgoing) => {
    useScheme(incoming)
    void listener(incoming, outgoing).catch(error => {
      logException(log, error)
      outgoing.destroy()
    })
  }
  return {
    request,
    checkContinue(incoming, outgoing) {
      awaitingContinue.add(incoming)
      request(incoming, outgoing)
    },
  }
}

/** RFC 9112, section 3.2: of several, a proxy in front may have used another one than Node, which takes the first. */
function countHosts(rawHeaders: readonly string[]): number {
  let hosts = 0
  for (let i = 0; i < rawHeaders.length; i += 2)
    if (rawHeaders[i]!.length === 4 && rawHeaders[i]!.toLowerCase() === 'host') hosts += 1
  return hosts
}

/** The address at the other end of the connection; empty if it has closed. */
export const peerOf = (_: Request, env: unknown): string =>
  (env as NodeEnv).incoming.socket.remoteAddress ?? ''

const NO_CODINGS = 'This server knows no Transfer-Encoding but chunked, and none in HTTP/1.0.'

const NO_WEB_SOCKETS =
  'sluicegate serve does not pass on WebSockets. Let the proxy in front send them to the origin.'

const notImplemented = (detail: string, headers = {}) =>
  problem({ status: 501, title: 'Not Implemented', detail, headers })

const badRequest = (headers = {}) =>
  problem({
    ...{ status: 400, title: 'Bad Request', detail: 'The URL or the header Host is not valid.' },
    headers,
  })

const tooManyHeaders = () =>
  problem({
    ...{ status: 431, title: 'Request Header Fields Too Large' },
    detail: `This server takes at most ${MAX_HEADERS} headers in a request.`,
    headers: { connection: 'close' },
  })

/** The health of a server that is about to stop: it is live, and not ready. */
const stopping = () =>
  Response.json(
    { live: true, ready: false, stopping: true },
    { status: 503, headers: { 'cache-control': 'no-store' } },
  )
