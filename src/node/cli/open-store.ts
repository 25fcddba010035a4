/** The store of a command: over the REST protocol, or a Redis that the command connects to directly, as `serve` does. */
import { AdminError } from '../../ops/admin-error.ts'
import {
  type AdminStore,
  type AdminStoreOptions,
  createAdminStore,
  wholeStoreOn,
} from '../../ops/admin-store.ts'
import { restStore } from './arguments.ts'
import { atEnd } from './at-end.ts'

interface Flags {
  url?: string | undefined
  token?: string | undefined
}

/** The deadline of one call over a direct connection (ms), as over the REST protocol. */
const DEADLINE_MS = 5000

const REDIS_URL = /^(rediss?(\+(cluster|sentinel))?|unix):/i

/** @throws AdminError `usage` if no store is set; GatewayError ERR_CONFIG_INVALID if its URL is not valid */
export async function openAdminStore(
  flags: Flags,
  options: Omit<AdminStoreOptions, 'url' | 'token'>,
): Promise<AdminStore> {
  const url = redisUrlOf(flags)
  if (url === undefined) return createAdminStore({ ...restStore(flags), ...options })
  // Imported here, because a command with a REST store does without node-redis.
  const { connectRedisStore } = await import('../redis-store/redis-store.ts')
  const { environment } = options
  const { admin, close } = await connectRedisStore({ url, environment, deadlineMs: DEADLINE_MS })
  atEnd(close)
  return wholeStoreOn(admin, options)
}

/** Whether the environment names a store, for commands that also work without one. */
export function isStoreSet(): boolean {
  const { UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN } = process.env
  return redisUrlOf({}) !== undefined || Boolean(UPSTASH_REDIS_REST_URL && UPSTASH_REDIS_REST_TOKEN)
}

/** REDIS_URL is also the variable of the bridge, whose users set those of the REST protocol beside it: these are the store then. */
export function redisUrlOf({ url, token }: Flags): string | undefined {
  if (url !== undefined && REDIS_URL.test(url)) {
    if (token === undefined) return url
    throw new AdminError(
      'usage',
      '--token is for the URL of a REST API. The URL of a Redis has its password inside.',
    )
  }
  if (url !== undefined) return undefined
  const { REDIS_URL: direct, UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN } = process.env
  return token || UPSTASH_REDIS_REST_URL || UPSTASH_REDIS_REST_TOKEN ? undefined : direct || undefined
}
