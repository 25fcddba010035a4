/**
 * Follows a failover by address. A service, a virtual IP or a name of DNS leads to a new primary, but the connections to the old one stay
 * open, and it refuses every change as a replica. So while the server of a connection refuses, the same address is connected to again,
 * about once a second. The connection is replaced only by one whose server does not refuse. So nothing is torn down because of a server
 * that refuses for a moment, or of one that refuses at the new connection, too. Commands in flight get their answers, and none is repeated.
 */
import { ErrorReply } from 'redis'
import { WRITE_TEST_KEY } from '../../store/keys.ts'
import { NO_PERMISSION } from '../../store/refusal.ts'

/** The pause before each attempt (ms). What refuses for less than this leaves the connection alone. */
const PAUSE_MS = 1000

/** Changes nothing. A PING would succeed on a replica, too. */
export const WRITE_TEST = ['DEL', WRITE_TEST_KEY] as const

/** Whether the server refuses changes now, whatever they are. */
export const isRefusing = (error: unknown): error is ErrorReply =>
  error instanceof ErrorReply && /^(READONLY|MASTERDOWN|LOADING|MISCONF|NOREPLICAS)\b/.test(error.message)

/** A server that is in this state for long may no longer be the one to which its address leads. */
const isElsewhere = (error: unknown) =>
  isRefusing(error) && /^(READONLY|MASTERDOWN|LOADING)\b/.test(error.message)

/** A connection, as far as a failover concerns it. */
export interface FailingOver<Client> {
  /** The client in use. Undefined while it connects, and after it was closed: then it is not replaced. */
  current(): Client | undefined
  /** Connects to the same address. @throws if that fails */
  connect(): Promise<Client>
  /** Sends WRITE_TEST. @returns the error of the server, if it answers with one @throws if it does not answer */
  errorAt(client: Client): Promise<ErrorReply | undefined>
  /** Uses the client from now on. */
  adopt(client: Client): void
  drop(client: Client): void
}

export class Failover<Client> {
  readonly #connection: FailingOver<Client>
  readonly #pause: (ms: number) => Promise<void>
  #isFollowing = false
  /** Whether a command was refused since the last test. */
  #wasRefused = false

  constructor(connection: FailingOver<Client>, pause = unrefPause) {
    this.#connection = connection
    this.#pause = pause
  }

  /** @param error with which the server has answered a command */
  noteError(error: unknown): void {
    if (!isElsewhere(error)) return
    this.#wasRefused = true
    if (this.#isFollowing) return
    this.#isFollowing = true
    this.#follow()
      .catch(() => {})
      .finally(() => {
        this.#isFollowing = false
      })
  }

  async #follow(): Promise<void> {
    for (;;) {
      this.#wasRefused = false
      await this.#pause(PAUSE_MS)
      const current = this.#connection.current()
      if (current === undefined || !(await this.#refuses(current))) return
      if (await this.#replace()) return
    }
  }

  async #refuses(current: Client): Promise<boolean> {
    const error = await this.#connection.errorAt(current)
    // A user whose keys have another prefix cannot test, so what was refused meanwhile counts.
    return (
      isElsewhere(error) || (this.#wasRefused && error !== undefined && NO_PERMISSION.test(error.message))
    )
  }

  async #replace(): Promise<boolean> {
    const { connect, errorAt, adopt, drop, current } = this.#connection
    let next: Client | undefined
    try {
      next = await connect()
      if (!isRefusing(await errorAt(next)) && current() !== undefined) {
        adopt(next)
        return true
      }
    } catch {
      // The address leads nowhere now.
    }
    if (next !== undefined) drop(next)
    return false
  }
}

const unrefPause = (ms: number) => new Promise<void>(resolve => setTimeout(resolve, ms).unref())
