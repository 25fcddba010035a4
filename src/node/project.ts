/** Where the files of a deployment are: the folder that has its config. */
import { existsSync } from 'node:fs'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

/** The module of the Worker, in its project. */
export const WORKER_ENTRY = 'src/index.ts'

export interface Project {
  /** The folder with the config, wrangler.toml and src/. */
  root: string
  configFile: string
  /** Where `npx sluicegate build` writes. */
  builtFolder: string
  /** The package from which generated modules import the gateway. '' in the repository of the package, where they import its sources. */
  packageName: string
}

/** The possible names of a config. If a folder has several of them, the first one counts. */
const CONFIG_NAMES = [
  'sluice.config.ts',
  'sluice.config.mts',
  'sluice.config.js',
  'sluice.config.mjs',
] as const

export class NoProjectError extends Error {
  /** Where the search for a config began. */
  readonly folder: string

  constructor(folder: string, message: string) {
    super(message)
    this.folder = folder
  }
}

/** SOURCES is src/ in the repository and dist/ in the package. PACKAGE is the folder above it. */
const SOURCES = fileURLToPath(new URL('../', import.meta.url))
const PACKAGE = dirname(resolve(SOURCES))

/** Node does not run the TypeScript of packages, so a package has compiled files. */
const EXTENSION = import.meta.url.endsWith('.ts') ? '.ts' : '.js'

/** The file of one of our own modules: TypeScript in the repository, JavaScript in the package. @param name path from src/, without extension */
export const moduleFile = (name: string): string => join(SOURCES, `${name}${EXTENSION}`)

/**
 * Finds the project of a folder. That is the nearest folder with a config: the given folder, or one above it. If no folder has a config,
 * and this code runs from the repository of the package, the project is the repository.
 * @throws NoProjectError
 */
export function findProject(from = process.cwd()): Project {
  const found = nearestProject(from)
  if (found) return found
  if (EXTENSION === '.ts') return projectAt(PACKAGE, CONFIG_NAMES[0])
  throw new NoProjectError(
    resolve(from),
    `There is no sluice.config.ts (or .mts, .js, .mjs) in ${resolve(from)}, or in a folder above it. Run this in your project, use --config <file>, or create a project: npx sluicegate init <folder>`,
  )
}

/**
 * The project for a config file that the user names. The file can be in any folder and can have any name. The project is the one that
 * `from` is in. If `from` is in none: the folder of the file, if the file has one of the names of a config; otherwise, the nearest folder
 * with a package.json.
 * @param file absent: the project that `findProject` finds
 */
export function projectWith(file: string | undefined, from = process.cwd()): Project {
  if (file === undefined) return findProject(from)
  const configFile = resolve(from, file)
  const isNamedAsProject = CONFIG_NAMES.some(name => name === basename(configFile))
  const found = nearestProject(from) ?? (isNamedAsProject ? projectAt(dirname(configFile)) : undefined)
  return {
    ...(found ?? projectAt(nearestWith(from, ['package.json'])?.folder ?? ownFolder(from))),
    configFile,
  }
}

/** If this code runs from the repository of the package, the folder is the repository, as in `findProject`. */
const ownFolder = (from: string) => (EXTENSION === '.ts' ? PACKAGE : resolve(from))

function nearestProject(from: string): Project | undefined {
  const nearest = nearestWith(from, CONFIG_NAMES)
  return nearest && projectAt(nearest.folder, nearest.name)
}

function nearestWith(from: string, names: readonly string[]): { folder: string; name: string } | undefined {
  for (let folder = resolve(from); ; folder = dirname(folder)) {
    const name = names.find(name => existsSync(join(folder, name)))
    if (name !== undefined) return { folder, name }
    if (folder === dirname(folder)) return undefined
  }
}

function projectAt(root: string, name: string = CONFIG_NAMES[0]): Project {
  const isOwn = relative(root, PACKAGE) === '' && EXTENSION === '.ts'
  return {
    root,
    configFile: join(root, name),
    builtFolder: join(root, 'src', 'built'),
    packageName: isOwn ? '' : 'sluicegate',
  }
}
