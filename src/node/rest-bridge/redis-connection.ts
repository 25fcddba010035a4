/** The connection that the bridge works on: to one Redis or Valkey, or to a Redis Cluster, whichever is found there. */
import { ClusterConnection } from './cluster-connection.ts'
import type { FoundRedis, RedisConnection } from './found-redis.ts'
import {
  type Command,
  ErrorReply,
  RedisServer,
  RedisUnavailable,
  type Reply,
  withDeadline,
} from './redis-server.ts'

export { type Command, ErrorReply, type RedisConnection, RedisUnavailable, type Reply }

/**
 * @param url `redis://`, `rediss://` or `unix:///path/to/socket`; of a cluster, that of any node
 * @throws ErrorReply; RedisUnavailable with the error of the connection as its cause, if Redis does not answer the first time
 */
export async function connectRedis(url: string, deadlineMs: number): Promise<FoundRedis> {
  const server = new RedisServer(url, deadlineMs)
  try {
    // A connection alone is not enough: Redis may require a password.
    await withDeadline(
      server.connected.then(() => server.send(['PING'])),
      deadlineMs,
    )
    // The nodes of a cluster know each other by host and port, so a cluster is never reached over a Unix socket.
    if (!url.startsWith('unix:') && (await isClusterNode(server, deadlineMs))) {
      return await ClusterConnection.connect([server], url, deadlineMs)
    }
  } catch (error) {
    server.destroy()
    if (!(error instanceof RedisUnavailable)) throw error
    throw new RedisUnavailable(error.reason, { cause: server.failure })
  }
  return connectionTo(server, deadlineMs)
}

/** A connection to one server that is not a cluster. */
export const connectionTo = (server: RedisServer, deadlineMs: number): FoundRedis => ({
  isCluster: false,
  send: command => withDeadline(server.send(command), deadlineMs),
  dispatch: (command, departure) => server.dispatch(command, departure),
  transaction: commands => withDeadline(server.transaction(commands), deadlineMs),
  outages: async () => [await server.outage()],
  leave: () => server.leave(),
  close: () => server.destroy(),
})

/** Asks by CLUSTER INFO, which is an error on a Redis that is not a cluster. INFO is forbidden for users without @dangerous. */
export async function isClusterNode(server: RedisServer, deadlineMs: number): Promise<boolean> {
  try {
    const info = await withDeadline(server.send(['CLUSTER', 'INFO']), deadlineMs)
    return String(info).includes('cluster_state:')
  } catch (error) {
    if (error instanceof ErrorReply) return false
    throw error
  }
}
