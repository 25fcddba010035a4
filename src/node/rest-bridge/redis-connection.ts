/** The connection that the bridge works on: to one Redis or Valkey, each command with a deadline. */
import {
  type Command,
  ErrorReply,
  RedisServer,
  RedisUnavailable,
  type Reply,
  within,
} from './redis-server.ts'

export { type Command, ErrorReply, RedisUnavailable, type Reply }

export interface RedisConnection {
  /** @throws ErrorReply what Redis said; RedisUnavailable */
  send(command: Command): Promise<Reply>
  /** MULTI … EXEC. @throws ErrorReply when all of it was discarded; RedisUnavailable */
  transaction(commands: readonly Command[]): Promise<Reply[]>
  close(): void
}

/**
 * @param url `redis://`, `rediss://` or `unix:///path/to/socket`
 * @throws when Redis does not answer the first time
 */
export async function connectRedis(url: string, deadlineMs: number): Promise<RedisConnection> {
  const server = new RedisServer(url, deadlineMs)
  try {
    // A connection is no answer yet: Redis may ask for a password.
    await within(
      server.connected.then(() => server.send(['PING'])),
      deadlineMs,
    )
  } catch (error) {
    server.destroy()
    throw error
  }
  return {
    send: command => within(server.send(command), deadlineMs),
    transaction: commands => within(server.transaction(commands), deadlineMs),
    close: () => server.destroy(),
  }
}
