/** What the bridge needs of a Redis, a Valkey or a cluster of them. */
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
  /** Sends a PING, in a cluster to every master. @returns for each server its outage, or undefined if it answers; never rejects */
  outages(): Promise<(Outage | undefined)[]>
}
