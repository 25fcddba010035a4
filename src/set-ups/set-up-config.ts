/** Checks the config of a set-up, and connects it to its store. */
import { createDirectStore } from '#direct-store'
import { checkedConfig } from '../config/check/check.ts'
import { isPlainObject } from '../config/check/plain.ts'
import type { ConfigInput } from '../config/check/schema.ts'
import type { Config } from '../config/compile.ts'
import { applyOwnVariables, type Environment } from '../config/environment.ts'
import { withHintsForNode } from '../config/environment-hints.ts'
import type { AdminConnection } from '../store/admin-connection.ts'
import type { Store } from '../store/store.ts'
import { deployConfig } from './deploy-config.ts'
import { isCloudflare } from './platform.ts'
import { type RedisOption, storeSourceOf } from './redis-option.ts'

/**
 * Checks and compiles the config of a set-up that runs the user's code.
 *
 * @throws ConfigError naming every mistake: place, value and fix
 */
export function checkSetUpConfig(input: ConfigInput): Config {
  return checkedConfig(isCloudflare() ? input : withPeerAddress(input))
}

/**
 * Outside Cloudflare, `address.from` defaults to the connection: a client could write the header that
 * Cloudflare sets. Drops `trustedWorkers`, because no Worker calls through a binding.
 */
function withPeerAddress(input: ConfigInput): ConfigInput {
  // The check reports anything that is not a config.
  if (!isPlainObject(input) || input.address?.from) return input
  const { trustedWorkers: _, ...address } = input.address ?? {}
  return { ...input, address: { ...address, from: 'peer' } }
}

/**
 * Applies the variables of the deployment to a config, and connects its store.
 *
 * @param redis the store, if it is not that of the variables
 * @throws ConfigError naming the variables that are missing or wrong, or `redis`
 */
export function connectStore(config: Config, variables: Environment, redis?: RedisOption): ConnectedStore {
  // Nothing is proxied, so an origin is not needed.
  const compiled = { ...config, origin: 'route' }
  const source = storeSourceOf(redis, variables)
  if (source.kind === 'direct') {
    const deployed = applyOwnVariables(compiled, variables)
    const { storeDeadlineMs: deadlineMs, cluster, environment } = deployed
    const direct = createDirectStore({ redis: source.redis, deadlineMs, cluster, environment }, source.path)
    return { config: deployed, ...direct }
  }
  try {
    const { UPSTASH_REDIS_REST_URL: url = '', UPSTASH_REDIS_REST_TOKEN: token = '' } = source.variables
    return {
      ...deployConfig(compiled, { ...variables, ...source.variables }),
      address: { url: url.trim(), token: token.trim() },
      close: async () => {},
    }
  } catch (error) {
    throw isCloudflare() ? error : withHintsForNode(error, variables)
  }
}

export interface ConnectedStore {
  config: Config
  store: Store
  /** The same Redis for administration, if the connection is direct. */
  admin?: AdminConnection
  /** Of the REST API, if it is not. */
  address?: { url: string; token: string }
  /** Closes the connection to the store, if there is one. Later calls open it again. */
  close(): Promise<void>
}
