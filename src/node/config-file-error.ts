/** The error for a config file that cannot be loaded: the file, the line if it is known, and what is wrong there. */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
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
  if (hasCode(error, 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX')) return `${message}. ${ONLY_TYPES}`
  const [, name] = /^(?:Cannot find package|Package import specifier) ['"]([^'"]+)['"]/.exec(message) ?? []
  if (name !== undefined)
    return `There is no package '${name}'. ${isAlias(name, file) ? ALIAS : 'Install it, or correct the import.'}`
  const [, folder] = /^Directory import '([^']+)' is not supported/.exec(message) ?? []
  if (folder !== undefined) return `${folder} is a folder. ${fileMeant(folder) ?? 'Import a file.'}`
  const [, module] = /^Cannot find module '([^']+)' imported from /.exec(message) ?? []
  if (module !== undefined) return `There is no file ${module}. ${fileMeant(module) ?? 'Correct the import.'}`
  if (error instanceof SyntaxError) return `The file cannot be parsed: ${message}`
  return `The file throws an error: ${message}`
}

const ONLY_TYPES =
  "Node removes types, and runs what is left. In place of an enum, write an object: const Plan = { free: 'free', pro: 'pro' } as const."

const ALIAS =
  "It looks like an alias, and Node reads none from tsconfig.json. Write the relative path of the file with its extension, as in './limits.ts'."

/** Whether a name, of which there is no package, is one of those that bundlers and tsconfig.json often give to a folder. */
function isAlias(name: string, file: string): boolean {
  const [first] = name.split('/')
  if (/^(?:[@~]|src|#.*)$/.test(first!)) return true
  const settings = join(dirname(file), 'tsconfig.json')
  if (!existsSync(settings)) return false
  const text = readFileSync(settings, 'utf8')
  return text.includes('"paths"') && (text.includes(`"${first}/`) || text.includes(`"${first}"`))
}

/** The file that an import means: TypeScript and bundlers also find one without its extension, with that of JavaScript, or in a folder. */
function fileMeant(path: string): string | undefined {
  const bare = path.replace(/\.[cm]?js$/, '')
  const candidates = [bare, join(path, 'index')].flatMap(start => EXTENSIONS.map(each => start + each))
  const found = candidates.find(each => existsSync(each))
  return (
    found && `Node imports files by their whole names: write ${relative(dirname(path), found)} at its end.`
  )
}

const EXTENSIONS = ['.ts', '.mts', '.js', '.mjs']

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
