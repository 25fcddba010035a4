/**
 * Relays a WebSocket between client and origin, message by message, because the platform does not report the end of a
 * WebSocket that is handed over. Close codes and reasons are passed on in both directions. If one side ends without a
 * close frame, the other is closed. The platform's API has limits: workerd itself answers the pings of each side, and
 * a side that reads slowly does not slow the other down, so its messages wait in the memory of the Worker.
 */
import type { WebSocketPair as Pair, WebSocket } from '@cloudflare/workers-types'
import type { Background } from '../../background.ts'
import { SYSTEM_TIMER, type Timer } from '../../clock.ts'
import type { Ending } from '../../limiter/engine-shape.ts'

declare const WebSocketPair: typeof Pair

/** RFC 6455, section 7.4.1: reported if a close frame has no code, or if there was no close frame. Never sent. */
const NO_CODE = 1005
const NO_CLOSE_FRAME = 1006

/** The close code for a side if the code of the other one cannot be sent. */
const PROTOCOL_ERROR = 1002

/** Close codes for one side if the other ended without a close frame. */
const CLIENT_GONE = 1001
const ORIGIN_FAILED = 1011

/** The socket of a handshake. Platforms without WebSockets in replies have none. */
export function webSocketOf(response: Response): WebSocket | undefined {
  return (response as { webSocket?: WebSocket | null }).webSocket ?? undefined
}

/** How long a side may take to answer the close frame of the other one. */
const ANSWER_MS = 10_000

/**
 * Returns the handshake to send, with a separate socket for the client. Calls `onEnd` when both sides are closed, or when one side has
 * not answered the close frame of the other in time. Until then either side can still send.
 */
export function relayWebSocket(
  handshake: Response,
  origin: WebSocket,
  background: Background,
  onEnd: (ending: Ending) => void,
  timer: Timer = SYSTEM_TIMER,
): Response {
  const { 0: sent, 1: client } = new WebSocketPair()
  const { status, statusText, headers } = handshake
  const reply = new Response(null, { status, statusText, headers, webSocket: sent } as ResponseInit)

  const { promise: ended, resolve } = Promise.withResolvers<void>()
  /** The result is that of the side that ended first. */
  let first: Ending | undefined
  let stopWaiting = () => {}
  const sideEnded = (from: WebSocket, ending: Ending) => {
    const end = () => {
      close(from, ORIGIN_FAILED)
      onEnd(first ?? ending)
      resolve()
    }
    if (first === undefined) {
      first = ending
      stopWaiting = timer(ANSWER_MS, end)
      return
    }
    stopWaiting()
    end()
  }
  forward(client, origin, {
    code: CLIENT_GONE,
    end: isClean => sideEnded(client, isClean ? 'complete' : 'cancelled'),
  })
  forward(origin, client, {
    code: ORIGIN_FAILED,
    end: isClean => sideEnded(origin, isClean ? 'complete' : 'failed'),
  })
  // Keeps the context until the close event of a client that has left without a close frame.
  background(ended)
  return reply
}

interface Loss {
  /** The close code for the other side if this one ends without a close frame. */
  code: number
  /** Called once. */
  end: (isClean: boolean) => void
}

function forward(from: WebSocket, to: WebSocket, { code: lossCode, end }: Loss): void {
  let hasEnded = false
  const endOnce = (code: number, reason?: string) => {
    if (hasEnded) return
    hasEnded = true
    const isLost = code === NO_CLOSE_FRAME
    close(to, isLost ? lossCode : code, isLost ? undefined : reason)
    end(!isLost)
  }
  from.addEventListener('message', ({ data }) => quietly(() => to.send(data as ArrayBuffer | string)))
  from.addEventListener('close', ({ code, reason }) => endOnce(code, reason))
  from.addEventListener('error', () => endOnce(NO_CLOSE_FRAME))
  // A Blob cannot be sent.
  from.binaryType = 'arraybuffer'
  // A close frame is answered with the answer of the other side.
  from.accept({ allowHalfOpen: true })
}

/**
 * Closes a side. Peers can send codes that no API may send (1004, 1015, 999, 65535). With such a code this throws, the side would stay
 * open, and its unit would be free; it gets 1002 instead.
 */
function close(socket: WebSocket, code: number, reason?: string): void {
  try {
    if (code === NO_CODE) socket.close()
    else socket.close(code, reason)
  } catch {
    quietly(() => socket.close(PROTOCOL_ERROR))
  }
}

/** Ignores the exception of a socket that has closed in the meantime: its own event reports that. */
function quietly(act: () => void): void {
  try {
    act()
  } catch {}
}
