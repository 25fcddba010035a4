/** The packages of this repository are released together: their versions agree. */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { mustHaveNode } from '../../src/node/cli/init.ts'

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

/** Whether a range of npm has a version. Knows only the parts of ranges that these packages use. */
function includes(range: string, version: readonly number[]): boolean {
  const isOlder = (a: readonly number[], b: readonly number[]) => {
    const i = a.findIndex((each, i) => each !== b[i])
    return i >= 0 && a[i]! < b[i]!
  }
  return range.split('||').some(part => {
    const [, kind, text] = /^\s*(\^|>=)\s*(\d+(?:\.\d+){0,2})\s*$/.exec(part) ?? []
    if (text === undefined) throw new Error(`This test does not know the range ${part}.`)
    const [major = 0, minor = 0, patch = 0] = text.split('.').map(Number)
    return !isOlder(version, [major, minor, patch]) && (kind === '>=' || version[0] === major)
  })
}

it('every package that users install runs on the oldest Node that the package accepts', () => {
  const [, major, minor] = /^>=(\d+)\.(\d+)$/.exec(engines.node)!.map(Number)
  const packages = Object.entries<{
    dev?: true
    devOptional?: true
    peer?: true
    engines?: { node?: string }
  }>(manifest('package-lock.json').packages)
  const installed = packages.filter(([, { dev, devOptional, peer }]) => !dev && !devOptional && !peer)
  expect(installed.length).toBeGreaterThan(15)
  const tooNew = installed.filter(
    ([, { engines }]) => engines?.node && !includes(engines.node, [major!, minor!, 0]),
  )
  expect(tooNew.map(([path]) => path)).toEqual([])
})

it('init refuses a Node that cannot run the project, and create-sluicegate names the same version', () => {
  const agent = (version: string) => `npm/11.6.2 node/v${version} linux x64 workspaces/false`
  for (const version of ['20.20.2', '22.17.9', '18.0.0-nightly'])
    expect(() => mustHaveNode(agent(version))).toThrow(
      `A project needs Node 22.18 or newer, and this machine has Node ${version}. Install a newer one first`,
    )
  for (const version of ['22.18.0', '24.1.0', '100.0.0']) mustHaveNode(agent(version))
  mustHaveNode(undefined)
  expect(engines.node).toBe('>=22.18')
  const create = readFileSync(
    new URL('../../create-sluicegate/create-sluicegate.js', import.meta.url),
    'utf8',
  )
  expect(create).toContain('major < 22 || (major === 22 && minor < 18)')
})

it('npm does not warn about the Node of a machine, because the scripts run on one of their own', () => {
  const settings = readFileSync(new URL('../../.npmrc', import.meta.url), 'utf8')
  expect(settings).toMatch(/^loglevel=error$/m)
})
