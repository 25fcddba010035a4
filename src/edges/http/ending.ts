/**
 * Reports when a reply is over: its body has ended, the client has left, or the origin has broken off. The body is
 * piped by the platform and never read here. Guaranteed: `over` is called at most once; and exactly once as long as the
 * platform keeps the context of the request. Workers may drop a context without running any more code: when the isolate
 * is evicted, or 30 s after the client has left. So everything that is given back at the end must also expire by itself.
 */
import type { Background } from '../../background.ts'
import type { Timer } from '../../clock.ts'
import type { Ending } from '../../limiter/engine.ts'
import { logException } from './unexpected.ts'
import { relayWebSocket, webSocketOf } from './websocket.ts'

/** Native streams of workerd: bytes pass through them without a step in JavaScript. Node has none. */
declare const IdentityTransformStream: (new () => TransformStream) | undefined
declare const FixedLengthStream: new (length: number) => TransformStream

export interface ReplyContext {
  /** The gateway made this reply, so nothing lasts at the origin: it is over at once, and is returned as it is. */
  isOwn?: boolean
  /**
   * The signal of the client's request (in workerd with the flag enable_request_signal). Without it, workerd detects
   * that a client has left only when the origin sends more, and stays connected to an origin that sends nothing.
   */
  clientGone?: AbortSignal
  /** The body may be decoded: its length is not its Content-Length. */
  isDecoded?: boolean | undefined
  /** For a reply that may be dropped unread: middleware around the edge can replace it. Outside of workerd. */
  timer?: Timer
}

/**
 * Returns the reply to send instead of the given one, with the same status, headers and bytes. This is the last step: the
 * end of a reply that is not sent after all is never reported.
 *
 * - `complete`: the whole body was handed to the platform; or either side closed the WebSocket with a close frame.
 * - `cancelled`: the client left or stopped reading; or it dropped the WebSocket without a close frame.
 * - `failed`: the origin broke off, or it dropped the WebSocket; or the end of this reply cannot be observed.
 *
 * The body must be as the origin sent it (fetched with `encodeResponseBody: 'manual'`): its length must be its
 * Content-Length. Without a body, `over` is called before this returns. Never throws.
 *
 * workerd sends an untouched body without running the Worker again. Observing gives that up: about a fifth to a third
 * more CPU for a bare proxy of 250 bytes, half more for 1 MB. So observe only replies that hold something.
 */
export function whenOver(
  response: Response,
  background: Background,
  over: (ending: Ending) => void,
  { isOwn = false, isDecoded = false, clientGone, timer }: ReplyContext = {},
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
    return pipe(response, response.body, observe, overOnce, { clientGone, isDecoded, timer })
  } catch (error) {
    logException(error)
    overOnce('failed')
    return response
  }
}

function pipe(
  response: Response,
  body: ReadableStream,
  background: Background,
  over: (ending: Ending) => void,
  {
    clientGone,
    isDecoded,
    timer,
  }: Pick<ReplyContext, 'isDecoded'> & { clientGone: AbortSignal | undefined; timer: Timer | undefined },
): Response {
  if (body.locked) throw new TypeError('The body of the reply is already being read.')
  const { readable, writable } = passage(isDecoded ? null : response.headers.get('content-length'))
  const reply = new Response(isDecoded && timer ? watched(readable, over, timer) : readable, response)
  const piped = body.pipeTo(writable, clientGone && { signal: clientGone }).then(
    () => over('complete'),
    async () => {
      // Either end may have broken. A body that failed itself refuses to be cancelled, with the reason of its failure.
      const didBodyFail = await body.cancel().then(
        () => false,
        () => true,
      )
      // In workerd the body has failed in both cases.
      over(clientGone?.aborted || !didBodyFail ? 'cancelled' : 'failed')
    },
  )
  background(piped)
  return reply
}

/** Platforms begin at once to read what they send. */
const UNREAD_MS = 10_000

/**
 * The same body. If it has not begun to be read for so long, it was dropped: its place is free, and its bytes can still be read.
 * In workerd only the platform knows, whose streams never run the Worker.
 */
function watched(body: ReadableStream, over: (ending: Ending) => void, timer: Timer): ReadableStream {
  if (typeof IdentityTransformStream !== 'undefined') return body
  const cancel = timer(UNREAD_MS, () => over('failed'), true)
  const reader = body.getReader()
  return new ReadableStream(
    {
      async pull(controller) {
        cancel()
        const { done, value } = await reader.read()
        if (done) controller.close()
        else controller.enqueue(value)
      },
      cancel: async reason => {
        cancel()
        await reader.cancel(reason)
      },
    },
    { highWaterMark: 0 },
  )
}

/** With a known length, the client still gets Content-Length instead of chunks. */
function passage(length: string | null): TransformStream {
  if (typeof IdentityTransformStream === 'undefined') return new TransformStream()
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
