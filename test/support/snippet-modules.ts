/** Writes the snippets of a page to files, so that they can be imported or bundled as the modules of a project. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { ROOT } from './pages.ts'
import { PATIENT_MS } from './patience.ts'

const EXPRESS = fileURLToPath(new URL('express.ts', import.meta.url))
const { exports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
  exports: Record<string, { types?: string }>
}

/** The source file of an export of the package. */
function sourceOf(specifier: string): string {
  const types = exports[specifier.replace('sluicegate', '.')]?.types
  if (!types) throw new Error(`The package has no export ${specifier}.`)
  return join(ROOT, types.replace('./dist/', 'src/').replace('.d.ts', '.ts'))
}

function fileOf(specifier: string): string {
  if (/^(node|cloudflare):|^\./.test(specifier)) return specifier
  if (/^sluicegate(\/|$)/.test(specifier)) return sourceOf(specifier)
  if (specifier === 'express') return EXPRESS
  return createRequire(import.meta.url).resolve(specifier)
}

/**
 * Writes modules in which `sluicegate` is the source of this repository.
 * @param files code by path, relative to the folder
 */
export function writeModules(folder: string, files: Record<string, string>): void {
  for (const [path, code] of Object.entries(files)) {
    const resolved = code
      .replaceAll(/\bfrom '([^']+)'/g, (_, name) => `from ${JSON.stringify(fileOf(name))}`)
      // Test machines are busy: with the default deadline, a limit would sometimes be decided without the store.
      .replaceAll(
        /\b(defineConfig|createLimiter|expressGuard)\(\{/g,
        `$& store: { deadline: '${PATIENT_MS}ms' },`,
      )
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), resolved)
  }
}

/** Bundles a module for workerd. */
export async function bundleForWorkerd(file: string): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [file],
    ...{ bundle: true, write: false, format: 'esm', target: 'es2024' },
    conditions: ['workerd', 'worker', 'browser'],
    external: ['node:*', 'cloudflare:*'],
  })
  return outputFiles![0]!.text
}
