/**
 * One connection to one server, by node-redis, with raw replies. It reconnects when the connection breaks, when the server has stopped
 * answering, or when the address leads to another server (failover.ts). Deadlines and redirections are handled by its callers (redis-connection.ts, cluster-connection.ts).
 */
import type { ConnectionOptions } from 'node:tls'
import { ClientClosedError, ClientOfflineError, ErrorReply, MultiErrorReply, RESP_TYPES } from 'redis'
import type { Departure } from './departure.ts'
import { Failover, isRefusing, WRITE_TEST } from './failover.ts'
import { createRedisClient } from './redis-client.ts'
import { Silence } from './silence.ts'

export type Command = readonly (string | Buffer)[]
/** RESP2 as node-redis gives it here: a status is a string, a bulk string a Buffer. */
export type Reply = string | Buffer | number | null | Error | Reply[]

/** The command failed, or it is unknown whether it ran. An answer of Redis itself is an ErrorReply instead. */
export class RedisUnavailable extends Error {
  readonly reason: 'unreachable' | 'timeout'

  /** @param options `cause`: the error of the connection, if one is known */
  constructor(reason: 'unreachable' | 'timeout', options?: ErrorOptions) {
    super(reason === 'timeout' ? 'ERR Redis did not answer in time' : 'ERR Redis cannot be reached', options)
    this.reason = reason
  }
}

/** There is no connection, so the command was not sent. */
export class RedisOffline extends RedisUnavailable {
  constructor(options?: ErrorOptions) {
    super('unreachable', options)
  }
}

/** Whether a command has failed because there was no connection. */
export const wasOffline = (error: unknown) =>
  error instanceof RedisOffline || error instanceof ClientOfflineError || error instanceof ClientClosedError

export { ErrorReply }

/** Why a Redis does not answer, for logs. Without user and password. */
export interface Outage {
  /** `Redis at 10.0.0.5:6379` */
  address: string
  /** `does not answer: connect ECONNREFUSED 10.0.0.5:6379` */
  reason: string
  /** The status of the bridge's replies during the outage. */
  status: 400 | 503 | 504
}

export class RedisServer {
  /** As the server was addressed; empty for a socket. */
  readonly host: string
  /** Resolves when the first connection is made. That may never happen. */
  readonly connected: Promise<unknown>
  /** Resolves when the first attempt to connect has ended, well or not. */
  readonly firstAttempt: Promise<void>
  #client: RawClient
  readonly #url: string
  readonly #tls: ConnectionOptions | undefined
  readonly #deadlineMs: number
  #isConnecting = true
  #isLeft = false
  #failure: NodeJS.ErrnoException | undefined
  /** When the client was created (ms). */
  #madeAt = performance.now()
  /** Of the current connection. */
  #silence: Silence
  /** Connects before it replaces the client. */
  #next: RawClient | undefined
  readonly #failover: Failover<RawClient>

  /**
   * @param deadlineMs for connecting, for a PING, and for the commands that are in flight when `leave` is called
   * @param tls certificates and names, if the URL is `rediss://`
   */
  constructor(url: string, deadlineMs: number, tls?: ConnectionOptions) {
    this.#url = url
    this.#tls = tls
    this.#client = this.#createClient(url, deadlineMs)
    this.#deadlineMs = deadlineMs
    this.#silence = this.#createSilence(this.#client)
    this.#failover = this.#createFailover()
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
    this.connected = this.#client.connect()
    this.connected.catch(() => {})
  }

  /** The first attempt to connect has not ended, so the server may still be reachable. */
  get isConnecting(): boolean {
    return this.#isConnecting
  }

  get isReady(): boolean {
    return this.#client.isReady
  }

  /** The last error of the connection. Its message has no user and no password. */
  get failure(): NodeJS.ErrnoException | undefined {
    return this.#failure
  }

  /** Finds out whether the server answers, and takes changes. @returns undefined if it does; never rejects */
  async outage(): Promise<Outage | undefined> {
    try {
      // A user without DEL is not an outage, so its answer counts only if the server refuses all changes.
      const writing = this.send(WRITE_TEST).catch(error => {
        if (isRefusing(error)) throw error
      })
      await withDeadline(Promise.all([this.send(['PING']), writing]), this.#deadlineMs)
      return undefined
    } catch (error) {
      const { host, pathname, port } = new URL(this.#url)
      const address = `Redis at ${host ? `${host}${port ? '' : ':6379'}` : pathname}`
      if (error instanceof ErrorReply)
        return { address, reason: `answers with an error: ${error.message.replace(/\.$/, '')}`, status: 400 }
      const isLate = error instanceof RedisUnavailable && error.reason === 'timeout'
      const failure = this.#failure ? textOf(this.#failure) : 'there is no connection'
      const why = isLate ? `no reply within ${this.#deadlineMs / 1e3} s` : failure
      return { address, reason: `does not answer: ${why}`, status: isLate ? 504 : 503 }
    }
  }

  /** @throws ErrorReply with the error of Redis; RedisOffline with its cause; another error if the connection breaks */
  async send(command: Command): Promise<Reply> {
    try {
      return await this.#recordAnswer(this.#client.sendCommand(command) as Promise<Reply>)
    } catch (error) {
      throw wasOffline(error) ? new RedisOffline({ cause: this.#failure }) : error
    }
  }

  /**
   * Sends a command whose departure the caller watches. Its reply has texts (UTF-8) instead of Buffers.
   * @throws ErrorReply; RedisUnavailable with its cause
   */
  async dispatch(command: readonly string[], departure: Departure): Promise<Reply> {
    const client = this.#client
    departure.begin(client)
    const options = { typeMapping: TEXTS, abortSignal: departure as unknown as AbortSignal }
    try {
      return await this.#recordAnswer(client.sendCommand(command, options) as Promise<Reply>)
    } catch (error) {
      if (error instanceof ErrorReply) throw error
      // The reason for the missing connection says more than its absence.
      const cause = departure.hasLeft ? error : (this.#failure ?? error)
      throw new RedisUnavailable('unreachable', { cause })
    }
  }

  /** MULTI … EXEC. @throws ErrorReply when all of it was discarded; else the connection is gone, or breaks */
  async transaction(commands: readonly Command[]): Promise<Reply[]> {
    // disableOfflineQueue does not apply to transactions. A transaction would wait for the next connection, and run after its caller has got
    // an error.
    if (!this.#client.isReady) throw new RedisOffline({ cause: this.#failure })
    const multi = this.#client.multi()
    for (const command of commands) multi.addCommand([...command])
    try {
      return await this.#recordAnswer(multi.exec() as unknown as Promise<Reply[]>)
    } catch (error) {
      // If a command of a transaction fails, Redis runs the others, so the replies are valid.
      if (error instanceof MultiErrorReply) return error.replies as Reply[]
      throw error
    }
  }

  /**
   * Sends ASKING before the command of `next`, so that this node accepts the command for a slot that is moving to it. `next` must send
   * exactly one command, and synchronously.
   */
  async asking<T>(next: () => Promise<T>): Promise<T> {
    const [, result] = await Promise.all([this.send(['ASKING']), next()])
    return result
  }

  /** Accepts no more commands. Closes the connection when all commands in flight are answered, or after the deadline. */
  async leave(): Promise<void> {
    this.#isLeft = true
    await closeClient(this.#client, this.#deadlineMs)
  }

  destroy(): void {
    this.#isLeft = true
    this.#next?.destroy()
    this.#client.destroy()
  }

  #noteFailure = (error: NodeJS.ErrnoException): void => {
    this.#failure = error
  }

  /** Records whether the server answers. Renews the connection if it cannot be used any more. */
  async #recordAnswer<T>(reply: Promise<T>): Promise<T> {
    const silence = this.#silence
    const sentAt = performance.now()
    silence.commandSent(sentAt)
    try {
      const result = await reply
      silence.commandEnded(true)
      return result
    } catch (error) {
      const isAnswered = error instanceof ErrorReply || error instanceof MultiErrorReply
      silence.commandEnded(isAnswered)
      this.#failover.noteError(error)
      const isStuck = !isAnswered && !this.#client.isReady && sentAt - this.#madeAt > 2 * this.#deadlineMs
      if (isStuck) this.#renew()
      throw error
    }
  }

  /**
   * Replaces the connection. If the other end has disappeared (the host lost its power, or a firewall dropped the connection), the
   * connection only looks slow until TCP gives up after 15 minutes. Commands on the old connection fail, as they would at their deadline, and
   * are not sent again.
   */
  #renew(): void {
    if (this.#isLeft) return
    const old = this.#client
    this.#use(this.#createClient(this.#url, this.#deadlineMs))
    this.#client.connect().catch(() => {})
    old.destroy()
  }

  #use(client: RawClient): void {
    this.#client = client
    this.#silence = this.#createSilence(client)
    this.#madeAt = performance.now()
  }

  #createFailover(): Failover<RawClient> {
    return new Failover({
      current: () => (this.#isLeft || !this.#client.isReady ? undefined : this.#client),
      connect: async () => {
        const next = this.#createClient(this.#url, this.#deadlineMs)
        this.#next = next
        try {
          await withDeadline(next.connect(), this.#deadlineMs)
        } catch (error) {
          this.#drop(next)
          throw error
        }
        return next
      },
      errorAt: async client => {
        try {
          await withDeadline(client.sendCommand([...WRITE_TEST]), this.#deadlineMs)
          return undefined
        } catch (error) {
          if (error instanceof ErrorReply) return error
          throw error
        }
      },
      adopt: next => {
        const old = this.#client
        this.#next = undefined
        this.#use(next)
        void closeClient(old, this.#deadlineMs)
      },
      drop: next => this.#drop(next),
    })
  }

  #drop(next: RawClient): void {
    this.#next = undefined
    next.destroy()
  }

  #createClient(url: string, connectMs: number): RawClient {
    const client = createRawClient(url, connectMs, this.#tls)
    client.on('error', error => {
      this.#noteFailure(error)
      // The bytes were not RESP. node-redis drops them and goes on, so the replies behind them would go to other calls.
      if (client === this.#client && client.isReady) this.#renew()
    })
    // node-redis does not close a connection that is made after `destroy`. If the server does not answer, it would keep the process alive.
    client.on('connect', () => {
      const isUsed = client === this.#client || client === this.#next
      if (this.#isLeft || !isUsed) client.destroy()
    })
    return client
  }

  #createSilence(client: RawClient): Silence {
    return new Silence(this.#deadlineMs * STALL_DEADLINES, () => {
      // The client before it can have commands in flight.
      if (client === this.#client) this.#renew()
    })
  }
}

const TEXTS = {}

/** After how many deadlines without an answer the connection is replaced. More than one, so that the caller gets a timeout first. */
const STALL_DEADLINES = 1.2

/** What an error says, for a message that goes on after it. If several addresses of a host were tried, the error has only a code. */
export const textOf = ({ message, code, name }: NodeJS.ErrnoException): string =>
  (message || code || name).replace(/\.$/, '')

type RawClient = ReturnType<typeof createRawClient>

/** Closes a client when all commands in flight are answered, or after the deadline. */
async function closeClient(client: RawClient, deadlineMs: number): Promise<void> {
  const timer = setTimeout(() => client.destroy(), deadlineMs).unref()
  // It fails if the connection is closed already.
  await client.close().catch(() => {})
  clearTimeout(timer)
  client.destroy()
}

function createRawClient(url: string, connectTimeout: number, tls: ConnectionOptions | undefined) {
  return createRedisClient({
    ...(url.startsWith('unix:') ? unixOptions(new URL(url)) : { url }),
    socket: {
      ...tls,
      ...(url.startsWith('unix:') && { path: new URL(url).pathname, tls: false }),
      connectTimeout,
      reconnectStrategy: retries => Math.min(20 * 2 ** retries, 500),
    } as { reconnectStrategy: (retries: number) => number },
    // Without a connection, a command fails at once. A queued command would spend units minutes later.
    disableOfflineQueue: true,
    // The timeout of node-redis needs an AbortSignal for each command, and ends as soon as the command is on the wire.
    commandOptions: { timeout: 0, typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } },
  })
}

/** `unix:///path?username=…&password=…&db=2`: a URL without a host has no place for them. */
function unixOptions({ searchParams }: URL) {
  const [username, password, db] = ['username', 'password', 'db'].map(name => searchParams.get(name))
  return { ...(username && { username }), ...(password && { password }), ...(db && { database: Number(db) }) }
}

/** @throws ErrorReply and RedisUnavailable as they come; RedisUnavailable for every other failure, and when it is late */
export function withDeadline<T>(work: Promise<T>, deadlineMs: number): Promise<T> {
  // Not Promise.race, which takes longer.
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new RedisUnavailable('timeout')), deadlineMs)
    work.then(
      result => {
        clearTimeout(timer)
        resolve(result)
      },
      error => {
        clearTimeout(timer)
        const isKnown = error instanceof ErrorReply || error instanceof RedisUnavailable
        if (isKnown) reject(error)
        else reject(wasOffline(error) ? new RedisOffline() : new RedisUnavailable('unreachable'))
      },
    )
  })
}
