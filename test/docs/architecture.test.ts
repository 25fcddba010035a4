/** docs/internals/architecture.md and CONTRIBUTING.md name only files, folders, scripts and links that exist. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'

const ROOT = new URL('../../', import.meta.url)
const read = (path: string) => readFileSync(new URL(path, ROOT), 'utf8')
const exists = (path: string, from = ROOT) => existsSync(new URL(path, from))

const PAGES = ['docs/internals/architecture.md', 'CONTRIBUTING.md'].map(path => [path, read(path)] as const)
const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> }

const found = (text: string, pattern: RegExp) => [...text.matchAll(pattern)].map(([, match]) => match!)

/** The anchors of the headings, as links name them. */
const anchorsOf = (page: string) =>
  found(page, /^#+ (.+)$/gm).map(title =>
    title
      .toLowerCase()
      .replace(/[^\w -]/g, '')
      .replaceAll(' ', '-'),
  )

describe.each(PAGES)('%s', (path, page) => {
  it('names only files and folders that exist', () => {
    const names = found(page, /\b((?:src|test|docs|bench)\/[\w./-]*\w)/g)
    expect(names.length).toBeGreaterThan(5)
    expect(names.filter(name => !exists(name))).toEqual([])
  })

  it('names only scripts of package.json', () => {
    const names = found(page, /npm run ([\w:-]+)/g)
    expect(names.length).toBeGreaterThan(2)
    expect(names.filter(name => !(name in scripts))).toEqual([])
  })

  it('links only to pages and sections that exist', () => {
    const links = found(page, /\]\((?!https:)(.+?)\)/g)
    expect(links.length).toBeGreaterThan(1)
    for (const link of links) {
      const target = new URL(link, new URL(path, ROOT))
      expect(existsSync(target), link).toBe(true)
      if (target.hash) expect(anchorsOf(readFileSync(target, 'utf8'))).toContain(target.hash.slice(1))
    }
  })
})

describe('the table of folders', () => {
  const [, table] = /<!-- layers -->\n(.*?)<!-- end -->/s.exec(read('docs/internals/architecture.md'))!
  const folders = found(table!, /^\| `src\/([\w-]+)` /gm)

  it('has every folder of src', () => {
    const there = readdirSync(new URL('src/', ROOT), { withFileTypes: true })
    expect([...folders].sort()).toEqual(
      there.flatMap(entry => (entry.isDirectory() ? [entry.name] : [])).sort(),
    )
  })

  it('is in the order in which biome.json lets folders import', () => {
    for (const [i, folder] of folders.entries()) {
      // No folder comes after the last one, so it can import all others.
      if (i === folders.length - 1) continue
      expect(forbiddenTo(folder), folder).toEqual(folders.slice(i + 1).sort())
    }
  })
})

/** Folders that biome.json does not let a folder import. */
function forbiddenTo(folder: string): string[] {
  const { overrides } = JSON.parse(read('biome.json')) as { overrides: { includes: string[] }[] }
  const own = overrides.find(({ includes }) => includes.includes(`src/${folder}/**`))
  return found(JSON.stringify(own), /"\*\*\/([\w-]+)\/\*\*"/g).sort()
}
