/** The error for a config file that cannot be loaded: the file, the line if it is known, and what is wrong there. */
import { existsSync, readdirSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { didYouMean } from '../config/check/did-you-mean.ts'

export class ConfigFileError extends Error {
  /** The file, and the line if it is known. */
  readonly place: string
  readonly reason: string

  constructor(place: string, reason: string) {
    super(`${place}: ${reason}`)
    this.place = place
    this.reason = reason
  }
}

/** Thrown by `process.exit` while a config file is loaded. */
export class ExitError extends Error {
  constructor() {
    super('The file never finishes loading: it calls process.exit. Throw an error instead.')
  }
}

const NEEDS_NEWER_NODE = `Node ${process.versions.node} cannot read TypeScript. Use Node 22.18 or newer.`

/**
 * @param error the error that the import of the file has thrown
 * @param file the config file; the error can also be in a file that it imports
 */
export function configFileError(error: unknown, file: string): ConfigFileError {
  if (hasCode(error, 'ERR_UNKNOWN_FILE_EXTENSION')) return new ConfigFileError(file, NEEDS_NEWER_NODE)
  // Node uses the same code if the config file exists, and imports a file that does not exist.
  if (hasCode(error, 'ERR_MODULE_NOT_FOUND') && !existsSync(file))
    return new ConfigFileError(file, `There is no such file.${similarTo(file) || ' Check the path.'}`)
  if (hasCode(error, 'ERR_UNSUPPORTED_DIR_IMPORT') && isFolder(file))
    return new ConfigFileError(
      file,
      `This is a folder. Name the config file, such as ${join(file, 'sluice.config.ts')}.`,
    )
  const place = placeOf(error, file)
  return new ConfigFileError(place.text, describe(error, place.file))
}

const isFolder = (path: string) => statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false

/** ` Did you mean 'sluice.config.ts'?`, from the other files of the folder. */
function similarTo(file: string): string {
  const folder = dirname(file)
  return isFolder(folder) ? didYouMean(basename(file), readdirSync(folder)) : ''
}

const hasCode = (error: unknown, code: string) => (error as { code?: unknown } | undefined)?.code === code

/** If package.json says that its files are CommonJS, Node fails at the first import or export in the file. */
function isReadAsCommonJs(error: unknown): boolean {
  return (
    error instanceof SyntaxError &&
    /^(Cannot use import statement outside a module|Unexpected token 'export')$/.test(error.message)
  )
}

function describe(error: unknown, file: string): string {
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof ExitError) return message
  if (isReadAsCommonJs(error)) return commonJsMessage(message, file)
  const [, what] = /^Cannot find (package '[^']+') imported from /.exec(message) ?? []
  if (what !== undefined) return `There is no ${what}. Install it, or correct the import.`
  const [, module] = /^Cannot find module '([^']+)' imported from /.exec(message) ?? []
  if (module !== undefined) return `There is no file ${module}. Correct the import.`
  if (error instanceof SyntaxError) return `The file cannot be parsed: ${message}`
  return `The file throws an error: ${message}`
}

function commonJsMessage(message: string, file: string): string {
  const name = basename(file)
  const renamed = name.replace(/\.c?([jt])s$/, '.m$1s')
  return `${message}. Node reads this file as CommonJS. Rename it to ${renamed}, or add "type": "module" to package.json.`
}

/**
 * The stack of a syntax error begins with the file and the line. The stack of any other error lists the functions that were called, and
 * the config is in one of its lines.
 */
function placeOf(error: unknown, file: string): { text: string; file: string } {
  const stack = error instanceof Error ? (error.stack ?? '') : ''
  const [, url, line] = /^((?:file:|\/|[A-Za-z]:[\\/]).*?\.[cm]?[jt]s)(?:\?\S*)?:(\d+)\n/.exec(stack) ?? []
  if (url !== undefined) {
    const path = url.startsWith('file:') ? fileURLToPath(url) : url
    // For the config file, the path as the user wrote it.
    const named = basename(path) === basename(file) ? file : path
    return { text: `${named}:${line}`, file: named }
  }
  const name = basename(file).replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')
  const frame = new RegExp(`${name}(?:\\?read=\\d+)?:(\\d+)`).exec(stack)?.[1]
  return { text: frame === undefined ? file : `${file}:${frame}`, file }
}
