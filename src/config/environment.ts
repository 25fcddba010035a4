/** The settings that differ between deployments and come from variables: secrets, and the origin's address. */
import type { Config } from './compile.ts'
import { ConfigError, type Mistake } from './config-error.ts'
import { ENVIRONMENT, isOriginUrl, isStoreUrl } from './forms.ts'

/** The part of a Workers Analytics Engine binding that Sluice uses. */
export interface AnalyticsDataset {
  writeDataPoint(point: { indexes: string[]; blobs: string[]; doubles: number[] }): void
}

export interface StoreAddress {
  /** Where the store is: `https://….upstash.io`, or the address of a REST bridge. */
  UPSTASH_REDIS_REST_URL?: string
  /** The REST token of the store. */
  UPSTASH_REDIS_REST_TOKEN?: string
}

/** The variables and bindings that Sluice reads: the `env` of a Worker, or the environment of the process. */
export interface Environment extends StoreAddress {
  /** The URL of a Redis, for set-ups on Node, Bun and Deno (docs/deploy.md#your-own-redis). Those of the REST API come first. Default: none. */
  REDIS_URL?: string
  /** The origin. Default: `origin` in the config. */
  ORIGIN_URL?: string
  /** Which of several deployments this is. Default: `environment` in the config. */
  SLUICE_ENVIRONMENT?: string
  /**
   * The secret with which machines of the origin push their utilization (`shedding.workerUtilization`). Default: machines cannot
   * push.
   */
  SLUICE_UTILIZATION_SECRET?: string
  /**
   * The secrets that sign and check API keys (`credentials.apiKeys.signature`): `<id>:<secret>`, as `npx sluicegate keys secret` makes
   * it. Separate several with commas; the first one signs, and makes the digests of fields (`by: 'field:…'`), which count from 0 after a change of it.
   * Default: new keys are not signed.
   */
  SLUICE_KEY_SECRET?: string
  /** The secret for `GET /_sluice/metrics` (`metrics`), at least 16 characters. Default: the path does not exist. */
  SLUICE_METRICS_TOKEN?: string
  /** A data set of Workers Analytics Engine, bound in wrangler.toml: each request is a data point. Default: none. */
  SLUICE_ANALYTICS?: AnalyticsDataset
}

/** The config with the values of the environment. */
export type DeployedConfig<C = Config> = C & { origin: string; url: string; token: string }

/**
 * Adds the values of the environment to a config.
 * @throws ConfigError that lists the missing and invalid variables, without their values
 */
export function applyVariables<C extends { origin?: string | undefined }>(
  config: C,
  env: Environment,
): DeployedConfig<C> {
  const mistakes: Mistake[] = []
  const secretOf = (name: keyof StoreAddress, isValid: (text: string) => unknown) => {
    const text = env[name]?.trim() ?? ''
    // Leaves the value out, because a redis:// URL that was pasted by mistake contains the password.
    const what = text ? 'is not an http or https URL without credentials' : 'is missing'
    if (!isValid(text))
      mistakes.push({
        path: name,
        message: `${what}. On Workers: npx wrangler secret put ${name}; for wrangler dev: a line in .dev.vars${text && WHICH_URL}`,
      })
    return text
  }
  const url = secretOf('UPSTASH_REDIS_REST_URL', isStoreUrl)
  const token = secretOf('UPSTASH_REDIS_REST_TOKEN', text => text)
  return { ...applyOwnVariables(config, env, mistakes), url, token }
}

/** Only the URL can be wrong: any text is a token. */
const WHICH_URL = ', with the URL of Upstash or of a REST bridge'

/**
 * Adds those values to a config that do not belong to its store.
 * @param mistakes of other variables
 * @throws ConfigError as `applyVariables`
 */
export function applyOwnVariables<C extends { origin?: string | undefined }>(
  config: C,
  { ORIGIN_URL, SLUICE_ENVIRONMENT: environment }: Environment,
  mistakes: Mistake[] = [],
): C & { origin: string } {
  const report = (path: string, message: string) => mistakes.push({ path, message })
  const origin = ORIGIN_URL || config.origin
  if (!origin) report('origin', 'is missing. Set it in the config, or set the variable ORIGIN_URL.')
  if (ORIGIN_URL && !isOriginUrl(ORIGIN_URL))
    report('ORIGIN_URL', 'is not valid. Use an http or https URL without query or credentials.')
  if (environment && !ENVIRONMENT.test(environment))
    report('SLUICE_ENVIRONMENT', 'is not a valid name. Use 1 to 16 lowercase letters and digits.')
  if (mistakes.length > 0) throw new ConfigError(mistakes)
  return { ...config, ...(environment && { environment }), origin: origin! }
}
