/** Imports a config file, for the commands and for `npm start`, which imports it again after each change. */
import { syncBuiltinESMExports } from 'node:module'
import { pathToFileURL } from 'node:url'
import { ConfigFileError, configFileError, ExitError } from './config-file-error.ts'

/** How long a config may take to load, if something else keeps the process running. A process without any other work ends at once. */
const DEADLINE_MS = 30_000

const UNFINISHED =
  'The file never finishes loading: it awaits something that does not end. Look for an await at its top level, also in the files that it imports, and remove it.'

const { exit } = process

/**
 * @param query as in `?read=2`, to import a file that has changed
 * @returns the module. Not its default export: if that is a promise by mistake, returning it would await it, and the Worker does not.
 * @throws ConfigFileError also for a file that never finishes loading, or that tries to end the process
 */
export async function importConfig(
  file: string,
  query = '',
  deadlineMs = DEADLINE_MS,
): Promise<{ default?: unknown }> {
  const { promise: stuck, reject } = Promise.withResolvers<never>()
  const stop = () => reject(new ConfigFileError(file, UNFINISHED))
  const timer = setTimeout(stop, deadlineMs).unref()
  process.once('beforeExit', stop)
  replaceExit(() => {
    throw new ExitError()
  })
  try {
    return await Promise.race([import(pathToFileURL(file).href + query), stuck])
  } catch (error) {
    throw error instanceof ConfigFileError ? error : configFileError(error, file)
  } finally {
    replaceExit(exit)
    process.off('beforeExit', stop)
    clearTimeout(timer)
  }
}

/** Without it, a command would end before its work, with the exit code that the file chooses. */
function replaceExit(replacement: typeof process.exit): void {
  process.exit = replacement
  // For `import { exit } from 'node:process'`.
  syncBuiltinESMExports()
}
