/** The store of `sluicegate serve`: a Redis that it connects to directly, or one over the REST protocol of Upstash. */
import { scryptSync } from 'node:crypto'
import type { Config } from '../../config/compile.ts'
import { ConfigError } from '../../config/config-error.ts'
import { applyOwnVariables, type Environment } from '../../config/environment.ts'
import { withHintsForNode } from '../../config/environment-hints.ts'
import { AdminError } from '../../ops/admin-error.ts'
import { deployConfig, type StoreConfig } from '../../set-ups/deploy-config.ts'
import type { AdminConnection } from '../../store/admin-connection.ts'
import type { Store } from '../../store/store.ts'

/** The variables of `serve`. */
export interface ServeVariables extends Environment {
  /** The URL of a Redis. */
  REDIS_URL?: string
}

export interface ServeStore {
  store: Store
  /** Absent: the API uses the REST protocol, as on Workers. */
  admin?: AdminConnection
  /** From which receipts of the API get their key. Undefined: nothing secret is known about the store. */
  secret?: string
  /** Rejects with an error that says more than that of a ping why Redis does not answer. */
  ready?(): Promise<void>
  close(): Promise<void>
}

/** @throws AdminError `usage` if two stores are set; without `failOpen: 'unconfigured'`, also if none is */
export function storeKindOf(
  { REDIS_URL, UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN }: ServeVariables,
  { failOpen }: Pick<Config, 'failOpen'> = {},
) {
  if (REDIS_URL && (UPSTASH_REDIS_REST_URL || UPSTASH_REDIS_REST_TOKEN))
    throw new AdminError('usage', TWO_STORES)
  if (REDIS_URL) return 'redis'
  if (UPSTASH_REDIS_REST_URL || UPSTASH_REDIS_REST_TOKEN || failOpen === 'unconfigured') return 'rest'
  throw new AdminError('usage', NO_STORE)
}

const TWO_STORES =
  'Two stores are set. Unset either REDIS_URL, or UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN.'

const NO_STORE =
  'No store is set. Set REDIS_URL to the URL of a Redis, as in redis://user:password@10.0.0.5:6379, or UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN to those of a database at Upstash.'

/** @throws AdminError as `storeKindOf`; ConfigError about variables that are missing or not valid */
export function checkVariables(config: Config, variables: ServeVariables): void {
  try {
    if (storeKindOf(variables, config) === 'redis') applyOwnVariables(config, variables)
    else deployConfig(config, variables)
  } catch (error) {
    throw withHintsForNode(error, variables)
  }
  if ((variables.ORIGIN_URL || config.origin) === 'route')
    throw new ConfigError([{ path: 'origin', message: ROUTE }])
}

const ROUTE =
  "is 'route', which only Workers have. Set it to the URL of your API, or set the variable ORIGIN_URL."

/**
 * Connects to the store. While the store does not answer, the fallbacks of the config decide.
 * @throws AdminError as `storeKindOf`; ConfigError about variables, or about a cluster that the config does not name
 */
export async function connectServeStore(config: StoreConfig, variables: ServeVariables): Promise<ServeStore> {
  if (storeKindOf(variables, config) === 'redis') return await connectToRedis(config, variables.REDIS_URL!)
  const { store } = deployConfig(config, variables)
  const token = variables.UPSTASH_REDIS_REST_TOKEN?.trim()
  return { store, ...(token && { secret: token }), close: async () => {} }
}

async function connectToRedis(config: StoreConfig, url: string): Promise<ServeStore> {
  const { storeDeadlineMs: deadlineMs, environment, cluster } = config
  // Imported here, because a server with a store at Upstash does without node-redis.
  const { connectRedisStore } = await import('../redis-store/redis-store.ts')
  const { store, admin, ready, close } = await connectRedisStore({ url, deadlineMs, environment })
  if (store.isCluster && !cluster) {
    await close()
    throw new ConfigError([{ path: 'store.cluster', message: CLUSTER }])
  }
  const password = passwordIn(url)
  return { store, admin, ready, close, ...(password !== undefined && { secret: stretched(password) }) }
}

const CLUSTER = 'is not set, but REDIS_URL leads to a Redis Cluster. Add store: { cluster: true }.'

/** The password in a URL of redis-url.ts. */
function passwordIn(url: string): string | undefined {
  const [, inAuthority, inQuery] = /^[^/]+:\/\/[^@/?#:]*:([^@/?#]+)@|[?&]password=([^&]+)/.exec(url) ?? []
  return inAuthority ?? inQuery
}

/** Receipts show a digest of it, so that each guess at a password that people have chosen takes about 50 ms. */
const stretched = (password: string) => scryptSync(password, 'sluice:receipts', 32).toString('hex')
