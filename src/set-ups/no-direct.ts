/**
 * In place of src/node/redis-store/direct-store.ts where code has no connections of its own: Workers, browsers, and the edges of other
 * platforms. `#direct-store` in src/package.json (in the package: in package.json) chooses.
 */
import { ConfigError } from '../config/config-error.ts'
import type { AdminConnection } from '../store/admin-connection.ts'
import type { Store } from '../store/store.ts'
import type { RedisOption } from './redis-option.ts'

/** A direct connection. */
export interface DirectRedis {
  store: Store
  admin: AdminConnection
  /** Resolves when the calls in flight are answered. */
  close(): Promise<void>
}

export interface DirectStoreOptions {
  /** A URL (`redis://`, `rediss://`, `unix://`, `redis+cluster://`, `redis+sentinel://`), or a client that knows the address. */
  redis: RedisOption
  /** Of a call (ms). */
  deadlineMs: number
  environment: string | undefined
  cluster: boolean
}

/** @throws ConfigError always */
export function createDirectStore(_: DirectStoreOptions, path: string): DirectRedis {
  throw new ConfigError([{ path, message: NO_CONNECTIONS }])
}

const NO_CONNECTIONS =
  'needs a connection to Redis, which code on this platform does not have. Set UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN to those of a database at Upstash, or of `npx sluicegate bridge` in front of your Redis.'
