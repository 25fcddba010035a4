/** A request of @hono/node-server and its messages of `node:http`. Bodies go from one message to the other, not through web streams. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { bodyStream } from './body-stream.ts'

export interface Exchange {
  incoming: IncomingMessage
  outgoing: ServerResponse
  /** Whether the request has a body, also with a method that seldom has one. */
  hasBody: boolean
  /** Lets a client that awaits `100 Continue` send its body. Called before the body is read. */
  beginBody(): void
  /** Whether the client still waits for `100 Continue`. */
  isAwaitingContinue(): boolean
  /** Whether the reply may come from the origin. */
  isForwarded: boolean
}

const exchanges = new WeakMap<Request, Exchange>()

/** The exchange of a request. Undefined for a copy of it. */
export const exchangeOf = (request: Request): Exchange | undefined => exchanges.get(request)

/**
 * Remembers the messages of a request, and replaces its body by one that is created when it is first read. Without it, each look at
 * `request.body` would create a second request.
 * @param awaitsContinue the client has sent `Expect: 100-continue`
 */
export function openExchange(
  request: Request,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  awaitsContinue: boolean,
): Exchange {
  const { headers } = incoming
  const hasBody = headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
  let isAwaited = awaitsContinue
  const exchange: Exchange = {
    ...{ incoming, outgoing, hasBody, isForwarded: false },
    isAwaitingContinue: () => isAwaited,
    beginBody() {
      if (!isAwaited) return
      isAwaited = false
      if (!outgoing.headersSent) outgoing.writeContinue()
    },
  }
  if (awaitsContinue) incoming.once('resume', exchange.beginBody)
  exchanges.set(request, exchange)
  let body: ReadableStream | null | undefined = hasBody ? undefined : null
  Object.defineProperty(request, 'body', {
    configurable: true,
    get() {
      if (body === undefined) body = bodyStream(incoming, exchange.beginBody)
      return body
    },
  })
  // Both copies read a body that @hono/node-server makes.
  Object.defineProperty(request, 'clone', {
    configurable: true,
    value() {
      exchanges.delete(request)
      exchange.isForwarded = true
      Reflect.deleteProperty(request, 'body')
      Reflect.deleteProperty(request, 'clone')
      return request.clone()
    },
  })
  return exchange
}

/** A body that was passed on, so that nothing can read it any more. */
const PASSED_ON = new ReadableStream()

/** Takes the body, to pass it on. @throws TypeError if something has read it before */
export function takeBody(request: Request, { incoming, beginBody }: Exchange): IncomingMessage {
  if (incoming.readableDidRead || incoming.listenerCount('readable') > 0)
    throw new TypeError('The body was read before it was passed on.')
  Object.defineProperty(request, 'body', { value: PASSED_ON })
  beginBody()
  return incoming
}
