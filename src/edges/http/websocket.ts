/**
 * Relays a WebSocket between client and origin, message by message: the platform does not report the end of one that
 * is handed over. Close codes and reasons go both ways. A side that ends without a close frame closes the other.
 * The platform's API does not offer everything: workerd itself answers the pings of each side, and a side that reads slowly
 * does not slow the other down, so its messages wait in the memory of the Worker.
 */
import type { WebSocketPair as Pair, WebSocket } from '@cloudflare/workers-types'
import type { Background } from '../../background.ts'
import type { Ending } from '../../limiter/engine.ts'

declare const WebSocketPair: typeof Pair

/** RFC 6455, section 7.4.1: reported where a close frame has no code, or where there was no close frame. Never sent. */
const NO_CODE = 1005
const NO_CLOSE_FRAME = 1006

/** What a side receives when the other has ended without a close frame. */
const CLIENT_GONE = 1001
const ORIGIN_FAILED = 1011

/** The socket of a handshake; there is none on platforms without WebSockets in replies. */
export function webSocketOf(response: Response): WebSocket | undefined {
  return (response as { webSocket?: WebSocket | null }).webSocket ?? undefined
}

/**
 * Returns the handshake to send, with a socket of its own for the client.
 * `over` is called when the first of the two sides has ended.
 */
export function relayWebSocket(
  handshake: Response,
  origin: WebSocket,
  background: Background,
  over: (ending: Ending) => void,
): Response {
  const { 0: sent, 1: client } = new WebSocketPair()
  const { status, statusText, headers } = handshake
  const reply = new Response(null, { status, statusText, headers, webSocket: sent } as ResponseInit)

  const { promise: ended, resolve } = Promise.withResolvers<void>()
  const end = (ending: Ending) => {
    over(ending)
    resolve()
  }
  forward(client, origin, { code: CLIENT_GONE, end: isClean => end(isClean ? 'complete' : 'cancelled') })
  forward(origin, client, { code: ORIGIN_FAILED, end: isClean => end(isClean ? 'complete' : 'failed') })
  // Keeps the context until the close event of a client that has left without a close frame.
  background(ended)
  return reply
}

interface Loss {
  /** The code that the other side receives when this one ends without a close frame. */
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
  // A close frame is answered with what the other side answers.
  from.accept({ allowHalfOpen: true })
}

/** A socket that has closed in the meantime throws; its own event reports that. */
function quietly(act: () => void): void {
  try {
    act()
  } catch {}
}
