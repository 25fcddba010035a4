/** Makes a project: a config, wrangler.toml, package.json and the Worker's entry. */
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

/** Beside dist/ in the package, and beside src/ in the repository. */
const TEMPLATE = fileURLToPath(new URL('../../template/', import.meta.url))

/** Names that both npm and Cloudflare accept. */
const NAME = /^[a-z0-9]([a-z0-9-]{0,52}[a-z0-9])?$/

/**
 * Writes the template into a folder that is empty or does not exist. The package and the Worker get the name of the folder.
 * @returns the folder
 * @throws Error naming the folder, and what is wrong with it
 */
export function initProject(folder: string): string {
  const root = resolve(folder)
  const name = basename(root).toLowerCase()
  if (!NAME.test(name))
    throw new Error(
      `${root}: '${name}' cannot be the name of a Worker. Use a folder name of up to 54 letters, digits and hyphens.`,
    )
  if (existsSync(root) && readdirSync(root).some(file => file !== '.git'))
    throw new Error(`${root} is not empty. Use an empty folder or a new one.`)
  mkdirSync(root, { recursive: true })
  cpSync(TEMPLATE, root, { recursive: true })
  // npm leaves .gitignore out of packages, so a package has it under another name.
  const packed = join(root, 'gitignore')
  if (existsSync(packed)) renameSync(packed, join(root, '.gitignore'))
  for (const file of ['package.json', 'wrangler.toml']) {
    const path = join(root, file)
    writeFileSync(path, readFileSync(path, 'utf8').replace('my-gateway', name))
  }
  return root
}
