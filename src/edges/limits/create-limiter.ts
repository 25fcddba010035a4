/** Limits by name, from a config and the environment: `createLimiter(config)`. */
import { SYSTEM_CLOCK } from '../../clock.ts'
import { checkedConfig } from '../../config/check/check.ts'
import type { ConfigInput } from '../../config/check/schema.ts'
import type { Environment } from '../../config/environment.ts'
import { createSwitchBoard } from '../../switches/live.ts'
import { storeOfEdge } from '../configured.ts'
import { environmentOf } from '../platform.ts'
import { type Limiter, type LimiterSettings, limiterOnStore } from './limiter.ts'

export interface CreateLimiterOptions extends LimiterSettings {
  /** Variables, where they are not those of the process: `env` of a Worker. */
  env?: Environment
}

/**
 * A limiter for the `limits` of a config. Its store is that of `UPSTASH_REDIS_REST_URL` and `UPSTASH_REDIS_REST_TOKEN`, its keys are
 * those of the config's `environment` (or of `SLUICE_ENVIRONMENT`): the same that the command line reads and resets. It follows the
 * live switches. One for a process, or for an isolate.
 *
 *     const limiter = createLimiter(config)
 *     const { allowed, retryAfterMs } = await limiter.limit('zendesk', { account: '42' })
 *
 * @throws ConfigError naming every mistake of the config and each variable that is missing
 */
export function createLimiter(
  config: ConfigInput,
  { env = environmentOf(), board = createSwitchBoard(SYSTEM_CLOCK), ...settings }: CreateLimiterOptions = {},
): Limiter {
  const deployed = storeOfEdge(checkedConfig(config), env)
  return limiterOnStore(deployed.config, deployed.store, { board, ...settings })
}
