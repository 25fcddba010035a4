/**
 * Hints how to set the store's variables in a shell, for set-ups that run in a process of their own. The gateway's Worker does not carry
 * this file: its hints are in environment.ts.
 */
import { ConfigError } from './config-error.ts'
import type { StoreAddress } from './environment.ts'

/** The hint for Workers in a message of environment.ts. */
const FOR_WORKERS = / On Workers: .*$/

const OWN = 'export REDIS_URL=redis://127.0.0.1:6379'

const HINTS: Record<keyof StoreAddress, string> = {
  UPSTASH_REDIS_REST_URL: `For a Redis of your own, set REDIS_URL in its place: ${OWN}. For a database at Upstash, set it to the REST URL: export UPSTASH_REDIS_REST_URL=https://….upstash.io`,
  UPSTASH_REDIS_REST_TOKEN:
    'With REDIS_URL it is not needed. Else set it to the REST token of the database: export UPSTASH_REDIS_REST_TOKEN=…',
}

/** Does not contain the value, because the URL of a Redis contains its password. */
const OF_REDIS = 'is the URL of a Redis server, not of its REST API. Unset it, and set REDIS_URL to that URL.'

/**
 * Replaces the hints for Workers in an error by hints for a shell.
 * @param error an error of `applyVariables`. Any other value is returned unchanged.
 * @param variables the variables that `applyVariables` was called with
 */
export function withHintsForNode<E>(error: E, variables: StoreAddress = {}): E | ConfigError {
  if (!(error instanceof ConfigError)) return error
  const mistakes = error.mistakes.map(mistake => {
    const { path, message } = mistake
    if (!isVariable(path) || !FOR_WORKERS.test(message)) return mistake
    if (/^\s*rediss?:/i.test(variables[path] ?? '') && path === 'UPSTASH_REDIS_REST_URL')
      return { path, message: OF_REDIS }
    return { path, message: message.replace(FOR_WORKERS, () => ` ${HINTS[path]}`) }
  })
  return mistakes.every((mistake, i) => mistake === error.mistakes[i]) ? error : new ConfigError(mistakes)
}

const isVariable = (path: string): path is keyof StoreAddress => Object.hasOwn(HINTS, path)
