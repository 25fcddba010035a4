/** The option `redis` of the set-ups that run the user's code: which store they use. */
import { ConfigError } from '../config/config-error.ts'
import type { Environment, StoreAddress } from '../config/environment.ts'

/** A client of `redis` (createClient, createCluster) or `ioredis` (Redis, Cluster). Its address is used, and not its connection. */
export interface RedisClientLike {
  // biome-ignore lint/suspicious/noExplicitAny: each library has options of its own.
  duplicate(...options: any[]): unknown
}

/** A client of @upstash/redis. Its URL and token are used, and neither its retries nor its pipelines. */
export interface UpstashClientLike {
  // biome-ignore lint/suspicious/noExplicitAny: of no interest here.
  createScript(...options: any[]): unknown
}

/**
 * The store, if it is not that of the variables: the URL of a Redis (`redis://`, `rediss://`, `unix://`, `redis+cluster://`,
 * `redis+sentinel://`), or the client that the app has already. Sluice connects by itself, and never closes that client.
 */
export type RedisOption = string | RedisClientLike | UpstashClientLike

/** Where the store of a set-up is. */
export type StoreSource =
  | { kind: 'rest'; variables: StoreAddress }
  | { kind: 'direct'; redis: RedisOption; path: 'redis' | 'REDIS_URL' }

/**
 * Chooses the store: the option, or else `UPSTASH_REDIS_REST_URL`, or else `REDIS_URL`, which is also the variable of the bridge.
 * @throws ConfigError for the URL of a REST API as the option
 */
export function storeSourceOf(redis: RedisOption | undefined, variables: Environment): StoreSource {
  if (redis === undefined) {
    const { UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN, REDIS_URL } = variables
    const usesRest = UPSTASH_REDIS_REST_URL || UPSTASH_REDIS_REST_TOKEN || !REDIS_URL
    return usesRest ? { kind: 'rest', variables } : { kind: 'direct', redis: REDIS_URL, path: 'REDIS_URL' }
  }
  if (typeof redis === 'string' && /^\s*https?:/i.test(redis))
    throw new ConfigError([{ path: 'redis', message: OF_REST }])
  const address = addressOfUpstash(redis)
  return address ? { kind: 'rest', variables: address } : { kind: 'direct', redis, path: 'redis' }
}

/** What a client of @upstash/redis 1 sends its requests to. */
function addressOfUpstash(redis: RedisOption): StoreAddress | undefined {
  const { baseUrl, headers } = Object(redis).client ?? {}
  const [, token] = /^Bearer (\S+)$/.exec(String(headers?.authorization ?? headers?.Authorization)) ?? []
  if (typeof baseUrl !== 'string' || !baseUrl || !token) return undefined
  return { UPSTASH_REDIS_REST_URL: baseUrl, UPSTASH_REDIS_REST_TOKEN: token }
}

const OF_REST =
  'is the URL of a REST API. Set UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN instead, or hand over a client of @upstash/redis.'
