/** The packed package in a fresh folder, with the examples beside it: what a user has after `npm install`. */
import { execFile } from 'node:child_process'
import {
  copyFileSync,
  cpSync,
  existsSync,
  globSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

export const ROOT = fileURLToPath(new URL('../../', import.meta.url))

/** A PATH that begins with the Node of this repository, for npm and for the processes that npm starts. */
const PATH = [join(ROOT, 'node_modules', '.bin'), process.env.PATH].join(delimiter)

export interface Ran {
  stdout: string
  stderr: string
}

/** Runs a command, without the variables of npm that the tests run under. */
export function run(
  folder: string,
  command: string,
  args: string[],
  env: NodeJS.ProcessEnv = {},
): Promise<Ran> {
  return promisify(execFile)(command, args, {
    cwd: folder,
    env: { ...cleanEnvironment(), ...env },
    maxBuffer: 1e8,
  })
}

export function cleanEnvironment(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) => !/^(npm_|INIT_CWD|VITEST|NODE_ENV|REDIS_URL)/i.test(name),
  )
  return { ...Object.fromEntries(kept), PATH, WRANGLER_SEND_METRICS: 'false', NO_COLOR: '1' }
}

const npm = (folder: string, ...args: string[]) =>
  run(folder, 'npm', [...args, '--no-audit', '--no-fund', '--prefer-offline', '--loglevel=error'])

/** Versions as they are pinned in this repository, so that no newer version is installed. */
function pinned(...names: string[]): Record<string, string> {
  const { dependencies, devDependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
  return Object.fromEntries(names.map(name => [name, devDependencies[name] ?? dependencies[name]]))
}

/** @param manifest a package.json of this repository */
export const versionOf = (manifest = 'package.json'): string =>
  JSON.parse(readFileSync(join(ROOT, manifest), 'utf8')).version

export interface Installed {
  /** The folder that contains node_modules. */
  folder: string
  tarball: string
  /** A program of a package that is installed there. */
  bin(name: string): string
  close(): void
}

/** Packs the contents of a tarball again, as another version. */
export async function repack(tarball: string, version: string, folder: string): Promise<string> {
  await run(folder, 'tar', ['-xzf', tarball])
  const manifest = join(folder, 'package', 'package.json')
  const { scripts: _, ...content } = JSON.parse(readFileSync(manifest, 'utf8'))
  writeFileSync(manifest, JSON.stringify({ ...content, version }))
  await npm(join(folder, 'package'), 'pack', '--pack-destination', folder)
  return join(folder, `sluicegate-${version}.tgz`)
}

/**
 * Gives each config a deadline that a busy machine meets. With the default of 250 ms, a decision that comes late is made without the store
 * and counted in it, so that the statuses of the next requests differ.
 */
function waitLongerForStore(examples: string) {
  for (const path of globSync('**/sluice.config.ts', { cwd: examples })) {
    const file = join(examples, path)
    const text = readFileSync(file, 'utf8')
    if (!/^ {2}store:/m.test(text))
      writeFileSync(file, text.replace('defineConfig({', "defineConfig({\n  store: { deadline: '10s' },"))
  }
}

/** @param packed the packed package (pack.ts) */
export async function installPackage(packed: string): Promise<Installed> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-package-'))
  const tarball = join(folder, basename(packed))
  copyFileSync(packed, tarball)
  const manifest = {
    ...{ name: 'fresh', private: true, type: 'module' },
    dependencies: {
      sluicegate: `file:${tarball}`,
      ...pinned('hono', 'wrangler', 'typescript', 'esbuild', '@cloudflare/workers-types', '@types/node'),
      ...pinned('bullmq', 'redis'),
      // The other runtimes, and what the examples use.
      ...{ express: '5.3.0', '@types/express': '5.0.6', bun: '1.4.5', '@types/bun': '1.4.5', deno: '2.9.6' },
      ...{ fastify: '5.12.8', koa: '3.3.0', '@types/koa': '3.0.3' },
      ...{ '@nestjs/common': '12.5.1', '@nestjs/core': '12.5.1', '@nestjs/platform-express': '12.5.1' },
      ...{ publint: '0.3.25', '@arethetypeswrong/cli': '0.18.5' },
    },
    allowScripts: { bun: true, deno: true, esbuild: true, workerd: true },
  }
  writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest))
  await npm(folder, 'install')
  // Leaves out node_modules in the examples, because it can contain another version of the package.
  const filter = (source: string) => basename(source) !== 'node_modules'
  cpSync(join(ROOT, 'examples'), join(folder, 'examples'), { recursive: true, filter })
  waitLongerForStore(join(folder, 'examples'))
  return {
    folder,
    tarball,
    bin(name) {
      const file = join(folder, 'node_modules', '.bin', name)
      if (!existsSync(file)) throw new Error(`${name} is not installed.`)
      return file
    },
    close: () => rmSync(folder, { recursive: true, force: true }),
  }
}

export { npm }
