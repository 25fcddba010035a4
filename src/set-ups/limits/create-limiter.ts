/** Creates limits by name from a config and the variables of the deployment. */
import { SYSTEM_CLOCK } from '../../clock.ts'
import { checkedConfig } from '../../config/check/check.ts'
import type { ConfigInput } from '../../config/check/schema.ts'
import type { Config } from '../../config/compile.ts'
import type { Environment } from '../../config/environment.ts'
import { createSwitchBoard } from '../../switches/live.ts'
import { environmentOf } from '../platform.ts'
import type { RedisOption } from '../redis-option.ts'
import { connectStore } from '../set-up-config.ts'
import { checkOptions } from './arguments.ts'
import type { Limiter } from './limiter.ts'
import { createLimiterOnStore, type StoreLimiterSettings } from './limiter-on-store.ts'

/** Options of `createLimiter`. All are optional. */
export interface CreateLimiterOptions extends StoreLimiterSettings {
  /** The variables, if they are not those of the process: `env` of a Worker. */
  env?: Environment
  /** The store, if it is not that of the variables: a URL, or the client that the app has already. */
  redis?: RedisOption
}

/**
 * Creates a limiter for the `limits` of a config. Create one for each process or isolate. Its store is that of `redis` or of the
 * variables. Its keys are those of the config's `environment` (or of
 * `SLUICE_ENVIRONMENT`). The command line reads and resets the same keys. The limiter follows the live switches.
 *
 *     const limiter = createLimiter(config)
 *     const { allowed, retryAfterMs } = await limiter.limit('zendesk', { account: '42' })
 *
 * @throws ConfigError naming every mistake of the config and each missing variable; TypeError for an unknown option
 */
export function createLimiter(config: ConfigInput, options: CreateLimiterOptions = {}): Limiter {
  checkOptions('createLimiter', options, LIMITER_OPTIONS)
  return createLimiterWithConfig(config, options).limiter
}

const LIMITER_OPTIONS = [
  ...['redis', 'env', 'waitUntil', 'awaitsCounters', 'variables'],
  ...['board', 'clock', 'log', 'scriptsOf'],
]

/** Creates a limiter as `createLimiter`, and returns the compiled limits with it. */
export function createLimiterWithConfig(
  config: ConfigInput,
  {
    env = environmentOf(),
    redis,
    board = createSwitchBoard(SYSTEM_CLOCK),
    ...settings
  }: CreateLimiterOptions = {},
): { limiter: Limiter; limits: Config['limits'] } {
  const deployed = connectStore(checkedConfig(config), env, redis)
  const limiter = createLimiterOnStore(deployed.config, deployed.store, {
    board,
    variables: { ...env },
    ...settings,
  })
  async function close(): Promise<void> {
    await limiter.close()
    await deployed.close()
  }
  return { limiter: { ...limiter, close }, limits: deployed.config.limits }
}
