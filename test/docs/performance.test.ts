/** README.md and docs/performance.md have the figures of bench/results.md, in their tables, pictures and alt texts. */
import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { describe, expect, it } from 'vitest'
import { medianAndRange } from '../../bench/figures.ts'
import { PAGES, withFigures } from '../../docs/programs/performance/make-performance.ts'
import { makePictures } from '../../docs/programs/performance/pictures.ts'
import { readResults, withoutRanges } from '../../docs/programs/performance/read-results.ts'
import { SENTENCES, withSentences } from '../../docs/programs/performance/sentences.ts'

const FOLDER = new URL('../../docs/pictures/', import.meta.url)
const PAGE = readFileSync(new URL('../../docs/performance.md', import.meta.url), 'utf8')
const RESULTS = readResults()
const PICTURES = makePictures(RESULTS)

/** The texts that a picture shows. */
const textsOf = (file: string) =>
  [...PICTURES.get(file)!.svg.matchAll(/<text[^>]*>([^<]*)<\/text>/g)].map(([, text]) => text!)

it.each(PAGES.map(url => [basename(url.pathname), url] as const))(
  '%s has the figures of the last benchmark (npm run performance)',
  (_, url) => {
    const page = readFileSync(url, 'utf8')
    expect(page).toContain('<!-- table: ')
    expect(page === withFigures(page, RESULTS)).toBe(true)
  },
)

it.each([...new Set(SENTENCES.map(({ page }) => page))])(
  'the sentences of %s have the figures of the last benchmark (npm run performance)',
  name => {
    const page = readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8')
    expect(withSentences(name, page, RESULTS)).toBe(page)
  },
)

it('a figure in a sentence changes with the results, and nothing else does', () => {
  const page = '200 rules: the script has\n[1.5 kB, and Redis loads it in 0.1 ms](x), and 7 kB.'
  const results =
    '| what | Sluice | comparison |\n| - | - | - |\n| length of the script, 200 rules | 6.8 kB | - |\n' +
    '| time to load the script, 200 rules | 0.25 ms | - |\n\n'
  expect(withSentences('docs/internals/script.md', page, results)).toBe(
    '200 rules: the script has\n[6.8 kB, and Redis loads it in 0.25 ms](x), and 7 kB.',
  )
  expect(() => withSentences('docs/internals/script.md', 'other', results)).toThrow('has no sentence')
})

it('pages have medians, and ranges of ratios only', () => {
  expect(
    withoutRanges('0.5 (0.4 to 0.6) / 1.2 (1.0 to 2.0) ms | 33.4 µs (30.1 to 35.0) | 0.3× (0.2 to 0.4)'),
  ).toBe('0.5 / 1.2 ms | 33.4 µs | 0.3× (0.2 to 0.4)')
})

it('a ratio of measured times is the median of its rounds, with its range', () => {
  expect(medianAndRange([1.4, 1, 1.2])).toBe('1.20× (1.00 to 1.40)')
  const rows = [...PAGE.matchAll(/^\| (.+?) \|.* (\S+×.*?) \|$/gm)]
  const isCount = (what: string) =>
    /^(HTTP requests|bytes|memory of Redis|billed commands|six .* windows: billed)/.test(what)
  const measured = rows.filter(([, what]) => !isCount(what!))
  expect(measured.length).toBeGreaterThan(10)
  for (const [, what, ratio] of measured) expect(ratio, what).toMatch(/^[\d.]+× \([\d.]+ to [\d.]+\)$/)
})

it('a page cannot name a table or a picture that is not made', () => {
  const page = (what: string) => `<!-- ${what} -->\n<!-- end -->\n`
  expect(() => withFigures(page('table: other'), RESULTS)).toThrow('There is no table other.')
  expect(() => withFigures(page('picture: other.svg'), RESULTS)).toThrow('There is no picture other.svg.')
})

describe.each([...PICTURES])('%s', (file, { svg, finding }) => {
  it('has the figures of the last benchmark (npm run performance)', () => {
    expect(readFileSync(new URL(file, FOLDER), 'utf8') === svg).toBe(true)
  })

  it('is in the page, and its alt text has figures', () => {
    expect(PAGE).toContain(`![${finding}](pictures/${file})`)
    expect(finding).toMatch(/\d/)
    expect(finding).not.toMatch(/[[\]`]|NaN|undefined/)
  })

  it('has a title, colors for dark pages and an opaque background, is small, and loads no other file', () => {
    expect(svg).toMatch(
      /^<svg [^>]+>\n<title>[^<]+<\/title>\n<style>[^<]+<\/style>\n<rect [^>]*x="0" y="0" fill="#ffffff"><\/rect>\n/,
    )
    expect(svg.length).toBeLessThan(30_000)
    expect(svg).not.toMatch(/<script|https?:(?!\/\/www\.w3\.org\/)/)
  })
})

it('latency.svg shows p50 and p99 of each contender at both distances', () => {
  const rows = [...RESULTS.matchAll(/^\| decision p50 \/ p99, six sliding-window, bridge.*$/gm)]
  expect(rows).toHaveLength(6)
  const figures = rows.flatMap(([row]) => row.match(/\d+\.\d\d(?= \/| ms)/g)!)
  const shown = textsOf('latency.svg').filter(text => /^\d+\.\d\d$/.test(text))
  expect(shown).toHaveLength(16)
  expect(new Set(shown)).toEqual(new Set(figures))
})

it('latency.svg and its alt text change with the results', () => {
  const others = RESULTS.replace(/^\| decision p50 .*$/gm, row =>
    row.replace(/\d+\.\d\d(?= \/)/g, figure => `1${figure}`),
  )
  const other = makePictures(others).get('latency.svg')!
  expect(other.svg).not.toBe(PICTURES.get('latency.svg')!.svg)
  expect(other.finding).not.toBe(PICTURES.get('latency.svg')!.finding)
})
