/** Applies the variables of the deployment to a compiled config, and connects its store. */
import type { Config } from '../config/compile.ts'
import { applyVariables, type DeployedConfig, type Environment } from '../config/environment.ts'
import type { Store } from '../store/store.ts'
import { upstashStore } from '../store/upstash.ts'

/** @throws ConfigError naming the variables that are missing or wrong */
export function deployConfig(
  compiled: Config,
  variables: Environment,
): { config: Omit<DeployedConfig, 'url' | 'token'>; store: Store } {
  const { url, token, ...config } = applyVariables(compiled, variables)
  const { storeDeadlineMs: deadlineMs, keyLocking, cluster, environment } = config
  return { config, store: upstashStore({ url, token, deadlineMs, keyLocking, cluster, environment }) }
}
