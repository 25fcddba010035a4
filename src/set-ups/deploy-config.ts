/** Applies the variables of the deployment to a compiled config, and connects its store. */
import type { Config } from '../config/compile.ts'
import { applyOwnVariables, applyVariables, type Environment } from '../config/environment.ts'
import { absentStore } from '../store/absent.ts'
import type { Store } from '../store/store.ts'
import { upstashStore } from '../store/upstash.ts'

export type StoreConfig = Pick<
  Config,
  'storeDeadlineMs' | 'keyLocking' | 'cluster' | 'environment' | 'origin' | 'failOpen'
>

/** @throws ConfigError naming the variables that are missing or wrong. With `failOpen: 'unconfigured'`, those of the store may be */
export function deployConfig<C extends StoreConfig>(
  compiled: C,
  variables: Environment,
): { config: C & { origin: string }; store: Store } {
  try {
    const { url, token } = applyVariables(compiled, variables)
    const config = applyOwnVariables(compiled, variables)
    const { storeDeadlineMs: deadlineMs, keyLocking, cluster, environment } = config
    return { config, store: upstashStore({ url, token, deadlineMs, keyLocking, cluster, environment }) }
  } catch (error) {
    if (compiled.failOpen !== 'unconfigured') throw error
    return { config: applyOwnVariables(compiled, variables), store: absentStore(error as Error) }
  }
}
