/**
 * The REST bridge: Upstash's HTTP protocol in front of any Redis or Valkey, or a cluster of them, for development,
 * for tests, and in production for those who host their own. It keeps the protocol's paths, status codes and error
 * shapes, so that @upstash/redis cannot tell the difference.
 *
 *     POST /            ["GET", "key"]                   → {"result": …}  or 400 {"error": …}
 *     GET  /get/key     the same in the path; a body is its last argument
 *     POST /pipeline    [["GET", "a"], ["GET", "b"]]     → [{"result": …}, {"error": …}]
 *     POST /multi-exec  the same, as one transaction
 *     GET  /health      without a token              → 200 {"status":"ok"} or 503 {"status":"unavailable"}
 *
 * 401 without the token, 405 for other methods, 413 above the size limit, 503 and 504 when Redis is gone or slow.
 */
import { timingSafeEqual } from 'node:crypto'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { NO_PERMISSION } from '../../store/refusal.ts'
import { createBridgeListener } from './bridge-listener.ts'
import { RedisCommands } from './redis-commands.ts'
import { connectRedis, ErrorReply, RedisUnavailable } from './redis-connection.ts'
import { textOf } from './redis-server.ts'
import { watchRedis } from './watch-redis.ts'

export interface BridgeOptions {
  /** `redis://`, `rediss://` or `unix:///path/to/socket`; of a cluster, that of any node */
  redisUrl: string
  token: string
  /** 0: any free one. */
  port: number
  /** Default 127.0.0.1: this machine only. */
  host?: string
  /** For one command, until Redis' answer (default 2000). */
  deadlineMs?: number
  /** Default 10 MB, as Upstash. */
  maxRequestBytes?: number
  /** Called with a message when Redis stops answering, and again when it answers. */
  log?: (line: string) => void
  /** Called when Redis answers again. Needs `log`. */
  onRedisBack?: () => void
  /** Compares the bytes of a presented token with those of the valid token, in constant time. Tests and benchmarks count the calls. */
  isEqual?: typeof timingSafeEqual
  /** Between two checks of Redis; tests pass their own. */
  pause?: (ms: number) => Promise<void>
  /** The time (ms) by which an answer of /health is old. Default `performance.now`. */
  now?: () => number
}

export interface Bridge {
  url: string
  port: number
  /** Redis is a cluster. */
  isCluster: boolean
  close(): Promise<void>
}

/** @throws when Redis does not answer, or the port is taken (code EADDRINUSE) */
export async function startBridge(options: BridgeOptions): Promise<Bridge> {
  const { redisUrl, port, host = '127.0.0.1', deadlineMs = 2000, maxRequestBytes = 10e6 } = options
  const { isEqual = timingSafeEqual, log, onRedisBack, pause, now = () => performance.now() } = options
  // HTTP removes white space around a header, so a token that was read from a file with a line break could not be presented.
  const token = options.token.trim()
  if (!token)
    throw new TypeError(
      'The bridge needs a token. Without one, anyone who reaches it could read and change the data.',
    )

  const redis = await connectRedis(redisUrl, deadlineMs).catch(error => {
    throw startError(error, redisUrl, deadlineMs)
  })
  const commands = new RedisCommands(redis)
  // A cluster that lacks a node serves the keys of the others.
  const isHealthy = onceInAWhile(now, async () => (await redis.outages()).some(outage => !outage))
  const listener = createBridgeListener({ commands, isHealthy, token, isEqual, maxRequestBytes })
  // A second Authorization header makes the token invalid. By default, Node would drop it.
  const server = createServer({ joinDuplicateHeaders: true }, listener)
  // Longer than any client keeps an idle connection, so that the server never closes a connection on which a request is on its way.
  server.keepAliveTimeout = 120_000
  await listen(server, port, host).catch(error => {
    redis.close()
    throw error
  })

  const endWatch =
    log && watchRedis(redis, log, { ...(onRedisBack && { onBack: onRedisBack }), ...(pause && { pause }) })

  const taken = (server.address() as AddressInfo).port
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${taken}`,
    port: taken,
    isCluster: redis.isCluster,
    async close() {
      endWatch?.()
      const closed = new Promise(resolve => server.close(resolve))
      server.closeAllConnections()
      await closed
      redis.close()
    },
  }
}

/** The error codes of Node for a certificate whose authority it does not know. */
const UNKNOWN_AUTHORITY = /^(DEPTH_ZERO_)?SELF_SIGNED_CERT|^UNABLE_TO_(GET_ISSUER_CERT|VERIFY_LEAF_SIGNATURE)/

/** The error for a Redis that cannot be used when the bridge starts. */
function startError(error: unknown, redisUrl: string, deadlineMs: number): unknown {
  const { host, pathname } = new URL(redisUrl)
  const address = host || pathname
  if (error instanceof ErrorReply) {
    const page = NO_PERMISSION.test(error.message)
      ? ' docs/deploy.md#your-own-redis lists the permissions that Sluice needs.'
      : ''
    return new Error(`Redis at ${address} answered with an error: ${textOf(error)}.${page}`)
  }
  if (!(error instanceof RedisUnavailable)) return error
  const cause = error.cause as NodeJS.ErrnoException | undefined
  const why = cause ? textOf(cause) : `no reply within ${deadlineMs / 1e3} s`
  const fix = UNKNOWN_AUTHORITY.test(cause?.code ?? '')
    ? 'If you trust the authority that signed its certificate, set NODE_EXTRA_CA_CERTS to the file with the certificate of that authority.'
    : 'Check that it is running, and check the URL in --redis or REDIS_URL.'
  return new Error(`Redis did not answer at ${address}: ${why}. ${fix}`)
}

const HEALTH_MS = 1000

/** Anyone can request /health, so the bridge asks Redis at most once a second. */
function onceInAWhile<T>(now: () => number, findOut: () => Promise<T>): () => Promise<T> {
  let known: { at: number; answer: Promise<T> } | undefined
  return () => {
    if (!known || now() - known.at > HEALTH_MS) known = { at: now(), answer: findOut() }
    return known.answer
  }
}

function listen(server: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, () => {
      server.off('error', reject)
      resolve()
    })
  })
}
