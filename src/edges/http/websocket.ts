/**
 * Relays a WebSocket between client and origin, message by message, because the platform does not report the end of a
 * WebSocket that is handed over. Close codes and reasons are passed on in both directions. If one side ends without a
 * close frame, the other is closed. The platform's API has limits: workerd itself answers the pings of each side, and
 * a side that reads slowly does not slow the other down, so its messages wait in the memory of the Worker.
 */
import type { WebSocketPair as Pair, WebSocket } from '@cloudflare/workers-types'
import type { Background } from '../../background.ts'
import type { Ending } from '../../limiter/engine.ts'

declare const WebSocketPair: typeof Pair

/** RFC 6455, section 7.4.1: reported if a close frame has no code, or if there was no close frame. Never sent. */
const NO_CODE = 1005
const NO_CLOSE_FRAME = 1006

/** Close codes for one side if the other ended without a close frame. */
const CLIENT_GONE = 1001
const ORIGIN_FAILED = 1011

/** The socket of a handshake. Platforms without WebSockets in replies have none. */
export function webSocketOf(response: Response): WebSocket | undefined {
  return (response as { webSocket?: WebSocket | null }).webSocket ?? undefined
}

/**
 * Returns the handshake to send, with a separate socket for the client. Calls `onEnd` when the first of the two sides
 * has ended.
 */
export function relayWebSocket(
  handshake: Response,
  origin: WebSocket,
  background: Background,
  onEnd: (ending: Ending) => void,
): Response {
  const { 0: sent, 1: client } = new WebSocketPair()
  const { status, statusText, headers } = handshake
  const reply = new Response(null, { status, statusText, headers, webSocket: sent } as ResponseInit)

  const { promise: ended, resolve } = Promise.withResolvers<void>()
  const end = (ending: Ending) => {
    onEnd(ending)
    resolve()
  }
  forward(client, origin, { code: CLIENT_GONE, end: isClean => end(isClean ? 'complete' : 'cancelled') })
  forward(origin, client, { code: ORIGIN_FAILED, end: isClean => end(isClean ? 'complete' : 'failed') })
  // Keeps the context until the close event of a client that has left without a close frame.
  background(ended)
  return reply
}

interface Loss {
  /** The close code for the other side if this one ends without a close frame. */
  code: number
  end: (isClean: boolean) => void
}

function forward(from: WebSocket, to: WebSocket, { code: lossCode, end }: Loss): void {
  from.addEventListener('message', ({ data }) => quietly(() => to.send(data as ArrayBuffer | string)))
  from.addEventListener('close', ({ code, reason }) => {
    if (code === NO_CLOSE_FRAME) quietly(() => to.close(lossCode))
    else if (code === NO_CODE) quietly(() => to.close())
    else quietly(() => to.close(code, reason))
    end(code !== NO_CLOSE_FRAME)
  })
  from.addEventListener('error', () => {
    quietly(() => to.close(lossCode))
    end(false)
  })
  // A Blob cannot be sent.
  from.binaryType = 'arraybuffer'
  // A close frame is answered with the answer of the other side.
  from.accept({ allowHalfOpen: true })
}

/** Ignores the exception of a socket that has closed in the meantime: its own event reports that. */
function quietly(act: () => void): void {
  try {
    act()
  } catch {}
}
