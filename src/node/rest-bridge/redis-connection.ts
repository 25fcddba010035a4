/** One connection to Redis or Valkey, by node-redis: raw replies, a deadline of our own, reconnecting by itself. */
import { createClient, ErrorReply, MultiErrorReply, RESP_TYPES } from 'redis'

export type Command = readonly (string | Buffer)[]
/** RESP2 as node-redis gives it here: a status is a string, a bulk string a Buffer. */
export type Reply = string | Buffer | number | null | Error | Reply[]

/** Redis did not do it, and perhaps nobody knows whether: not an answer of Redis itself, which is an ErrorReply. */
export class RedisUnavailable extends Error {
  readonly reason: 'unreachable' | 'timeout'

  constructor(reason: 'unreachable' | 'timeout') {
    super(reason === 'timeout' ? 'ERR Redis did not answer in time' : 'ERR Redis cannot be reached')
    this.reason = reason
  }
}

export { ErrorReply }

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
  const client = createClient({
    ...(url.startsWith('unix:') ? {} : { url }),
    socket: {
      ...(url.startsWith('unix:') && { path: new URL(url).pathname, tls: false }),
      connectTimeout: deadlineMs,
      reconnectStrategy: retries => Math.min(20 * 2 ** retries, 500),
    } as { reconnectStrategy: (retries: number) => number },
    RESP: 2,
    // Fail at once while there is no connection, instead of spending minutes later what was asked now.
    disableOfflineQueue: true,
    commandOptions: { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } },
  })
  // node-redis reports each broken connection here and would throw without a listener; callers get their own error.
  client.on('error', () => {})

  // A connection is no answer yet: Redis may ask for a password.
  await within(
    client.connect().then(() => client.ping()),
    deadlineMs,
  ).catch(error => {
    client.destroy()
    throw error
  })

  return {
    send: command => within(client.sendCommand([...command]) as Promise<Reply>, deadlineMs),

    async transaction(commands) {
      const multi = client.multi()
      for (const command of commands) multi.addCommand([...command])
      try {
        return (await within(multi.exec() as Promise<unknown>, deadlineMs)) as Reply[]
      } catch (error) {
        // Redis runs the rest of a transaction past a failing command; so the replies are good.
        if (error instanceof MultiErrorReply) return error.replies as Reply[]
        throw error
      }
    },

    close: () => client.destroy(),
  }
}

/** node-redis' own timeout does not fire for a command that is already on the wire. */
async function within<T>(work: Promise<T>, deadlineMs: number): Promise<T> {
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
