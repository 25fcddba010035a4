/**
 * Makes the tables of README.md, and the tables and the picture of docs/performance.md, from bench/results.md:
 * `npm run performance`, after `npm run bench`. test/docs/performance.test.ts fails when one of them is stale.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { markdownTable } from 'markdown-table'
import { heading, INK, render } from '../plots/draw.ts'

export const PAGES = [
  new URL('../performance.md', import.meta.url),
  new URL('../../README.md', import.meta.url),
]
export const PICTURE = new URL('by-rules.svg', import.meta.url)
const RESULTS = new URL('../../bench/results.md', import.meta.url)

/** USD for a million commands (Upstash, pay as you go: $0.20 per 100,000). */
const DOLLARS_PER_MILLION = 2

/** Rows of the first table whose name begins with one of these, under the heading of the page's table. */
const COSTS: Record<string, readonly string[]> = {
  redis: ['Redis server time per decision'],
  sent: [
    'HTTP requests per decision',
    'bytes sent to the store',
    'billed commands per decision',
    'bytes in Redis',
  ],
  worker: ['CPU of workerd', 'request p50', 'Worker bundle'],
}

interface Mixture {
  rules: number
  allowed: readonly [own: number, theirs: number]
  refused: readonly [own: number, theirs: number]
  commands: number
}

export function readResults(): string {
  return readFileSync(RESULTS, 'utf8')
}

/** The page with its tables as they should be. */
export function withTables(page: string, results: string): string {
  const first = rowsOf(results, /^# Benchmark$/m)
  const tables = new Map<string, string>()
  for (const [name, starts] of Object.entries(COSTS)) {
    const rows = first.filter(([what]) => starts.some(start => what!.startsWith(start)))
    tables.set(
      name,
      table(
        ['what', 'Sluice', 'comparison', 'ratio'],
        rows.map(row => row.slice(0, 4)),
      ),
    )
  }
  const callers = rowsOf(results, /^## Callers/m)
  tables.set(
    'callers',
    table(
      ['caller', 'µs in Redis'],
      callers.map(row => row.slice(0, 2)),
    ),
  )
  const mixtures = mixturesIn(results)
  tables.set(
    'rules',
    table(
      [
        'rules',
        'admitted, µs in Redis',
        'as many calls, µs',
        'refused, µs',
        'as many calls, µs',
        'commands, admitted',
        '$ per million, admitted',
      ],
      mixtures.map(({ rules, allowed, refused, commands }) => [
        ...[String(rules), String(allowed[0]), String(allowed[1]), String(refused[0]), String(refused[1])],
        ...[String(commands), (commands * DOLLARS_PER_MILLION).toFixed(2)],
      ]),
    ),
  )
  const hops = hopsIn(first)
  tables.set('hops', table(['part', 'adds (median)', 'p50 / p99'], hops))
  tables.set('latency', latencyIn(hops))
  tables.set('peers', table(['measured', 'Sluice', '`@upstash/ratelimit`', 'ratio'], peersIn(first, results)))
  return page.replace(/(<!-- table: (.+?) -->\n).*?(<!-- end -->)/gs, (_, start, name, end) => {
    const text = tables.get(name)
    if (text === undefined) throw new Error(`There is no table ${name}.`)
    return `${start}${text}\n${end}`
  })
}

/** µs in Redis by the number of rules: one decision, and as many slidingWindow calls. */
export function drawByRules(results: string): string {
  const mixtures = mixturesIn(results)
  const axis = (name: string) => ({
    ...{ type: 'value', name, nameLocation: 'middle', nameGap: 32, min: 0 },
    ...{ axisLabel: { color: INK }, nameTextStyle: { color: INK } },
    splitLine: { lineStyle: { color: '#d0d7de' } },
  })
  const line = (name: string, color: string, type: string, of: (mixture: Mixture) => number) => ({
    ...{ type: 'line', data: mixtures.map(mixture => [mixture.rules, of(mixture)]), symbolSize: 6 },
    ...{ lineStyle: { color, type, width: 2 }, itemStyle: { color } },
    endLabel: { show: true, formatter: name, color: INK },
  })
  return render('One decision in Redis, by number of rules', 360, {
    title: heading(
      'One decision in Redis, by number of rules',
      'µs while Redis is busy; grey: as many slidingWindow calls',
    ),
    grid: { left: 64, right: 190, top: 66, bottom: 52 },
    xAxis: axis('rules'),
    yAxis: axis('µs'),
    series: [
      line('as many calls: admitted', '#8c959f', 'solid', ({ allowed }) => allowed[1]),
      line('as many calls: refused', '#8c959f', 'dashed', ({ refused }) => refused[1]),
      line('Sluice: admitted', '#0969da', 'solid', ({ allowed }) => allowed[0]),
      line('Sluice: refused', '#bc4c00', 'dashed', ({ refused }) => refused[0]),
    ],
  })
}

/** What a request takes longer, in milliseconds: differences of medians. */
function hopsIn(first: readonly string[][]): string[][] {
  const near = rowOf(first, 'request p50 / p99 through workerd, bridge 0 ms away, proxied', 'PING')
  const far = rowOf(first, 'request p50 / p99 through workerd, bridge 20 ms away, proxied', 'PING')
  const cpu = rowOf(first, 'CPU of workerd per request, 16 connections, proxied', 'bare proxy')
  const [own, ping] = [firstNumber(near.own), firstNumber(near.other)]
  const distant = firstNumber(far.own)
  const [microseconds, bare] = [firstNumber(cpu.own), firstNumber(cpu.other)]
  return [
    [
      'deciding six limits, beyond a bare round trip to the store',
      `${(own - ping).toFixed(2)} ms`,
      `whole request: ${near.own}; the same with a \`PING\` only: ${near.other}`,
    ],
    [
      'the round trip over HTTP, if the store is 20 ms away',
      `${(distant - own).toFixed(2)} ms`,
      `whole request: ${far.own}`,
    ],
    [
      'CPU of the Worker, beyond a plain proxy',
      `${((microseconds - bare) / 1000).toFixed(2)} ms`,
      `${inMilliseconds(microseconds)}; plain proxy: ${inMilliseconds(bare)}`,
    ],
  ]
}

/** The same in sentences, in whole milliseconds or tenths. */
function latencyIn(hops: readonly string[][]): string {
  const [decision, trip, cpu] = hops.map(([, adds]) => Number.parseFloat(adds!)) as [number, number, number]
  const [median, p99] = hops[1]![2]!.match(/[\d.]+/g)!.map(text => Math.round(Number(text)))
  return [
    `With a round trip of 20 ms to Redis, a decision adds about **${Math.round(decision + trip + cpu)} ms** (median):`,
    `${decision.toFixed(1)} ms to decide six limits, ${Math.round(trip)} ms for the HTTP request, and ${cpu.toFixed(1)} ms of CPU in the Worker.`,
    `With them, and with caller and origin on the same machine, a whole request took ${median} ms (p99: ${p99} ms). Upstash's servers and Cloudflare's edge are not measured ([performance](docs/performance.md)).`,
  ].join(' ')
}

const inMilliseconds = (microseconds: number) => `${(microseconds / 1000).toFixed(3)} ms`

/** One decision about six limits, and one about one limit, against the calls of @upstash/ratelimit. */
function peersIn(first: readonly string[][], results: string): string[][] {
  const rows = [
    ['six limits: p50 / p99, store 20 ms away', 'decision p50 / p99, bridge 20 ms away', 'six in turn'],
    ['six limits: p50 / p99, store 20 ms away', 'decision p50 / p99, bridge 20 ms away', 'six at once'],
    ['six limits: billed commands', 'billed commands per decision, allowed, later ones', 'six calls'],
    ['six limits: time in Redis', 'Redis server time per decision, allowed, Redis busy', 'six in turn'],
  ].map(([label, what, comparison]) => {
    const { own, other, ratio } = rowOf(first, what!, comparison!)
    return [label!, own, `${comparison}: ${other}`, ratio]
  })
  const one = rowsOf(results, /^## Per algorithm/m).find(([rule]) => rule === 'fixed-window')
  const [, own, other, ratio] = /^([\d.]+) : ([\d.]+) = (\S+)$/.exec(one?.[2] ?? '') ?? []
  if (ratio === undefined) throw new Error('There is no row about one fixed window.')
  return [...rows, ['one fixed window: time in Redis', `${own} µs`, `one call: ${other} µs`, ratio]]
}

/** @param comparison how the text about the comparison begins, before its colon */
function rowOf(rows: readonly string[][], what: string, comparison: string) {
  const row = rows.find(([name, , text]) => name === what && text!.startsWith(`${comparison}: `))
  if (!row) throw new Error(`There is no row '${what}' against ${comparison}.`)
  return { own: row[1]!, other: row[2]!.slice(comparison.length + 2), ratio: row[3]! }
}

/** `2.47 / 8.48 ms` → 2.47 */
const firstNumber = (text: string) => Number.parseFloat(text)

function mixturesIn(results: string): Mixture[] {
  return rowsOf(results, /^## Mixtures/m).flatMap(([what, allowed, , commands, refused]) => {
    const [, rules] = /^(\d+) rules?, one identity$/.exec(what!) ?? []
    if (rules === undefined) return []
    const own = Number(/^(\d+)/.exec(commands!)![1])
    return [{ rules: Number(rules), allowed: pairOf(allowed!), refused: pairOf(refused!), commands: own }]
  })
}

/** `5.4 : 3.8 = 1.42×` */
function pairOf(text: string): readonly [number, number] {
  const [, own, theirs] = /^([\d.]+) : ([\d.]+)/.exec(text) ?? []
  if (own === undefined || theirs === undefined) throw new Error(`'${text}' is not a pair of times.`)
  return [Number(own), Number(theirs)]
}

/** The rows of the first table under a heading. */
function rowsOf(results: string, heading: RegExp): string[][] {
  const after = results.slice(results.search(heading)).split('\n')
  const from = after.findIndex(line => line.startsWith('|'))
  const to = after.findIndex((line, i) => i > from && !line.startsWith('|'))
  return after.slice(from + 2, to).map(line =>
    line
      .split('|')
      .slice(1, -1)
      .map(cell => cell.trim()),
  )
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return markdownTable(
    [head, ...rows].map(row => [...row]),
    { alignDelimiters: false, padding: true },
  )
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const results = readResults()
  for (const page of PAGES) writeFileSync(page, withTables(readFileSync(page, 'utf8'), results))
  writeFileSync(PICTURE, drawByRules(results))
  console.log('Made the tables of README.md and docs/performance.md from bench/results.md.')
}
