/**
 * The master that Redis Sentinels watch, used as one Redis. If the Sentinels promote another node, commands go to that one. createSentinel
 * of node-redis 6.3 does not fit: it sends a command again after a lost connection, so the command could spend twice.
 *
 * The Sentinels are asked several times a second, and at once if the master fails or refuses changes. No command waits for this: commands
 * fail until the new master is known. What the old master admits until then is not known to the new one.
 */
import type { Departure } from '../rest-bridge/departure.ts'
import type { FoundRedis } from '../rest-bridge/found-redis.ts'
import {
  type Command,
  ErrorReply,
  type Outage,
  RedisOffline,
  RedisServer,
  type Reply,
  withDeadline,
} from '../rest-bridge/redis-server.ts'
import type { RedisTarget } from './redis-url.ts'

type Target = Extract<RedisTarget, { kind: 'sentinel' }>

const ASK_EVERY_MS = 250
/** Between two questions because of failing commands. */
const PAUSE_MS = 100

export class SentinelConnection implements FoundRedis {
  readonly isCluster = false
  readonly #target: Target
  readonly #deadlineMs: number
  /** The one that has answered last comes first, so that Sentinels that disagree do not make commands go back and forth. */
  #sentinels: RedisServer[]
  #master: { url: string; server: RedisServer } | undefined
  #failure: unknown
  #asking: Promise<void> | undefined
  #askedAt = Number.NEGATIVE_INFINITY
  #isClosed = false
  readonly #timer: NodeJS.Timeout

  /** @param deadlineMs of an answer of a Sentinel, and as of RedisServer */
  constructor(target: Target, deadlineMs: number) {
    this.#target = target
    this.#deadlineMs = deadlineMs
    this.#sentinels = target.urls.map(url => new RedisServer(url, deadlineMs, target.sentinelTls))
    this.#timer = setInterval(() => this.#ask(), ASK_EVERY_MS).unref()
  }

  /** Asks the Sentinels, and waits for the first attempt to connect to the master. Never rejects. */
  async firstAttempt(): Promise<void> {
    await this.#ask()
    await this.#master?.server.firstAttempt
  }

  async dispatch(command: readonly string[], departure: Departure): Promise<Reply> {
    return await this.#atMaster(master => master.dispatch(command, departure))
  }

  async send(command: Command): Promise<Reply> {
    return await withDeadline(
      this.#atMaster(master => master.send(command)),
      this.#deadlineMs,
    )
  }

  async transaction(commands: readonly Command[]): Promise<Reply[]> {
    return await withDeadline(
      this.#atMaster(master => master.transaction(commands)),
      this.#deadlineMs,
    )
  }

  async outages(): Promise<(Outage | undefined)[]> {
    if (this.#master) return [await this.#master.server.outage()]
    return [{ address: `The master ${this.#target.master}`, reason: this.#reason(), status: 503 }]
  }

  async leave(): Promise<void> {
    this.#end()
    await this.#master?.server.leave()
  }

  close(): void {
    this.#end()
    this.#master?.server.destroy()
  }

  #end(): void {
    this.#isClosed = true
    clearInterval(this.#timer)
    for (const sentinel of this.#sentinels) sentinel.destroy()
  }

  async #atMaster<T>(run: (master: RedisServer) => Promise<T>): Promise<T> {
    if (!this.#master) {
      this.#askSoon()
      throw new RedisOffline({ cause: this.#failure })
    }
    try {
      return await run(this.#master.server)
    } catch (error) {
      // A node that was demoted answers READONLY, or MASTERDOWN while it has no master.
      if (!(error instanceof ErrorReply) || /^(READONLY|MASTERDOWN)\b/.test(error.message)) this.#askSoon()
      throw error
    }
  }

  #askSoon(): void {
    if (performance.now() - this.#askedAt > PAUSE_MS) this.#ask()
  }

  #ask(): Promise<void> {
    this.#asking ??= this.#askSentinels().finally(() => {
      this.#asking = undefined
      this.#askedAt = performance.now()
    })
    return this.#asking
  }

  async #askSentinels(): Promise<void> {
    for (const sentinel of this.#sentinels) {
      if (this.#isClosed) return
      try {
        if (sentinel.isConnecting) await withDeadline(sentinel.firstAttempt, this.#deadlineMs)
        const command = ['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', this.#target.master]
        const address = await withDeadline(sentinel.send(command), this.#deadlineMs)
        if (!Array.isArray(address)) {
          this.#failure = new ErrorReply(`ERR a Sentinel knows no master of this name`)
          continue
        }
        this.#sentinels = [sentinel, ...this.#sentinels.filter(other => other !== sentinel)]
        this.#adopt(String(address[0]), String(address[1]))
        return
      } catch (error) {
        this.#failure = error instanceof ErrorReply ? error : (sentinel.failure ?? error)
      }
    }
  }

  #adopt(host: string, port: string): void {
    const url = this.#target.urlOf(host, port)
    if (this.#isClosed || this.#master?.url === url) return
    // Commands in flight at the old master get its answers.
    void this.#master?.server.leave()
    this.#master = { url, server: new RedisServer(url, this.#deadlineMs, this.#target.tls) }
  }

  #reason(): string {
    const { message = 'no reply' } = (this.#failure ?? {}) as { message?: string }
    return `is not known, because no Sentinel answers with its address: ${message}`
  }
}
