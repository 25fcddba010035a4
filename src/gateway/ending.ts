/**
 * Reports when a reply is over: its body has ended, the client has gone, or the origin has broken off. The body is
 * piped natively and never read here. What is guaranteed: `over` is called once at most, and once exactly while the
 * platform keeps the request's context. Workers may end a context, without a further line of code, when the isolate is
 * evicted or 30 s after the client has gone; so what an ending gives back must also expire by itself.
 */
import type { Background } from './background.ts'
import { logException } from './unexpected.ts'
import { closeUnsent, relayWebSocket, webSocketOf } from './websocket.ts'

/** Native streams of workerd: bytes pass through them without a step in JavaScript. Node has none. */
declare const IdentityTransformStream: (new () => TransformStream) | undefined
declare const FixedLengthStream: new (length: number) => TransformStream

/**
 * - `complete`: all of the body was handed to the platform; or either side closed the WebSocket with a close frame.
 * - `cancelled`: the client went away, or stopped reading; or dropped the WebSocket without a close frame.
 * - `failed`: the origin broke off, or dropped the WebSocket; or the end of this reply cannot be observed.
 */
export type Ending = 'complete' | 'cancelled' | 'failed'

export interface ReplyContext {
  /** Made by the gateway, so nothing at the origin lasts as long as it does: it is over at once, and goes out untouched. */
  isOwn?: boolean
  /**
   * The signal of the client's request. Without it, workerd notices that a client has gone only with the next bytes of
   * the origin, and keeps the connection to a silent origin open (needs the flag enable_request_signal).
   */
  clientGone?: AbortSignal
}

/**
 * Returns the reply to send instead of the given one, with the same status, headers and bytes. Call this as the last
 * step: a reply that is not sent after all must be passed to `discard`, or its end is never seen.
 *
 * The body must be what came over the wire (fetched with `encodeResponseBody: 'manual'`), or its Content-Length is not
 * its length. `over` is called before this returns if there is no body. Never throws.
 */
export function whenOver(
  response: Response,
  background: Background,
  over: (ending: Ending) => void,
  { isOwn = false, clientGone }: ReplyContext = {},
): Response {
  const overOnce = once(over)
  const observe = (task: Promise<unknown>) => {
    try {
      background(task)
    } catch (error) {
      // The reply is already on its way through the observed stream.
      logException(error)
      overOnce('failed')
    }
  }
  try {
    const webSocket = webSocketOf(response)
    if (webSocket) return relayWebSocket(response, webSocket, observe, overOnce)
    if (isOwn || response.body === null) {
      overOnce('complete')
      return response
    }
    return pipe(response, response.body, observe, overOnce, clientGone)
  } catch (error) {
    logException(error)
    overOnce('failed')
    return response
  }
}

/** Ends a reply of `whenOver` that is not sent after all: `over` is called, with `failed` or `cancelled`. */
export function discard(reply: Response): void {
  const webSocket = webSocketOf(reply)
  if (webSocket) closeUnsent(webSocket)
  else reply.body?.cancel().catch(() => {})
}

function pipe(
  response: Response,
  body: ReadableStream,
  background: Background,
  over: (ending: Ending) => void,
  clientGone: AbortSignal | undefined,
): Response {
  if (body.locked) throw new TypeError('The body of the reply is already being read.')
  const { readable, writable } = passage(response.headers)
  const reply = new Response(readable, response)
  // preventCancel: afterwards the body itself shows which of the two ends broke.
  const piped = body
    .pipeTo(writable, { preventCancel: true, ...(clientGone && { signal: clientGone }) })
    .then(
      () => over('complete'),
      async reason => {
        const didBodyFail = await body.cancel(reason).then(
          () => false,
          () => true,
        )
        // workerd fails the body too when the client leaves.
        over(clientGone?.aborted || !didBodyFail ? 'cancelled' : 'failed')
      },
    )
  background(piped)
  return reply
}

/** workerd has native ones; with a length, the client still gets Content-Length and no chunks. */
function passage(headers: Headers): TransformStream {
  if (typeof IdentityTransformStream === 'undefined') return new TransformStream()
  const length = headers.get('content-length')
  return length !== null && /^\d{1,15}$/.test(length)
    ? new FixedLengthStream(Number(length))
    : new IdentityTransformStream()
}

function once(over: (ending: Ending) => void): (ending: Ending) => void {
  let isOver = false
  return ending => {
    if (isOver) return
    isOver = true
    try {
      over(ending)
    } catch (error) {
      logException(error)
    }
  }
}
