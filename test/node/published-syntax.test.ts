/**
 * What the package ships has no syntax that is newer than the parsers of webpack 5.75, TypeScript 5.5 and Next.js 14. A browser's `target`
 * in those tools does not help: they fail before they compile. test/package/nightly builds with the tools themselves.
 */
import { globSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { type BuildOptions, build, transform } from 'esbuild'
import { expect, it } from 'vitest'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))

const OLDER = { target: 'es2022', supported: { 'arbitrary-module-namespace-names': false } }
const NEWEST = { target: 'esnext' }

it.each([
  ["export * as 'fixed-window' from 'x'"],
  ["export const a = 1; export { a as 'b-c' }"],
  ['using a = b'],
  ['a = /[a&&b]/v'],
  ["import a from './a.json' with { type: 'json' }"],
])('the check finds newer syntax: %s', async code => {
  const newest = (await transform(code, NEWEST)).code
  const older = await transform(code, { ...OLDER, logLevel: 'silent' }).catch(() => undefined)
  expect(older?.code).not.toBe(newest)
})

it('an ES2022 parser can read every file of the sources and of bin/', async () => {
  const entryPoints = globSync(['src/**/*.ts', 'bin/*.js'], { cwd: ROOT })
  expect(entryPoints.length).toBeGreaterThan(300)
  const codesOf = async (options: BuildOptions) => {
    const built = await build({ absWorkingDir: ROOT, entryPoints, write: false, outdir: 'out', ...options })
    return new Map(built.outputFiles!.map(({ path, text }) => [path, text]))
  }
  const older = await codesOf(OLDER)
  for (const [path, code] of await codesOf(NEWEST)) expect([path, older.get(path)]).toEqual([path, code])
})
