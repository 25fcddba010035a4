/** The packages of this repository are released together: their versions agree. */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'

const manifest = (path: string) => JSON.parse(readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8'))

const { version, engines } = manifest('package.json')

it('create-sluicegate has the version of the package, and depends on it', () => {
  const create = manifest('create-sluicegate/package.json')
  expect(create).toMatchObject({ version, engines, dependencies: { sluicegate: `^${version}` } })
})

it('a new project depends on this version', () => {
  expect(manifest('template/package.json').dependencies.sluicegate).toBe(`^${version}`)
})

it('docs/getting-started.md names the tarball of this version', () => {
  const page = readFileSync(new URL('../../docs/getting-started.md', import.meta.url), 'utf8')
  const tarballs = [...page.matchAll(/sluicegate-(\d\S*?)\.tgz/g)].map(([, named]) => named)
  expect(new Set(tarballs)).toEqual(new Set([version]))
})
