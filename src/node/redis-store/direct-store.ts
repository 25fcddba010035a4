/**
 * The store of a set-up that connects to Redis itself. Set-ups are created at once, so the store opens its connection while they begin.
 * `#direct-store` in src/package.json (in the package: in package.json) chooses between this file and src/set-ups/no-direct.ts.
 */
import { ConfigError } from '../../config/config-error.ts'
import { GatewayError } from '../../errors.ts'
import type { DirectRedis, DirectStoreOptions } from '../../set-ups/no-direct.ts'
import { type DeadlineClock, startDeadline } from '../../store/deadline.ts'
import type { Store } from '../../store/store.ts'
import { targetOfClient } from './client-target.ts'
import { parseRedisUrl } from './redis-url.ts'

/**
 * Checks the address.
 * @returns opens the connection. It resolves also if Redis does not answer: calls fail until it does
 * @throws GatewayError ERR_CONFIG_INVALID
 */
export type OpenDirect = (options: DirectStoreOptions) => () => Promise<DirectRedis>

const openDirect: OpenDirect = ({ redis, cluster, ...options }) => {
  const url = typeof redis === 'string' ? parseRedisUrl(redis) : targetOfClient(redis, options.environment)
  if (url.kind === 'cluster' && !cluster) throw new GatewayError('ERR_CONFIG_INVALID', IS_CLUSTER)
  // Imported when it is needed, because an app with a store at Upstash does without node-redis.
  return () =>
    import('./redis-store.ts').then(({ connectRedisStore }) => connectRedisStore({ url, ...options }))
}

/**
 * Creates the store, and begins to connect.
 * @param path of the setting, for errors: `redis` or `REDIS_URL`
 * @param clock of the deadlines; tests pass their own
 * @throws ConfigError if the address cannot be used
 */
export function createDirectStore(
  options: DirectStoreOptions,
  path: string,
  clock?: DeadlineClock,
  openWith: OpenDirect = openDirect,
): DirectRedis {
  const open = checkedBy(openWith, options, path)
  let direct: DirectRedis | undefined
  let opening: Promise<DirectRedis> | undefined

  async function openOnce(): Promise<DirectRedis> {
    const opened = await open()
    if (opened.store.isCluster && !options.cluster) {
      await opened.close()
      throw new GatewayError('ERR_STORE_REFUSED', IS_CLUSTER)
    }
    return opened
  }

  /** The connection, or a new one after `close`. */
  function connected(): Promise<DirectRedis> {
    if (opening) return opening
    const attempt = openOnce()
    opening = attempt
    const keep = (opened: DirectRedis) => {
      if (opening === attempt) direct = opened
    }
    // It only fails for a mistake of the set-up, so it is not tried again.
    attempt.then(keep, () => {})
    return attempt
  }

  /** While it is opened, calls wait for it as long as for an answer. */
  async function inTime(): Promise<DirectRedis> {
    const deadline = startDeadline(options.deadlineMs, clock)
    const { promise: late, reject } = Promise.withResolvers<never>()
    deadline.signal.addEventListener('abort', () => {
      const { code, message } = deadline.failure()!
      reject(new GatewayError(code, message, { fate: 'not-sent' }))
    })
    try {
      return await Promise.race([connected(), late])
    } finally {
      deadline.end()
    }
  }

  void connected()
  const admin = async () => direct?.admin ?? (await connected()).admin
  const store: Store = {
    isCluster: options.cluster,
    run: async (calls, listener) => await (direct ?? (await inTime())).store.run(calls, listener),
    ping: async () => await (direct ?? (await inTime())).store.ping(),
  }
  return {
    store,
    admin: {
      run: async (...command) => await (await admin()).run(...command),
      runEach: async commands => await (await admin()).runEach(commands),
      transact: async commands => await (await admin()).transact(commands),
      decisions: store,
      nextStepFor: message => direct?.admin.nextStepFor(message) ?? '',
    },
    async close() {
      const last = opening
      opening = undefined
      direct = undefined
      await (await last?.catch(() => undefined))?.close()
    },
  }
}

function checkedBy(
  open: OpenDirect,
  options: Parameters<OpenDirect>[0],
  path: string,
): ReturnType<OpenDirect> {
  try {
    return open(options)
  } catch (error) {
    throw error instanceof GatewayError ? new ConfigError([{ path, message: error.message }]) : error
  }
}

const IS_CLUSTER = 'The store is a Redis Cluster. Add store: { cluster: true } to the config.'
