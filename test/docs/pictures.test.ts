/** The pictures: each is in a page, and benefit.svg and request.svg are what their scripts draw. */
import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { drawBenefit } from '../../docs/programs/pictures/draw-benefit.ts'
import { drawRequest } from '../../docs/programs/pictures/draw-request.ts'

const ROOT = new URL('../../', import.meta.url)
const DOCS = new URL('docs/', ROOT)
const FOLDER = new URL('pictures/', DOCS)
const read = (file: string) => readFileSync(new URL(file, FOLDER), 'utf8')

it('a page shows each picture', () => {
  const pages = [
    'README.md',
    ...readdirSync(DOCS, { recursive: true, encoding: 'utf8' }).map(name => `docs/${name}`),
  ]
  const texts = pages
    .filter(name => name.endsWith('.md'))
    .map(name => readFileSync(new URL(name, ROOT), 'utf8'))
  const isShown = (file: string) => texts.some(text => text.includes(`pictures/${file})`))
  expect(readdirSync(FOLDER).filter(file => !isShown(file))).toEqual([])
})

it.each(readdirSync(FOLDER))('%s has a dark color for each of its colors', file => {
  const svg = read(file)
  const [, dark = ''] = /@media \(prefers-color-scheme: dark\) \{(.*?)\n\}/s.exec(svg) ?? []
  const drawn = svg.replaceAll(/<clipPath.*?<\/clipPath>/gs, '')
  const colors = [...drawn.matchAll(/ (?:fill|stroke)="#\w+"/g)].map(([attribute]) => attribute.trim())
  expect([...new Set(colors)].filter(each => !dark.includes(`[${each}] {`))).toEqual([])
  expect(dark).toContain('#f0f6fc')
})

it('the picture of reservations has a legend: a sample of each color beside its name', () => {
  const svg = read('reservations.svg')
  const samples = [...svg.matchAll(/<path d="M3\.5 0[^"]*"[^>]* fill="(#\w+)"/g)].map(([, color]) => color)
  expect(samples).toEqual(['#0969da', '#8250df', '#bc4c00'])
})

describe.each(['benefit.svg', 'request.svg'])('%s', file => {
  const svg = read(file)

  it('is well-formed XML', () => {
    expect(flawOf(svg)).toBeUndefined()
  })

  it('has a title and a description', () => {
    expect(svg).toMatch(
      /^<svg [^>]*role="img"[^>]*>\n<title id="title">[^<]+<\/title>\n<desc id="desc">[^<]+<\/desc>\n/,
    )
  })

  it('is small, and loads no other file', () => {
    expect(svg.length).toBeLessThan(30_000)
    expect(svg.replace('http://www.w3.org/2000/svg', '')).not.toMatch(
      /<script|<image|href|url\(|@import|@font-face/,
    )
  })
})

it.each([
  ['<svg><text x="1">a &amp; b</text><path d="M0 0"/></svg>\n', undefined],
  ['<svg><text></svg>', '</svg> ends text'],
  ['<svg><text>', 'text, svg have no end'],
  ['<svg>a & b</svg>', 'a stray & in: a & b'],
  ['<svg><text x=1>a</text></svg>', 'not a tag: <text x=1>'],
  ['<svg x="1" x="2"/>', 'not a tag: <svg x="1" x="2"/>'],
  ['<svg/><svg/>', 'more than one root'],
])('the first mistake in the XML %s is: %s', (xml, flaw) => {
  expect(flawOf(xml)).toBe(flaw)
})

it.each([
  ['benefit.svg', drawBenefit],
  ['request.svg', drawRequest],
])('%s is the picture that its script draws', (file, draw) => {
  expect(read(file) === draw(), `${file} is another: npm run plots`).toBe(true)
})

/** The first mistake in a document that is not well-formed, or undefined. Knows only the parts of XML that the pictures use. */
function flawOf(xml: string): string | undefined {
  const open: string[] = []
  let roots = 0
  for (const [token, tag] of xml.matchAll(/<([^>]*)>?|[^<]+/g)) {
    if (tag === undefined) {
      if (/&(?!(amp|lt|gt|quot|apos|#\d+);)/.test(token)) return `a stray & in: ${token}`
      if (open.length === 0 && token.trim()) return `text outside of the root: ${token}`
      continue
    }
    const [, isEnd, name, attributes, isEmpty] =
      /^<(\/?)([\w:]+)((?: [\w:-]+="[^"<&]*")*)(\/?)>$/.exec(token) ?? []
    const names = [...(attributes ?? '').matchAll(/ ([\w:-]+)=/g)].map(([, each]) => each)
    if (name === undefined || new Set(names).size < names.length) return `not a tag: ${token}`
    if (isEnd) {
      const last = open.pop()
      if (last !== name) return `${token} ends ${last}`
      continue
    }
    if (open.length === 0 && ++roots > 1) return 'more than one root'
    if (!isEmpty) open.push(name)
  }
  return open.length > 0 ? `${open.reverse().join(', ')} have no end` : undefined
}
