/**
 * Reports the end of a reply: its body has ended, the client has left, or the origin has broken off. In workerd
 * the platform pipes the body, and no code here reads it. `onEnd` is called at most once, and exactly once as long as the platform
 * keeps the context of the request. Workers may drop a context without running any more code: when the isolate is
 * evicted, or 30 s after the client has left. So everything that the end of a request releases must also expire by
 * itself.
 */
import type { Background } from '../../background.ts'
import type { Timer } from '../../clock.ts'
import type { Ending } from '../../limiter/engine-shape.ts'
import type { Log } from '../../log.ts'
import { isWorkerd, type Pump, passBody } from './pass-body.ts'
import { logException } from './unexpected.ts'
import { relayWebSocket, webSocketOf } from './websocket.ts'

export interface ReplyContext {
  /** The gateway made this reply, so nothing runs at the origin: the reply is over at once, and returned as it is. */
  isFromSluice?: boolean
  /**
   * The signal of the client's request (in workerd with the flag enable_request_signal). Without it, workerd detects
   * that a client has left only when the origin sends more, and stays connected to an origin that sends nothing.
   */
  clientGone?: AbortSignal
  /** The platform may have decoded the body, so its length is not the Content-Length. */
  isDecoded?: boolean | undefined
  log: Log
  /** How long the body of a reply may be silent (ms). */
  idleMs: number
  /** Also detects, outside of workerd, a reply that is never read, because middleware around the set-up can replace it. */
  timer: Timer
  /** Passes on the body in another way. `onEnd` is called when it has ended. */
  pump?: Pump | undefined
}

/**
 * Returns the reply to send instead of the given one, with the same status, headers and bytes. Call this last: the
 * end of a reply that is not sent is never reported.
 *
 * - `complete`: the whole body was handed to the platform, or the WebSocket was closed with close frames.
 * - `cancelled`: the client left or stopped reading, or dropped the WebSocket without a close frame.
 * - `failed`: the origin broke off or dropped the WebSocket, or the end of this reply cannot be observed.
 *
 * The body must be as the origin sent it (fetched with `encodeResponseBody: 'manual'`), so that its length is its
 * Content-Length. Without a body, `onEnd` is called before this returns. Never throws.
 *
 * workerd sends an untouched body without running the Worker again. Observing prevents that (pass-body.ts), so observe only
 * replies that hold units.
 */
export function observeEnd(
  response: Response,
  background: Background,
  onEnd: (ending: Ending) => void,
  context: ReplyContext,
): Response {
  const { isFromSluice = false, clientGone, timer, log } = context
  const onEndOnce = once(onEnd, log)
  const observe = (task: Promise<unknown>) => {
    try {
      background(task)
    } catch (error) {
      // The reply already passes through the observed stream.
      logException(log, error)
      onEndOnce('failed')
    }
  }
  try {
    const webSocket = webSocketOf(response)
    if (webSocket) return relayWebSocket(response, webSocket, observe, onEndOnce, timer)
    if (isFromSluice || response.body === null) {
      onEndOnce(isFromSluice && clientGone?.aborted ? 'cancelled' : 'complete')
      return response
    }
    return pass(response, response.body, observe, onEndOnce, context)
  } catch (error) {
    logException(log, error)
    onEndOnce('failed')
    return response
  }
}

function pass(
  response: Response,
  body: ReadableStream,
  background: Background,
  onEnd: (ending: Ending) => void,
  { clientGone, isDecoded = false, timer, idleMs, pump, log }: ReplyContext,
): Response {
  if (body.locked) throw new TypeError('The body of the reply is already being read.')
  const length = isDecoded ? undefined : lengthOf(response)
  const { readable, passed } = passBody(body, { length, clientGone, idleMs, timer, pump })
  const reply = new Response(isDecoded ? reportIfUnread(readable, onEnd, timer) : readable, response)
  background(
    passed.then(result => {
      if (result === 'idle') logSilence(log, idleMs)
      onEnd(result === 'idle' ? 'failed' : result)
    }),
  )
  return reply
}

function lengthOf({ headers }: Response): number | undefined {
  const length = headers.get('content-length')
  return length !== null && /^\d{1,15}$/.test(length) ? Number(length) : undefined
}

function logSilence(log: Log, idleMs: number): void {
  const detail = `The body of a reply was silent for ${idleMs} ms (idleDeadline), so its connections were closed.`
  log('warn', 'idle', { detail })
}

/** Platforms start at once to read what they send. */
const UNREAD_MS = 10_000

/**
 * Returns the same body. If nothing has read it for a while, the reply was dropped: its end is reported as failed,
 * but its bytes can still be read. In workerd only the platform knows this, because its streams do not run the
 * Worker.
 */
function reportIfUnread(body: ReadableStream, onEnd: (ending: Ending) => void, timer: Timer): ReadableStream {
  if (isWorkerd()) return body
  const cancel = timer(UNREAD_MS, () => onEnd('failed'), true)
  const reader = body.getReader()
  return new ReadableStream(
    {
      async pull(controller) {
        try {
          cancel()
          const { done, value } = await reader.read()
          if (done) controller.close()
          else controller.enqueue(value)
        } catch (error) {
          // The reply breaks off here. Without this, nothing would read or cancel the body, and its end would never be reported.
          reader.cancel(error).catch(() => {})
          throw error
        }
      },
      cancel: async reason => {
        try {
          cancel()
        } finally {
          await reader.cancel(reason)
        }
      },
    },
    { highWaterMark: 0 },
  )
}

function once(onEnd: (ending: Ending) => void, log: Log): (ending: Ending) => void {
  let hasEnded = false
  return ending => {
    if (hasEnded) return
    hasEnded = true
    try {
      onEnd(ending)
    } catch (error) {
      logException(log, error)
    }
  }
}
