/** Where the files of a deployment are: the folder that has its config. */
import { existsSync } from 'node:fs'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

export interface Project {
  /** The folder with the config, wrangler.toml and src/. */
  root: string
  configFile: string
  /** Where `npx sluicegate build` writes. */
  builtFolder: string
  /** From where generated modules import the gateway: the package, or its sources in their own repository. */
  packageName: string
}

/** What a config can be called; in one folder, the first of them that is there. */
const CONFIG_NAMES = [
  'sluice.config.ts',
  'sluice.config.mts',
  'sluice.config.js',
  'sluice.config.mjs',
] as const

/** The folder of these sources, or of what is compiled from them, and the one above. */
const SOURCES = fileURLToPath(new URL('../', import.meta.url))
const PACKAGE = dirname(resolve(SOURCES))

/** Node runs TypeScript, except that of packages: those are compiled. */
const EXTENSION = import.meta.url.endsWith('.ts') ? '.ts' : '.js'

/** The file of a module of these sources, as it is run. @param name without extension, from src/ */
export const moduleFile = (name: string): string => join(SOURCES, `${name}${EXTENSION}`)

/**
 * The project that a folder is in: the nearest folder above with a config. Run from the repository's own sources, it is the
 * repository if there is no other.
 * @throws Error naming the folder
 */
export function findProject(from = process.cwd()): Project {
  const found = nearestProject(from)
  if (found) return found
  if (EXTENSION === '.ts') return projectAt(PACKAGE, CONFIG_NAMES[0])
  throw new Error(
    `There is no sluice.config.ts (or .mts, .js, .mjs) in ${resolve(from)}, or in a folder above it. Run this in your project, use --config <file>, or create a project: npm create sluicegate`,
  )
}

/**
 * The project of a config that is named, and may lie anywhere and have any name: the one that the folder is in. Where that has no
 * config of its own, it is the folder of the named file if that is called like one, else the nearest folder with a package.json.
 * @param file absent: the project of the folder, as `findProject` has it
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

/** From the repository's own sources it is the repository, as for `findProject`. */
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
