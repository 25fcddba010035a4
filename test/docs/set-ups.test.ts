/** The pages of the set-ups: the targets of their links and imports exist, and their configs are valid. */
import { existsSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { checkedConfig } from '../../src/config/check/check.ts'
import { defineConfig } from '../../src/config/define.ts'

const ROOT = new URL('../../', import.meta.url)
const read = (path: string) => readFileSync(new URL(path, ROOT), 'utf8')
const { exports } = JSON.parse(read('package.json')) as { exports: Record<string, { types?: string }> }

const PAGES = ['README', 'guard', 'binding', 'limits-by-name'].map(
  name => [`docs/${name}.md`, read(`docs/${name}.md`)] as const,
)
const blocks = (page: string) => [...page.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code!)

/** The source that a subpath of the package is compiled from. */
const sourceOf = (specifier: string) =>
  exports[specifier.replace(/^sluicegate/, '.')]!.types!.replace('./dist/', 'src/').replace('.d.ts', '.ts')

describe.each(PAGES)('%s', (path, page) => {
  it('links to files and sections that exist', () => {
    const links = [...page.matchAll(/\]\((?!https?:)(.+?)\)/g)].map(([, link]) => link!)
    for (const link of links) {
      const target = new URL(link, new URL(path, ROOT))
      expect(existsSync(target), link).toBe(true)
      if (!target.hash) continue
      const titles = [...readFileSync(target, 'utf8').matchAll(/^#+ (.+)$/gm)].map(([, title]) => title!)
      const anchors = titles.map(title =>
        title
          .toLowerCase()
          .replace(/[^\w -]/g, '')
          .replaceAll(' ', '-'),
      )
      expect(anchors, link).toContain(target.hash.slice(1))
    }
  })

  it('imports only names that the package exports', async () => {
    for (const code of blocks(page)) {
      for (const [, names, from] of code.matchAll(/import \{ (.+?) \} from '(sluicegate[^']*)'/g)) {
        // sluicegate/rpc imports a module that exists only in workerd.
        const canImport = from !== 'sluicegate/rpc'
        const module = canImport ? await import(new URL(sourceOf(from!), ROOT).href) : undefined
        const source = read(sourceOf(from!))
        for (const name of names!.split(', ')) {
          if (module) expect(Object.keys(module), `${name} of ${from}`).toContain(name)
          else expect(source).toContain(`export function ${name}(`)
        }
      }
    }
  })

  it('has configs that are valid', () => {
    for (const code of blocks(page).filter(text => text.includes('export default defineConfig('))) {
      const made = new Function(
        'defineConfig',
        code.replace(/^import .*\n/gm, '').replace('export default', 'return'),
      )(defineConfig)
      expect(() => checkedConfig(made)).not.toThrow()
    }
  })
})

it('each export of the package is on a page', () => {
  const text = PAGES.map(([, page]) => page).join('')
  const subpaths = Object.keys(exports).filter(path => !/^\.$|built|scripts|cli|package\.json/.test(path))
  for (const subpath of subpaths) expect(text).toContain(`sluicegate${subpath.slice(1)}`)
})
