/** The pictures: benefit.svg and request.svg are what their scripts draw, and terminal.svg shows a recorded session that names no machine. */
import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { drawBenefit } from '../../docs/pictures/draw-benefit.ts'
import { drawRequest } from '../../docs/pictures/draw-request.ts'
import { drawTerminal, type Entry } from '../../docs/pictures/draw-terminal.ts'
import { statusesOf, trimmed } from '../../docs/pictures/record-terminal.ts'
import shipped from '../../sluice.config.ts'

const FOLDER = new URL('../../docs/pictures/', import.meta.url)
const read = (file: string) => readFileSync(new URL(file, FOLDER), 'utf8')
const FILES = readdirSync(FOLDER).filter(file => file.endsWith('.svg'))

it('the pictures are benefit.svg, request.svg and terminal.svg', () => {
  expect(FILES.sort()).toEqual(['benefit.svg', 'request.svg', 'terminal.svg'])
})

describe.each(FILES)('%s', file => {
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

describe('terminal.svg', () => {
  const svg = read('terminal.svg')
  const text = svg
    .slice(svg.indexOf('</style>'))
    .replaceAll(/<[^>]+>/g, '')
    .replaceAll('&quot;', '"')

  it('has the statuses 200, 429, and 200 after the switch', () => {
    const entries = [...svg.matchAll(/<text class="output"[^>]*>(<tspan.*)<\/text>/g)].map(
      ([, row]): Entry => {
        return { kind: 'output', text: row!.replaceAll(/<[^>]+>/g, '').trimEnd() }
      },
    )
    expect(entries.map(entry => entry.text.split(' ').length)).toEqual([15, 15])
    expect(entries.map(entry => statusesOf([entry]))).toEqual(['200 429', '200'])
    expect(text.indexOf('npx sluicegate switch')).toBeGreaterThan(text.indexOf('429'))
  })

  it('switches rules of the shipped config', () => {
    const switched = [...text.matchAll(/npx sluicegate switch rule (\S+) shadow/g)].map(([, name]) => name!)
    expect(switched).toHaveLength(2)
    expect(shipped.rules!.map(({ name }) => name)).toEqual(expect.arrayContaining(switched))
    for (const name of switched) expect(text).toContain(`Rule '${name}' is switched to shadow, since `)
  })

  it('names no folder of a machine, no port, no whole key and no token', () => {
    expect(text).not.toMatch(/\/(tmp|home|root|work|Users|usr|var|opt|private)\b|file:|[A-Z]:\\/)
    expect(text).not.toMatch(/(127\.0\.0\.1|localhost):\d|:\d{4,5}\b/)
    expect(text).toContain('slk_demo_…')
    expect(text).not.toMatch(/slk_\w+_[^…]/)
    expect(text).not.toMatch(/[\w-]{30,}/)
  })

  it('shows everything without animation, and in the last frame', () => {
    const [still, animated] = svg.split('@media (prefers-reduced-motion: no-preference)') as [string, string]
    expect(still).not.toMatch(/visibility|opacity|display|animation/)
    const appearing = [...svg.matchAll(/class="\w+ (t\d+)"/g)].map(([, name]) => name!)
    const times = new Map(
      [
        ...animated.matchAll(
          /@keyframes (t\d+) \{ 0% \{ visibility: hidden \} ([\d.]+)% \{ visibility: visible \} \}/g,
        ),
      ].map(([, name, percent]) => [name!, Number(percent)]),
    )
    expect(new Set(appearing)).toEqual(new Set(times.keys()))
    const inOrder = appearing.map(name => times.get(name)!)
    expect(inOrder).toEqual(inOrder.toSorted((a, b) => a - b))
    expect(inOrder.at(-1)).toBeLessThan(85)
    expect(Number(/animation: none (\d+)s/.exec(animated)![1])).toBeLessThanOrEqual(15)
  })
})

it('a session that is too long for the loop is an error', () => {
  const entry: Entry = { kind: 'command', text: 'ls' }
  const entries = Array.from({ length: 20 }, () => entry)
  expect(() => drawTerminal(entries, 'title', 'description')).toThrow('too little of 15 s')
})

it('ports, keys, the token and folders of a recording become …', () => {
  const root = new URL('../../', import.meta.url).pathname
  const line = `http://127.0.0.1:41401/ slk_demo_upr5qhEMl5VA5GYr48Xf tok-en_1 ${root}src`
  expect(trimmed(line, 'tok-en_1')).toBe('http://127.0.0.1:…/ slk_demo_… … …/src')
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
