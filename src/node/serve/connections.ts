/**
 * The connections of a server, and the requests on them, one after the other: what is to end before the process does, and what must not
 * begin because its connection is about to close.
 */
import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/** How long an idle connection stays open after the server has stopped to accept others (ms): the client may be about to use it. */
const IDLE_MS = 1000

const CHECK_MS = 50

/** How long a client can go on sending a body after its reply, and how long it can pause meanwhile (ms). Those of nginx. */
const LINGERING_MS = 30_000
const LINGERING_SILENCE_MS = 5000

export interface Connections {
  /**
   * A listener that gets the requests of a connection in turn: each when the reply to the one before is over, and none behind a reply that
   * closes the connection (RFC 9112, section 9.6).
   */
  inTurn(listener: RequestListener): RequestListener
  /** Calls `run` when all replies on the connection are over; not if it is closing then. */
  whenFree(socket: Socket, run: () => void): void
  /** Stops accepting connections. Those that are open may send one more request. */
  stopAccepting(): void
  /**
   * Waits until all requests have ended and all connections are closed, after `stopAccepting`.
   * @param timeoutMs after which the rest is cut off
   * @returns the number of connections with a request that was cut off
   */
  drain(timeoutMs: number): Promise<number>
  /** Cuts off all connections. */
  destroy(): void
}

/** @param max the most connections at a time; others are closed at once */
export function trackConnections(server: Server, max: number): Connections {
  const sockets = new Set<Socket>()
  /** The last reply on each connection that has one. */
  const replies = new Map<Socket, ServerResponse>()
  /** How many requests of a connection wait for the reply to an earlier one. */
  const waiting = new WeakMap<Socket, number>()
  let isStopping = false

  server.on('connection', socket => {
    // It is here again after a request to upgrade it.
    if (sockets.has(socket)) return
    if (sockets.size >= max) {
      socket.destroy()
      return
    }
    sockets.add(socket)
    socket.once('close', () => {
      sockets.delete(socket)
      replies.delete(socket)
    })
  })

  function whenFree(socket: Socket, run: () => void): void {
    const runIfOpen = () => {
      if (!socket.destroyed && !socket.writableEnded) run()
    }
    const reply = replies.get(socket)
    if (reply) reply.once('close', runIfOpen)
    // The reply before may be over all the same: Node runs other work within a packet if a head has more than 32 headers.
    else runIfOpen()
  }

  /** Stops reading a connection while requests of it wait. Otherwise a client could fill the memory with requests. */
  function wait(socket: Socket): void {
    waiting.set(socket, (waiting.get(socket) ?? 0) + 1)
    // Node reads on at the end of each message, so not before the packet was parsed.
    process.nextTick(() => {
      if (waiting.get(socket)! > 0) socket.pause()
    })
  }

  function goOn(socket: Socket): void {
    const others = waiting.get(socket)! - 1
    waiting.set(socket, others)
    if (others === 0) socket.resume()
  }

  /** Closes connections that have been idle for a while. @param idle since when each connection is idle (ms) */
  function closeIdle(idle: Map<Socket, number>): void {
    for (const socket of sockets) {
      const since = idle.get(socket) ?? performance.now()
      if (replies.has(socket)) idle.delete(socket)
      else if (performance.now() - since < IDLE_MS) idle.set(socket, since)
      else socket.destroy()
    }
  }

  function destroy(): void {
    for (const socket of sockets) socket.destroy()
  }

  return {
    inTurn: listener => (incoming, outgoing) => {
      const { socket } = incoming
      const isPipelined = replies.has(socket)
      if (isPipelined) wait(socket)
      whenFree(socket, () => {
        if (isPipelined) goOn(socket)
        if (isStopping) outgoing.shouldKeepAlive = false
        listener(incoming, outgoing)
      })
      replies.set(socket, outgoing)
      outgoing.once('close', () => {
        if (replies.get(socket) === outgoing) replies.delete(socket)
      })
    },

    whenFree,

    stopAccepting() {
      isStopping = true
      for (const reply of replies.values()) if (!reply.headersSent) reply.shouldKeepAlive = false
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

/**
 * Closes the connection after its reply, and reads on until the client has read that: a connection that is closed with bytes that were not
 * read is reset, and the reply may be lost.
 */
export function closeAfterReply(incoming: IncomingMessage, outgoing: ServerResponse): void {
  const { socket } = incoming
  outgoing.shouldKeepAlive = false
  // Node calls it after the last reply.
  socket.destroySoon = () => {
    socket.end()
    socket.setTimeout(LINGERING_SILENCE_MS)
    const timer = setTimeout(() => socket.destroy(), LINGERING_MS)
    socket.once('close', () => clearTimeout(timer))
    incoming.resume()
  }
}
