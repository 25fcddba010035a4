/** README.md and docs/performance.md have the figures of bench/results.md, in their tables, pictures and alt texts. */
import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { describe, expect, it } from 'vitest'
import { medianAndRange } from '../../bench/figures.ts'
import { PAGES, withFigures } from '../../docs/programs/performance/make-performance.ts'
import { makePictures } from '../../docs/programs/performance/pictures.ts'
import {
  comparisonsIn,
  firstNumber,
  readResults,
  rowOf,
} from '../../docs/programs/performance/read-results.ts'

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

it('deploy.md and README.md compute their costs with the figures of the last benchmark', () => {
  const page = readFileSync(new URL('../../docs/deploy.md', import.meta.url), 'utf8')
  const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8')
  const rows = comparisonsIn(RESULTS)
  const cpu =
    firstNumber(rowOf(rows, 'CPU of workerd per request, 16 connections, proxied', 'PING').own) / 1000
  const billed = 200 * Number(cpu.toFixed(2)) - 30
  const dollars = (billed * 0.02).toFixed(2)
  expect(page).toContain(
    `$${dollars} for CPU (${cpu.toFixed(2)} ms a request: 200 × ${cpu.toFixed(2)} − 30 = ${billed.toFixed(0)} million`,
  )
  const all = 5 + 57 + Number(dollars)
  expect(page).toContain(`: $${all.toFixed(2)}.`)
  expect(readme).toContain(`**$${Math.round(all)}**, with ${cpu.toFixed(1)} ms of CPU each`)
  const bytes = (what: string) => {
    const row = `bytes ${what} the store per decision, six fixed-window, allowed, with headers`
    const one = firstNumber(rowOf(rows, row, 'six fixedWindow at once').own)
    return {
      one: `${Math.round(one / 10) * 10} B`,
      all: `${(Math.round((one * 200) / 1e4) * 10).toString()} GB`,
    }
  }
  const [sent, received] = [bytes('sent to'), bytes('received from')]
  expect(page).toContain(
    `The ${sent.all} that the requests send (${sent.one} each) and the ${received.all} of the bridge's replies (${received.one})`,
  )
  expect(readme).toContain(`${sent.all} are sent to Redis and ${received.all} received`)
  const total = Number.parseInt(sent.all, 10) + Number.parseInt(received.all, 10)
  expect(readme).toContain(`with leases ${total / 10} to ${total} GB in all`)
  const memory = 'memory of Redis per caller, six limits of two identities, fixed-window'
  const perCaller = Math.round(firstNumber(rowOf(rows, memory, 'as many fixedWindow').own) / 100) * 100
  expect(page).toContain(`A caller takes about [${perCaller} B](performance.md)`)
  expect(readme).toContain(`5 GB of data (${Math.floor(5e3 / perCaller)} million callers)`)
  const commands = rowOf(
    rows,
    'billed commands per decision, six sliding-window, allowed, later ones',
    'six slidingWindow',
  )
  const others = firstNumber(commands.other)
  expect(readme).toContain(
    `For six sliding windows, Upstash bills that call as ${firstNumber(commands.own)} commands; with six calls of \`@upstash/ratelimit\`, ${others}.`,
  )
  const { own } = rowOf(rows, 'request p50 / p99 through workerd, bridge 20 ms away, proxied', 'PING')
  const [median, p99] = own.match(/[\d.]+/g)!.map(text => Math.round(Number(text)))
  expect(page).toContain(`a request took ${median} ms (p99: ${p99} ms)`)
})

it('internals/script.md has the size and the load time of a script with many rules', () => {
  const page = readFileSync(new URL('../../docs/internals/script.md', import.meta.url), 'utf8')
  const figure = (what: string) => new RegExp(`^\\| ${what} +\\| ([\\d.]+ \\w+)`, 'm').exec(RESULTS)![1]
  const [size, load] = ['length of the script, 200 rules', 'time to load the script, 200 rules'].map(figure)
  expect(page).toContain(`[${size}, and Redis loads it in ${load}]`)
})

it('algorithms.md has the memory and the time of the last benchmark', () => {
  const page = readFileSync(new URL('../../docs/algorithms.md', import.meta.url), 'utf8').replaceAll(
    /\s+/g,
    ' ',
  )
  const figure = (what: string) => Number(new RegExp(`^\\| ${what} +\\| ([\\d.]+) `, 'm').exec(RESULTS)![1])
  const memory = (limits: string) => figure(`memory of Redis per caller, ${limits}, sliding-window`)
  const [three, six] = [memory('three limits of one identity'), memory('six limits of two identities')]
  expect(page).toContain(
    `three rules takes ${three} B, and one with six rules by consumer and address ${six} B`,
  )
  const bytes = (requests: number) => figure(`bytes in Redis, sliding-log with ${requests} requests`)
  const time = figure('Redis server time per decision, sliding-log with 100000 requests, allowed')
  expect(page).toContain(
    `takes ${bytes(100)} kB for 100 requests, ${bytes(1000)} kB for 1,000, and ` +
      `${Math.round(bytes(1e5)).toLocaleString('en')} kB for 100,000, where a decision takes ${Math.round(time)} µs`,
  )
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

  it('has a title and an opaque background, is small, and loads no other file', () => {
    expect(svg).toMatch(
      /^<svg [^>]+>\n<title>[^<]+<\/title>\n<rect [^>]*x="0" y="0" fill="#ffffff"><\/rect>\n/,
    )
    expect(svg.length).toBeLessThan(30_000)
    expect(svg).not.toMatch(/<script|<style|https?:(?!\/\/www\.w3\.org\/)/)
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
