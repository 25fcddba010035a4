/** What differs from deployment to deployment and does not belong in a file: secrets, and the origin's address. */
import type { Config } from './compile.ts'
import { ConfigError, type Mistake } from './config-error.ts'
import { ENVIRONMENT, isOriginUrl, isStoreUrl } from './forms.ts'

/** The binding of a data set, as far as it is used. */
export interface AnalyticsDataset {
  writeDataPoint(point: { indexes: string[]; blobs: string[]; doubles: number[] }): void
}

export interface StoreAddress {
  /** Where the store is: `https://….upstash.io`, or the address of a REST bridge. */
  UPSTASH_REDIS_REST_URL?: string
  /** The token that goes with it. */
  UPSTASH_REDIS_REST_TOKEN?: string
}

export interface Environment extends StoreAddress {
  /** The origin. Default: `origin` in the config. */
  ORIGIN_URL?: string
  /** Which of several deployments this is. Default: `environment` in the config. */
  SLUICE_ENVIRONMENT?: string
  /** What machines of the origin show to push how busy they are (`shedding.workerUtilization`). Default: none can push. */
  SLUICE_UTILIZATION_SECRET?: string
  /** A data set of Workers Analytics Engine, bound in wrangler.toml: each request is a data point. Default: none. */
  SLUICE_ANALYTICS?: AnalyticsDataset
}

/** The config, with what the environment adds. */
export type Deployed = Config & { origin: string; url: string; token: string }

/** @throws ConfigError naming what is missing or wrong; never the token's value */
export function withEnvironment(config: Config, env: Environment): Deployed {
  const mistakes: Mistake[] = []
  const { ORIGIN_URL, SLUICE_ENVIRONMENT: environment } = env
  const wrong = (path: string, message: string) => mistakes.push({ path, message })
  const secretOf = (name: keyof StoreAddress, isValid: (text: string) => unknown) => {
    const text = env[name]?.trim() ?? ''
    // Never the value: what is pasted here by mistake is a redis:// URL with its password.
    const what = text ? 'is not an http or https URL without credentials' : 'is missing'
    if (!isValid(text)) wrong(name, `${what}. On Workers: npx wrangler secret put ${name}`)
    return text
  }
  const url = secretOf('UPSTASH_REDIS_REST_URL', isStoreUrl)
  const token = secretOf('UPSTASH_REDIS_REST_TOKEN', text => text)
  const origin = ORIGIN_URL || config.origin
  if (!origin) wrong('origin', 'is missing. Set it in the config, or set the variable ORIGIN_URL.')
  if (ORIGIN_URL && !isOriginUrl(ORIGIN_URL))
    wrong('ORIGIN_URL', 'is not valid. Use an http or https URL without query or credentials.')
  if (environment && !ENVIRONMENT.test(environment))
    wrong('SLUICE_ENVIRONMENT', 'is not a valid name. Use 1 to 16 lowercase letters and digits.')
  if (mistakes.length > 0) throw new ConfigError(mistakes)
  return { ...config, ...(environment && { environment }), origin: origin!, url, token }
}
