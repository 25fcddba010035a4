/**
 * One connection to one server, by node-redis: raw replies, reconnecting by itself when it breaks, and when it has died
 * without a word. It has no deadline and follows no redirection; both are for the connections made of it
 * (redis-connection.ts, cluster-connection.ts).
 */
import { ErrorReply, MultiErrorReply, RESP_TYPES } from 'redis'
import { redisClient } from './redis-client.ts'

export type Command = readonly (string | Buffer)[]
/** RESP2 as node-redis gives it here: a status is a string, a bulk string a Buffer. */
export type Reply = string | Buffer | number | null | Error | Reply[]

/** The command failed, or it is unknown whether it ran. An answer of Redis itself is an ErrorReply instead. */
export class RedisUnavailable extends Error {
  readonly reason: 'unreachable' | 'timeout'

  constructor(reason: 'unreachable' | 'timeout') {
    super(reason === 'timeout' ? 'ERR Redis did not answer in time' : 'ERR Redis cannot be reached')
    this.reason = reason
  }
}

export { ErrorReply }

/** Why a Redis does not answer, for logs. Without user and password. */
export interface Outage {
  /** `Redis at 10.0.0.5:6379` */
  address: string
  /** `does not answer: connect ECONNREFUSED 10.0.0.5:6379` */
  reason: string
  /** Of the bridge's replies meanwhile. */
  status: 400 | 503 | 504
}

export class RedisServer {
  /** As the server was addressed; empty for a socket. */
  readonly host: string
  /** Resolves when there is a connection for the first time, which may be never. */
  readonly connected: Promise<unknown>
  /** Resolves when the first attempt to connect has ended, well or not. */
  readonly firstAttempt: Promise<void>
  #client: RawClient
  readonly #url: string
  readonly #deadlineMs: number
  #isConnecting = true
  #isLeft = false
  /** What the connection failed of last. */
  #failure = 'there is no connection'
  /** When the server last said anything, and when the client was made (ms). */
  #heardAt = 0
  #madeAt = performance.now()

  /** @param deadlineMs for connecting, and for what is under way when the server is left */
  constructor(url: string, deadlineMs: number) {
    this.#client = createRawClient(url, deadlineMs)
    this.#url = url
    this.#deadlineMs = deadlineMs
    this.host = new URL(url).hostname.replace(/^\[(.*)\]$/, '$1')
    this.firstAttempt = new Promise(resolve => {
      const ended = () => {
        this.#isConnecting = false
        resolve()
      }
      // node-redis reports each broken connection here and would throw without a listener; callers get their own
      // error.
      this.#client.on('error', ended).once('ready', ended)
    })
    this.#client.on('error', this.#noteFailure)
    this.connected = this.#client.connect()
    this.connected.catch(() => {})
  }

  /** The first attempt is under way: no reason yet to say that the server is gone. */
  get isConnecting(): boolean {
    return this.#isConnecting
  }

  get isReady(): boolean {
    return this.#client.isReady
  }

  /** Asks it now. Never rejects. */
  async outage(): Promise<Outage | undefined> {
    try {
      await within(this.send(['PING']), this.#deadlineMs)
      return undefined
    } catch (error) {
      const { host, pathname, port } = new URL(this.#url)
      const address = `Redis at ${host ? `${host}${port ? '' : ':6379'}` : pathname}`
      if (error instanceof ErrorReply)
        return { address, reason: `answers with an error: ${error.message}`, status: 400 }
      const isLate = error instanceof RedisUnavailable && error.reason === 'timeout'
      const why = isLate ? `no reply within ${this.#deadlineMs / 1e3} s` : this.#failure
      return { address, reason: `does not answer: ${why}`, status: isLate ? 504 : 503 }
    }
  }

  /** @throws ErrorReply what Redis said; else the connection is gone, or breaks */
  async send(command: Command): Promise<Reply> {
    return await this.#heard(this.#client.sendCommand([...command]) as Promise<Reply>)
  }

  /** MULTI … EXEC. @throws ErrorReply when all of it was discarded; else the connection is gone, or breaks */
  async transaction(commands: readonly Command[]): Promise<Reply[]> {
    // disableOfflineQueue is not for transactions: one would wait for the next attempt to connect, and run although
    // its caller has got an error.
    if (!this.#client.isReady) throw new RedisUnavailable('unreachable')
    const multi = this.#client.multi()
    for (const command of commands) multi.addCommand([...command])
    try {
      return await this.#heard(multi.exec() as unknown as Promise<Reply[]>)
    } catch (error) {
      // Redis runs the rest of a transaction past a failing command; so the replies are good.
      if (error instanceof MultiErrorReply) return error.replies as Reply[]
      throw error
    }
  }

  /** Lets `next` pass where its slot is on the way to this node; `next` must send at once, and once. */
  async asking<T>(next: () => Promise<T>): Promise<T> {
    const [, result] = await Promise.all([this.send(['ASKING']), next()])
    return result
  }

  /** Takes nothing more, and ends when what is under way is answered or late. */
  leave(): void {
    this.#isLeft = true
    this.#client.close().catch(() => {})
    setTimeout(() => this.destroy(), this.#deadlineMs).unref()
  }

  destroy(): void {
    this.#isLeft = true
    this.#client.destroy()
  }

  /** Of several addresses that were tried there is no message, only a code. */
  #noteFailure = (error: NodeJS.ErrnoException): void => {
    this.#failure = error.message || error.code || error.name
  }

  /** Notes that the server is alive, or doubts it when a whole deadline has passed without a word. */
  async #heard<T>(reply: Promise<T>): Promise<T> {
    const sentAt = performance.now()
    const doubt = setTimeout(() => {
      if (this.#heardAt < sentAt && this.#madeAt < sentAt) this.#renew()
      // A little later than the deadline of its caller, which then reports a timeout.
    }, this.#deadlineMs * DOUBT)
    try {
      const result = await reply
      this.#heardAt = performance.now()
      return result
    } catch (error) {
      if (error instanceof ErrorReply || error instanceof MultiErrorReply) this.#heardAt = performance.now()
      else if (!this.#client.isReady && sentAt - this.#madeAt > 2 * this.#deadlineMs) this.#renew()
      throw error
    } finally {
      clearTimeout(doubt)
    }
  }

  /**
   * A connection whose other end is gone without a word (a host that lost its power, a firewall that forgot it) looks like
   * one that is slow, until TCP gives up after a quarter of an hour. What was asked on the old one fails, as it would have
   * by its deadline; nothing is sent again.
   */
  #renew(): void {
    if (this.#isLeft) return
    const old = this.#client
    this.#client = createRawClient(this.#url, this.#deadlineMs)
    this.#madeAt = performance.now()
    this.#client.on('error', this.#noteFailure)
    this.#client.connect().catch(() => {})
    old.destroy()
  }
}

const DOUBT = 1.2

type RawClient = ReturnType<typeof createRawClient>

function createRawClient(url: string, connectTimeout: number) {
  return redisClient({
    ...(url.startsWith('unix:') ? {} : { url }),
    socket: {
      ...(url.startsWith('unix:') && { path: new URL(url).pathname, tls: false }),
      connectTimeout,
      reconnectStrategy: retries => Math.min(20 * 2 ** retries, 500),
    } as { reconnectStrategy: (retries: number) => number },
    // Fail at once while there is no connection, instead of spending minutes later what was asked now.
    disableOfflineQueue: true,
    commandOptions: { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } },
  })
}

/**
 * node-redis' own timeout does not fire for a command that is already on the wire.
 * @throws ErrorReply and RedisUnavailable as they come; RedisUnavailable for every other failure, and when it is late
 */
export async function within<T>(work: Promise<T>, deadlineMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new RedisUnavailable('timeout')), deadlineMs)
  })
  try {
    return await Promise.race([work, deadline])
  } catch (error) {
    if (error instanceof ErrorReply || error instanceof RedisUnavailable) throw error
    throw new RedisUnavailable('unreachable')
  } finally {
    clearTimeout(timer)
  }
}
