/**
 * The store over a direct connection to Redis or Valkey, without HTTP: one server, a Redis Cluster, or the master of Sentinels. Used by
 * programs on Node; a Worker uses src/store/upstash.ts. All calls of the process share one connection to each server.
 */
import { GatewayError } from '../../errors.ts'
import type { AdminConnection, Command } from '../../store/admin-connection.ts'
import { type DeadlineClock, REAL_CLOCK } from '../../store/deadline.ts'
import { refusal } from '../../store/refusal.ts'
import type { Store } from '../../store/store.ts'
import { storeOn } from '../../store/store-on.ts'
import type { RestAnswer } from '../../store/upstash-client.ts'
import { ClusterConnection } from '../rest-bridge/cluster-connection.ts'
import type { FoundRedis } from '../rest-bridge/found-redis.ts'
import { connectionTo, isClusterNode } from '../rest-bridge/redis-connection.ts'
import { ErrorReply, RedisServer, withDeadline } from '../rest-bridge/redis-server.ts'
import { describeTlsFailure } from '../tls-failure.ts'
import { adminConnectionTo, textsIn } from './admin-connection.ts'
import { createLightController } from './light-controller.ts'
import { parseRedisUrl, type RedisTarget } from './redis-url.ts'
import { REMEDIES, sendCommands } from './send-commands.ts'
import { SentinelConnection } from './sentinel-connection.ts'

export interface RedisStoreOptions {
  /** A URL (redis-url.ts), or what it was read as, or a client was (client-target.ts). */
  url: string | RedisTarget
  /** The deadline of one call, including the second delivery after NOSCRIPT (ms). Default: 1000. */
  deadlineMs?: number
  /** The environment whose keys `store` accesses. */
  environment?: string | undefined
  /** The clock of the deadlines; tests pass their own. */
  clock?: DeadlineClock
  /** For connecting, for a PING, and until a silent connection is replaced (ms). Default: 2000; tests pass their own. */
  connectMs?: number
}

export interface RedisStore {
  store: Store
  /** The same Redis for administration. */
  admin: AdminConnection
  /** Sends commands as they are. @returns their answers in order @throws RedisUnavailable; ErrorReply if a transaction was not begun */
  send(commands: readonly Command[], isTransaction?: boolean): Promise<RestAnswer[]>
  /** Resolves if Redis answers: on a cluster, one of its masters. @throws GatewayError that says why it does not */
  ready(): Promise<void>
  /** Accepts no more calls, and closes the connections when the calls in flight are answered, or after `connectMs`. */
  close(): Promise<void>
}

/**
 * Connects to Redis or Valkey. If Redis does not answer, the store is returned as well: its calls fail until Redis answers, and `ready`
 * says why. Whether a URL `redis://` is that of a cluster is found out while connecting. If its node may be down then, use
 * `redis+cluster://`.
 * @throws GatewayError ERR_CONFIG_INVALID if the URL is not valid
 */
export async function connectRedisStore(options: RedisStoreOptions): Promise<RedisStore> {
  const { url, deadlineMs = 1000, environment, clock = REAL_CLOCK, connectMs = 2000 } = options
  // A connection must not be given up for silent while its calls may still wait.
  const redis = await open(url, Math.max(connectMs, deadlineMs))
  const store = storeOn({
    ...{ deadlineMs, environment, cluster: redis.isCluster },
    clock: { ...clock, createController: createLightController },
    send: (commands, deadline) => sendCommands(redis, commands, deadline),
    refusal: message => refusal(message, REMEDIES),
    textOf: ({ script }) => script.plain,
  })
  return {
    store,
    admin: adminConnectionTo(redis, store, connectMs),
    async send(commands, isTransaction) {
      const texts = commands.map(command => command.map(String))
      const replies = isTransaction
        ? await redis.transaction(texts)
        : await Promise.all(texts.map(text => redis.send(text).catch(errorReplyIn)))
      return replies.map(reply =>
        reply instanceof Error ? { error: reply.message } : { result: textsIn(reply) },
      )
    },
    async ready() {
      const outages = await redis.outages()
      const [outage] = outages
      if (!outage || outages.some(outage => !outage)) return
      const { address, reason, status } = outage
      throw new GatewayError(READY_CODES[status], `${address} ${reason}.${fixOf(reason)}`)
    },
    close: () => redis.leave(),
  }
}

/** @throws unless it is an error of Redis */
function errorReplyIn(error: unknown): ErrorReply {
  if (error instanceof ErrorReply) return error
  throw error
}

/** What to do about an outage, if that is known. */
function fixOf(reason: string): string {
  const fix = WRONG_CREDENTIALS.test(reason)
    ? REMEDIES.credentials
    : describeTlsFailure(reason, false)?.join(' ')
  return fix ? ` ${fix}` : ''
}

const WRONG_CREDENTIALS = /\b(WRONGPASS|NOAUTH)\b/

const READY_CODES = {
  400: 'ERR_STORE_REFUSED',
  503: 'ERR_STORE_UNREACHABLE',
  504: 'ERR_STORE_TIMEOUT',
} as const

/** Resolves when the first attempt to connect has ended, well or not. */
async function open(url: string | RedisTarget, connectMs: number): Promise<FoundRedis> {
  const target = typeof url === 'string' ? parseRedisUrl(url) : url
  if (target.kind === 'sentinel') {
    const sentinel = new SentinelConnection(target, connectMs)
    await withDeadline(sentinel.firstAttempt(), connectMs).catch(() => {})
    return sentinel
  }
  const servers = target.urls.map(url => new RedisServer(url, connectMs, target.tls))
  const attempts = Promise.all(servers.map(({ firstAttempt }) => firstAttempt))
  await withDeadline(attempts, connectMs).catch(() => {})
  const isCluster = target.kind === 'cluster' || (await isNodeOfCluster(servers[0]!, connectMs))
  if (!isCluster) return connectionTo(servers[0]!, connectMs)
  return await ClusterConnection.open(servers, target.urls[0]!, connectMs, target.tls)
}

/** The nodes of a cluster know each other by host and port, so a cluster is never reached over a socket. */
const isNodeOfCluster = async (server: RedisServer, deadlineMs: number) =>
  server.host !== '' && (await isClusterNode(server, deadlineMs).catch(() => false))
