/** The connections of a server, and the requests on them: what is to end before the process does. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/** How long an idle connection stays open after the server has stopped to accept others (ms): the client may be about to use it. */
const IDLE_MS = 1000

const CHECK_MS = 50

export interface Connections {
  /** Stops accepting connections. Those that are open may send one more request. */
  stopAccepting(): void
  /**
   * Waits until all requests have ended and all connections are closed, after `stopAccepting`.
   * @param timeoutMs after which the rest is cut off
   * @returns the number of requests that were cut off
   */
  drain(timeoutMs: number): Promise<number>
  /** Cuts off all connections. */
  destroy(): void
}

/** @param max the most connections at a time; others are closed at once */
export function trackConnections(server: Server, max: number): Connections {
  const sockets = new Set<Socket>()
  const replies = new Set<ServerResponse>()
  let isStopping = false

  server.on('connection', socket => {
    if (sockets.size >= max) {
      socket.destroy()
      return
    }
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
  const track = (_: IncomingMessage, reply: ServerResponse) => {
    replies.add(reply)
    reply.once('close', () => replies.delete(reply))
    if (isStopping) reply.shouldKeepAlive = false
  }
  server.prependListener('request', track)
  server.prependListener('checkContinue', track)

  /** Closes connections that have been idle for a while. @param idle since when each connection is idle (ms) */
  function closeIdle(idle: Map<Socket, number>): void {
    const busy = new Set([...replies].map(({ req }) => req.socket))
    for (const socket of sockets) {
      const since = idle.get(socket) ?? performance.now()
      if (busy.has(socket)) idle.delete(socket)
      else if (performance.now() - since < IDLE_MS) idle.set(socket, since)
      else socket.destroy()
    }
  }

  function destroy(): void {
    for (const socket of sockets) socket.destroy()
  }

  return {
    stopAccepting() {
      isStopping = true
      for (const reply of replies) if (!reply.headersSent) reply.shouldKeepAlive = false
      // Otherwise Node would close idle connections at once, also one on which a request is on its way.
      server.closeIdleConnections = () => {}
      server.close()
    },

    async drain(timeoutMs) {
      const until = performance.now() + timeoutMs
      const idle = new Map<Socket, number>()
      while (sockets.size > 0 && performance.now() < until) {
        closeIdle(idle)
        await new Promise(resolve => setTimeout(resolve, CHECK_MS))
      }
      const cut = replies.size
      destroy()
      return cut
    },

    destroy,
  }
}
