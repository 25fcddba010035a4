/** Each link in README.md and the pages leads to a file and a section that exist, and each page is in the contents. */
import { existsSync, globSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { ALL_PAGES, DOCS } from '../support/pages.ts'

const ROOT = new URL('../../', import.meta.url)
const read = (target: string | URL) => readFileSync(new URL(target, ROOT), 'utf8')

const LINKING = [
  ...ALL_PAGES,
  ...globSync('bench/*.md', { cwd: fileURLToPath(ROOT) }),
  'test/docs/messages.snapshot.md',
]

const FENCE = /^```.*?^```$/gms

/** The anchors, as GitHub names them: of two sections with the same title, the second one gets a number. */
function anchorsOf(page: string): string[] {
  const seen = new Map<string, number>()
  return [...page.replaceAll(FENCE, '').matchAll(/^#+ (.+)$/gm)].map(([, title]) => {
    const anchor = title!
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_ -]/gu, '')
      .replaceAll(' ', '-')
    const before = seen.get(anchor) ?? 0
    seen.set(anchor, before + 1)
    return before === 0 ? anchor : `${anchor}-${before}`
  })
}

/** The links in the text, and the definitions of named links. Links in code are left out. */
function linksOf(page: string): string[] {
  const text = page.replaceAll(FENCE, '').replaceAll(/`[^`\n]*`/g, 'code')
  return [...text.matchAll(/\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$/gm)].map(([, link, named]) => link ?? named!)
}

/** The mistake in a link, or undefined. */
function flawOf(link: string, from: string): string | undefined {
  if (/^https:/.test(link)) return undefined
  const target = new URL(link, new URL(from, ROOT))
  if (!existsSync(fileURLToPath(target))) return 'no such file'
  if (!target.hash) return undefined
  return anchorsOf(read(target)).includes(decodeURIComponent(target.hash.slice(1)))
    ? undefined
    : 'no such section'
}

describe.each(LINKING)('%s', path => {
  it('links to files and sections that exist', () => {
    const flaws = linksOf(read(path)).map(link => [link, flawOf(link, path)] as const)
    expect(flaws.filter(([, flaw]) => flaw)).toEqual([])
  })

  it('defines the links that it names', () => {
    const text = read(path)
      .replaceAll(FENCE, '')
      .replaceAll(/`[^`\n]*`/g, 'code')
    for (const [, name] of text.matchAll(/\]\[([^\]]+)\]/g)) expect(text).toContain(`\n[${name}]: `)
  })
})

it.each([
  ['failure.md', 'docs/security.md', undefined],
  ['failure.md#causes', 'docs/security.md', undefined],
  ['failure.md#reasons', 'docs/security.md', 'no such section'],
  ['failures.md', 'docs/security.md', 'no such file'],
  ['#no-such', 'README.md', 'no such section'],
])('a link to %s from %s: %s', (link, from, flaw) => {
  expect(flawOf(link, from)).toBe(flaw)
})

it('comments, messages and configs name only pages that exist', () => {
  const patterns = [
    '{src,bench,template,docs,test,package}/**/*.{ts,lua,toml}',
    '*.{ts,toml}',
    '{bench,test/docs}/*.md',
  ]
  const files = globSync(patterns, {
    cwd: fileURLToPath(ROOT),
    exclude: ['**/node_modules/**', '**/dist/**'],
  })
  expect(files.length).toBeGreaterThan(100)
  const own = 'test/docs/links.test.ts'
  for (const file of files.filter(name => name !== own)) {
    const named = [...read(file).matchAll(/\bdocs\/(?:internals\/)?[a-z-]+\.md(?:#[\w-]+)?/g)].map(
      ([link]) => link,
    )
    for (const link of named) expect([file, link, flawOf(link, 'README.md')]).toEqual([file, link, undefined])
  }
})

/** A page at an old address, for links from elsewhere. */
const hasMoved = (path: string) => /^# .*\n\nThis page has moved to /.test(read(path))

it('docs/README.md has a line for each page', () => {
  const links = new Set(linksOf(read('docs/README.md')))
  const pages = DOCS.filter(path => path !== 'docs/README.md' && !hasMoved(path))
  expect(pages.filter(name => !links.has(name.slice('docs/'.length)))).toEqual([])
})

it('no page links to an old address', () => {
  const old = DOCS.filter(hasMoved).map(path => new URL(path, ROOT).pathname)
  for (const page of ALL_PAGES.filter(path => !DOCS.includes(path) || !hasMoved(path))) {
    const targets = linksOf(read(page)).map(link => new URL(link, new URL(page, ROOT)).pathname)
    expect([page, targets.filter(target => old.includes(target))]).toEqual([page, []])
  }
})

/** The words of a page, without generated tables. */
const wordsOf = (path: string) =>
  read(path)
    .replaceAll(/<!-- table:.*?<!-- end -->/gs, '')
    .split(/\s+/)
    .filter(Boolean).length

it('README.md is short, and so are the page of the API and the pages for users together', () => {
  expect(read('README.md').split(/\s+/).length).toBeLessThanOrEqual(1900)
  expect(wordsOf('docs/api.md')).toBeLessThanOrEqual(900)
  const pages = DOCS.filter(path => !path.startsWith('docs/internals/'))
  expect(pages.reduce((sum, path) => sum + wordsOf(path), wordsOf('README.md'))).toBeLessThanOrEqual(33_550)
})
