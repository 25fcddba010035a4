/** Where this copy of the package comes from. A new project can get the package from the same place. */
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

/**
 * `unknown`: installed in a way that npm keeps no record of, such as with another package manager.
 * `clone`: this code runs in a clone of the repository. `name` is that of the file that `npm pack` makes, beside the clone or the project.
 */
export type PackageSource =
  | { kind: 'registry' }
  | { kind: 'unknown' }
  | { kind: 'tarball'; file: string }
  | { kind: 'clone'; folder: string; name: string }

/** @param folder of the package */
export function packageSource(
  folder = resolve(fileURLToPath(new URL('../../', import.meta.url))),
): PackageSource {
  const { name, version } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  // The package itself has no src.
  if (existsSync(join(folder, 'src'))) return { kind: 'clone', folder, name: `${name}-${version}.tgz` }
  const modules = dirname(folder)
  const lockFile = join(modules, '.package-lock.json')
  if (!existsSync(lockFile)) return { kind: 'unknown' }
  const { packages = {} } = JSON.parse(readFileSync(lockFile, 'utf8'))
  const resolved: unknown = packages[`node_modules/${name}`]?.resolved
  if (typeof resolved !== 'string') return { kind: 'unknown' }
  return resolved.startsWith('file:')
    ? { kind: 'tarball', file: resolve(dirname(modules), resolved.slice('file:'.length)) }
    : { kind: 'registry' }
}

/**
 * The commands that install a new project and start it. They get the package from the registry only if this copy may come from there:
 * until the package is published, anyone could publish another one under its name.
 *
 * @param root of the project
 */
export function firstCommands(root: string, source: PackageSource): string[] {
  const last = ['npm install', 'npm start']
  if (source.kind === 'registry') return last
  if (source.kind === 'unknown')
    return ['npm install <file>.tgz    # only if you installed sluicegate from a file', ...last]
  if (source.kind === 'tarball') return [`npm install ${relative(root, source.file)}`, ...last]
  const places = [dirname(source.folder), dirname(root)].map(folder => join(folder, source.name))
  const packed = places.find(file => existsSync(file))
  const file = packed ?? places[0]!
  const pack = packed ? [] : [`npm pack ${source.folder} --pack-destination ${dirname(file)}`]
  // Installing a package by its file does not run the script `prepare` of the project, which builds the Worker.
  return [...pack, `npm install ${relative(root, file)}`, ...last]
}
