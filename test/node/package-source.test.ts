/** The commands that `init` prints work for the copy of the package that prints them, published or not. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { firstCommands, packageSource } from '../../src/node/package-source.ts'

/** @returns the folder of the package */
function install(
  resolved: string | undefined,
  files: readonly string[] = [],
): { app: string; folder: string } {
  const app = mkdtempSync(join(tmpdir(), 'sluice-'))
  onTestFinished(() => rmSync(app, { recursive: true }))
  const folder = join(app, 'node_modules/sluicegate')
  for (const name of ['', ...files]) mkdirSync(join(folder, name), { recursive: true })
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ name: 'sluicegate', version: '1.2.3' }))
  if (resolved !== undefined) {
    const packages = { 'node_modules/sluicegate': { resolved } }
    writeFileSync(join(app, 'node_modules/.package-lock.json'), JSON.stringify({ packages }))
  }
  return { app, folder }
}

it('a package from a registry: npm install finds it by its name in package.json', () => {
  const { app, folder } = install('https://registry.npmjs.org/sluicegate/-/sluicegate-1.2.3.tgz')
  expect(firstCommands(join(app, 'api'), packageSource(folder))).toEqual(['npm install', 'npm start'])
})

it('a package from a file: the commands install that file', () => {
  const { app, folder } = install('file:../packed/sluicegate-1.2.3.tgz')
  expect(firstCommands(join(app, 'api'), packageSource(folder))).toEqual([
    'npm install ../../packed/sluicegate-1.2.3.tgz',
    ...['npm install', 'npm start'],
  ])
})

it('in a clone: the commands install the file of npm pack, and make it first if it does not exist', () => {
  const { app, folder } = install(undefined, ['src'])
  const commands = (project = join(app, 'api')) => firstCommands(project, packageSource(folder))
  const rest = ['npm install ../node_modules/sluicegate-1.2.3.tgz', 'npm install', 'npm start']
  expect(commands()).toEqual([`npm pack ${folder} --pack-destination ${join(app, 'node_modules')}`, ...rest])
  writeFileSync(join(app, 'node_modules/sluicegate-1.2.3.tgz'), '')
  expect(commands()).toEqual(rest)
  rmSync(join(app, 'node_modules/sluicegate-1.2.3.tgz'))
  writeFileSync(join(app, 'sluicegate-1.2.3.tgz'), '')
  expect(commands()[0]).toBe('npm install ../sluicegate-1.2.3.tgz')
})

it('a package that was installed in an unknown way: the commands cover a registry and a file', () => {
  const { app, folder } = install(undefined)
  expect(firstCommands(join(app, 'api'), packageSource(folder))).toEqual([
    'npm install <file>.tgz    # only if you installed sluicegate from a file',
    ...['npm install', 'npm start'],
  ])
})
