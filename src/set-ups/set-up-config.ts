/** Checks the config of a set-up, and connects it to its store. */
import { checkedConfig } from '../config/check/check.ts'
import { isPlainObject } from '../config/check/plain.ts'
import type { ConfigInput } from '../config/check/schema.ts'
import type { Config } from '../config/compile.ts'
import type { Environment } from '../config/environment.ts'
import { withHintsForNode } from '../config/environment-hints.ts'
import type { Store } from '../store/store.ts'
import { deployConfig } from './deploy-config.ts'
import { isCloudflare } from './platform.ts'

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
 * @throws ConfigError naming the variables that are missing or wrong
 */
export function connectStore(config: Config, variables: Environment): { config: Config; store: Store } {
  try {
    // Nothing is proxied, so an origin is not needed.
    return deployConfig({ ...config, origin: 'route' }, variables)
  } catch (error) {
    throw isCloudflare() ? error : withHintsForNode(error, variables)
  }
}
