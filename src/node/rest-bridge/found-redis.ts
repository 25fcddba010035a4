/** What the bridge needs of a Redis, a Valkey or a cluster of them. */
import type { Departure } from './departure.ts'
import type { Command, Outage, Reply } from './redis-server.ts'

export interface RedisConnection {
  /** @throws ErrorReply with the error of Redis; RedisUnavailable */
  send(command: Command): Promise<Reply>
  /** MULTI … EXEC. @throws ErrorReply when all of it was discarded; RedisUnavailable */
  transaction(commands: readonly Command[]): Promise<Reply[]>
  close(): void
}

/** A connection that has found out whether its Redis is a cluster. */
export interface FoundRedis extends RedisConnection {
  readonly isCluster: boolean
  /**
   * Sends a script, or a command that begins with its key, without a deadline. Its reply has texts instead of Buffers.
   * @param departure shows whether the command was sent, and calls it off
   * @throws ErrorReply; RedisUnavailable with its cause
   */
  dispatch(command: readonly string[], departure: Departure): Promise<Reply>
  /** Accepts no more commands. Closes the connections when the commands in flight are answered, or after the deadline. */
  leave(): Promise<void>
  /** Sends a PING, in a cluster to every master. @returns for each server its outage, or undefined if it answers; never rejects */
  outages(): Promise<(Outage | undefined)[]>
}
