/**
 * The connections to the origin. Each is a client of undici, which sends one request at a time, and destroys a connection on which bytes
 * arrive while it is idle. A connection that may carry bytes of an earlier response is never used again: see `retire`.
 */
import type { Socket } from 'node:net'
import { buildConnector, Client } from 'undici'
import { filterInterim, type InterimFilter } from './interim-filter.ts'
import { paceReading, type Reading } from './paced-reading.ts'

/** Idle connections that a process keeps. */
const MAX_IDLE = 256

/**
 * How long an idle connection is kept (ms), unless the origin says otherwise in `Keep-Alive: timeout`. Shorter than the time after which
 * servers close theirs without saying so: gunicorn after 2 s, uvicorn and Node after 5 s.
 */
const IDLE_MS = 1500

/** How much earlier than the origin says an idle connection is closed (ms). */
const IDLE_MARGIN_MS = 1000

/** The most bytes of the status line and the headers of a response. */
export const MAX_RESPONSE_HEAD = 16_384

export interface ConnectionSettings {
  /** How long opening a connection can take (ms). */
  connectTimeoutMs: number
  /** `'fresh'`: each request has a connection of its own. */
  reuse: 'kept' | 'fresh'
}

/** A connection to the origin, for one request at a time. It is opened when the first request is sent. */
export class Connection {
  readonly client: Client
  socket: Socket | undefined
  reading: Reading | undefined
  interimFilter: InterimFilter | undefined
  /** The requests that were sent since it was opened. */
  requests = 0
  isOpen = false
  /** Whether it is not to be used for another request. */
  isRetired = false
  /** The one that is being opened. */
  #opening: Socket | undefined

  constructor(origin: string, connect: buildConnector.connector, isKept: boolean) {
    this.client = new Client(origin, {
      connect: (options, callback) => {
        // The connector returns its socket, which its type does not say.
        this.#opening = connect(options, (...result) => {
          this.#opening = undefined
          if (result[1]) {
            this.socket = result[1]
            this.reading = paceReading(result[1])
            this.interimFilter = filterInterim(result[1])
            ignoreFailedWrites(result[1])
          }
          callback(...result)
        }) as unknown as Socket
      },
      allowH2: false,
      maxHeaderSize: MAX_RESPONSE_HEAD,
      // The deadlines of the config end requests. These would end slow streams.
      ...{ headersTimeout: 0, bodyTimeout: 0 },
      keepAliveTimeout: IDLE_MS,
      keepAliveTimeoutThreshold: IDLE_MARGIN_MS,
      // 0 sends `Connection: close`.
      pipelining: isKept ? 1 : 0,
    })
    this.client.on('connect', () => {
      this.isOpen = true
      this.requests = 0
    })
    this.client.on('disconnect', () => {
      this.isOpen = false
    })
  }

  /** Gives up opening the connection. Otherwise, callers that leave could pile up sockets until the deadline of the origin. */
  abandon(reason: Error): void {
    this.#opening?.destroy(reason)
  }

  /** Closes the connection, also if it has been used up without an error. */
  retire(): void {
    this.isRetired = true
    this.socket?.destroy()
  }
}

/**
 * Lets a socket read on when it can no longer be written: an origin that refuses a body answers and closes the connection, and Node would
 * drop the answer. The end of the connection is then read.
 */
export function ignoreFailedWrites(socket: Socket): void {
  const { _write, _writev } = socket
  type Done = (error?: Error | null) => void
  const ignoring =
    (done: Done): Done =>
    error =>
      done(error && isClosed(error) ? null : error)
  socket._write = (chunk, encoding, done) => _write.call(socket, chunk, encoding, ignoring(done))
  socket._writev = (chunks, done) => _writev!.call(socket, chunks, ignoring(done))
}

/** Whether the other end has closed or reset the connection. @param error of Node or of undici */
export const isClosed = ({ code }: NodeJS.ErrnoException) =>
  code === 'UND_ERR_SOCKET' || code === 'ECONNRESET' || code === 'EPIPE'

export class OriginConnections {
  readonly #settings: ConnectionSettings
  readonly #connect: buildConnector.connector
  /** The one that was used last is at the end: it is the least likely to be closed by the origin. */
  #idle: Connection[] = []
  readonly #all = new Set<Connection>()

  constructor(settings: ConnectionSettings) {
    this.#settings = settings
    this.#connect = buildConnector({ timeout: settings.connectTimeoutMs, allowH2: false })
  }

  /** @param origin as in `https://example.com` @param isFresh whether the connection must be new */
  take(origin: string, isFresh = false): Connection {
    const isKept = this.#settings.reuse === 'kept' && !isFresh
    if (isKept) {
      let connection = this.#idle.pop()
      while (connection && !connection.isOpen) connection = this.#idle.pop()
      if (connection) return connection
    }
    const connection = new Connection(origin, this.#connect, isKept)
    const { client } = connection
    this.#all.add(connection)
    // A client that was given back in the moment in which its connection was closed opens another one.
    client.on('connect', () => this.#all.add(connection))
    client.on('disconnect', () => this.#all.delete(connection))
    client.on('connectionError', () => this.#all.delete(connection))
    return connection
  }

  /** Keeps a connection whose request has ended for the next one. */
  give(connection: Connection): void {
    if (connection.isRetired || connection.client.pipelining === 0) return
    if (this.#idle.length >= MAX_IDLE) this.#idle = this.#idle.filter(({ isOpen }) => isOpen)
    if (this.#idle.length < MAX_IDLE) this.#idle.push(connection)
    else connection.retire()
  }

  close(): void {
    for (const { client } of this.#all) void client.destroy()
  }
}
