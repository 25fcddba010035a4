/** What differs from deployment to deployment and does not belong in a file: secrets, and the origin's address. */
import type { Config } from './compile.ts'
import { ConfigError, type Mistake } from './config-error.ts'
import { ENVIRONMENT, isOriginUrl, isStoreUrl } from './forms.ts'

/** The binding of a data set, as far as it is used. */
export interface AnalyticsDataset {
  writeDataPoint(point: { indexes: string[]; blobs: string[]; doubles: number[] }): void
}

export interface Environment {
  /** Where the store is: `https://….upstash.io`, or the address of a REST bridge. */
  UPSTASH_REDIS_REST_URL?: string
  /** The token that goes with it. */
  UPSTASH_REDIS_REST_TOKEN?: string
  /** The origin. Default: `origin` in the config. */
  ORIGIN_URL?: string
  /** Which of several deployments this is. Default: `environment` in the config. */
  SLUICE_ENVIRONMENT?: string
  /** What machines of the origin show to push how busy they are (`shedding.workerUtilization`). Default: none can push. */
  SLUICE_UTILIZATION_SECRET?: string
  /** A data set of Workers Analytics Engine, bound in wrangler.toml: each request is a data point. Default: none. */
  SLUICE_ANALYTICS?: AnalyticsDataset
}

/** @throws ConfigError naming what is missing or wrong; never the token's value */
export function withEnvironment(config: Config, env: Environment): Config & { url: string; token: string } {
  const mistakes: Mistake[] = []
  const { UPSTASH_REDIS_REST_URL: url = '', UPSTASH_REDIS_REST_TOKEN: token = '' } = env
  const { ORIGIN_URL, SLUICE_ENVIRONMENT } = env
  if (!isStoreUrl(url.trim())) {
    // Never the value: what is pasted here by mistake is a redis:// URL with its password.
    const what = url ? 'is not an http or https URL without credentials' : 'is missing'
    mistakes.push({
      path: 'UPSTASH_REDIS_REST_URL',
      message: `${what}. Run: npx wrangler secret put UPSTASH_REDIS_REST_URL`,
    })
  }
  if (!token.trim()) {
    mistakes.push({
      path: 'UPSTASH_REDIS_REST_TOKEN',
      message: 'is missing. Run: npx wrangler secret put UPSTASH_REDIS_REST_TOKEN',
    })
  }
  if (ORIGIN_URL && !isOriginUrl(ORIGIN_URL)) {
    mistakes.push({
      path: 'ORIGIN_URL',
      message: 'is not an http or https URL without query or credentials.',
    })
  }
  if (SLUICE_ENVIRONMENT && !ENVIRONMENT.test(SLUICE_ENVIRONMENT)) {
    mistakes.push({
      path: 'SLUICE_ENVIRONMENT',
      message: "is not a name. Use 1 to 16 lower case letters and digits, as in 'live' or 'test'.",
    })
  }
  if (mistakes.length > 0) throw new ConfigError(mistakes)
  return {
    ...config,
    origin: ORIGIN_URL || config.origin,
    ...(SLUICE_ENVIRONMENT && { environment: SLUICE_ENVIRONMENT }),
    ...{ url: url.trim(), token: token.trim() },
  }
}
