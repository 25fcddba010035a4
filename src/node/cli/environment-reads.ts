/** Which variables of the environment a config file reads while it is loaded: the Worker does not have them. */
import { syncBuiltinESMExports } from 'node:module'
import { fileURLToPath } from 'node:url'
import type { Warning } from '../../config/check/warnings.ts'

/**
 * Loads a module, and notes the variables that it and the files of its project read from `process.env`. Reads by installed
 * packages are ignored.
 */
export async function noteEnvironmentReads<T>(
  load: () => Promise<T>,
): Promise<{ loaded: T; reads: string[] }> {
  const environment = process.env
  const reads = new Set<string>()
  const note = (name: string | symbol) => {
    if (typeof name === 'string' && isReadByProject()) reads.add(name)
  }
  process.env = new Proxy(environment, {
    get(target, name) {
      note(name)
      return Reflect.get(target, name)
    },
    has(target, name) {
      note(name)
      return Reflect.has(target, name)
    },
  })
  // For `import { env } from 'node:process'`.
  syncBuiltinESMExports()
  try {
    return { loaded: await load(), reads: [...reads] }
  } finally {
    process.env = environment
    syncBuiltinESMExports()
  }
}

const THIS_FILE = fileURLToPath(import.meta.url)

/** Whether a file of the project reads the variable. The nearest file on the stack decides. */
function isReadByProject(): boolean {
  const stack = new Error().stack?.split('\n').slice(1) ?? []
  const nearest = stack.find(
    line => !line.includes(THIS_FILE) && !line.includes('environment-reads.') && /[\\/]/.test(line),
  )
  return nearest !== undefined && !/node_modules|\(?node:/.test(nearest)
}

/** The warning that users see about one such variable. */
export function environmentWarning(name: string): Warning {
  const own = ELSEWHERE.get(name)
  const fix = own
    ? `Do not read it in the config: ${own}`
    : 'Write the value into the config, or import it from a file of the project.'
  return {
    path: `process.env.${name}`,
    message: `the config reads this variable. The Worker does not have the variables of your shell, so it may use another value than the one that was checked here. ${fix}`,
  }
}

/** Variables that the Worker reads by itself. */
const ELSEWHERE: ReadonlyMap<string, string> = new Map([
  ['ORIGIN_URL', 'the Worker reads this variable itself, as an override of origin.'],
  ['SLUICE_ENVIRONMENT', 'the Worker reads this variable itself, as an override of environment.'],
])
