/** Each example is a project: its package.json has the packages that it imports, in the versions that this repository is tested with. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { builtinModules } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const EXAMPLES = join(ROOT, 'examples')
const page = readFileSync(join(EXAMPLES, 'README.md'), 'utf8')
const own = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
const versions = { ...own.dependencies, ...own.devDependencies }
/** The sources that name the packages that test/package installs beside sluicegate, without quotes. */
const installed = ['installed.ts', 'nightly/frameworks.test.ts']
  .map(name => readFileSync(join(ROOT, 'test/package', name), 'utf8').replaceAll("'", ''))
  .join('\n')

const FOLDERS = readdirSync(EXAMPLES, { withFileTypes: true }).flatMap(each =>
  each.isDirectory() && existsSync(join(EXAMPLES, each.name, 'package.json')) ? [each.name] : [],
)

function importsOf(folder: string): string[] {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  const sources = files.filter(name => /\.[jt]sx?$/.test(name) && !/node_modules|dist|\.next/.test(name))
  const text = sources.map(name => readFileSync(join(folder, name), 'utf8')).join('\n')
  const all = [...text.matchAll(/from '([^.'][^']*)'/g)].map(([, from]) => from!)
  const names = all.map(from => /^(@[^/]+\/)?[^/]+/.exec(from)![0])
  const needed = names.includes('next') ? ['react', 'react-dom'] : []
  return [...new Set([...names, ...needed])].filter(
    name => !/^(node|cloudflare):/.test(name) && !builtinModules.includes(name),
  )
}

describe.each(FOLDERS)('the example %s', name => {
  const folder = join(EXAMPLES, name)
  const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))

  it('has the packages that it imports in its package.json, in the versions of this repository', () => {
    expect(manifest).toMatchObject({ private: true, type: 'module' })
    expect(Object.keys(manifest.dependencies).sort()).toEqual(importsOf(folder).sort())
    const all = { ...manifest.dependencies, ...manifest.devDependencies }
    for (const [dependency, version] of Object.entries(all)) {
      const pinned = dependency === own.name ? own.version : versions[dependency]
      if (pinned) expect([dependency, version]).toEqual([dependency, pinned])
      else expect(installed).toContain(`${dependency}: ${version}`)
    }
  })

  it('is started as the README says', () => {
    const row = page.split('\n').find(line => line.startsWith(`| [${name}](${name}) |`))
    const command = /`npm (?:run )?(\w+)`/.exec(row!)![1]!
    expect(manifest.scripts).toHaveProperty(command)
    expect(existsSync(join(folder, 'tsconfig.json'))).toBe(!['deno', 'next'].includes(name))
  })
})
