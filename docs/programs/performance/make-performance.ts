/**
 * Makes the tables of README.md, and the tables and the pictures of docs/performance.md, from bench/results.md:
 * `npm run performance`, after `npm run bench`. test/docs/performance.test.ts fails when one of them is stale.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { markdownTable } from 'markdown-table'
import { makePictures } from './pictures.ts'
import {
  comparisonsIn,
  firstNumber,
  mixturesIn,
  priceOf,
  readResults,
  rowOf,
  rowsOf,
} from './read-results.ts'
import { SENTENCES, withSentences } from './sentences.ts'

export const PAGES = [
  new URL('../../performance.md', import.meta.url),
  new URL('../../../README.md', import.meta.url),
]

/** The tables of costs, by name. Each has the comparisons whose name begins with one of its texts. */
const COSTS: Record<string, readonly string[]> = {
  sizes: [
    'bytes sent to the store per decision, six sliding-window, allowed, with headers',
    'bytes sent to the store per decision, six fixed-window, allowed, with headers',
    'memory of Redis per caller',
  ],
  worker: ['CPU of workerd', 'request p50', 'CPU of Node', 'requests a second through guard'],
}

/** The page with its tables, and with the alt texts of its pictures, as they should be. */
export function withFigures(page: string, results: string): string {
  const all = comparisonsIn(results)
  const tables = new Map<string, string>()
  for (const [name, starts] of Object.entries(COSTS)) {
    const rows = all.filter(([what]) => starts.some(start => what!.startsWith(start)))
    tables.set(
      name,
      table(
        ['what', 'Sluice', 'comparison', 'ratio'],
        rows.map(row => row.slice(0, 4)),
      ),
    )
  }
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
        '$ per million, admitted',
        'as many calls, $',
      ],
      mixtures.map(({ rules, admitted, refused }) => [
        ...[rules, admitted.own.microseconds, admitted.calls.microseconds].map(String),
        ...[refused.own.microseconds, refused.calls.microseconds].map(String),
        ...[admitted.own, admitted.calls].map(({ commands }) => priceOf(commands).toFixed(2)),
      ]),
    ),
  )
  const hops = hopsIn(all)
  tables.set('hops', table(['part', 'adds (median)', 'p50 / p99; for CPU, the mean'], hops))
  tables.set('latency', latencyIn(hops))
  tables.set('single-rule', singleRuleIn(results))
  const direct = all.filter(([what]) => what!.includes('the other directly to Redis'))
  tables.set(
    'direct',
    table(
      ['request', 'Sluice, over HTTP', 'direct connection', 'ratio'],
      direct.map(([what, ...cells]) => [/allowed|refused/.exec(what!)![0], ...cells.slice(0, 3)]),
    ),
  )
  tables.set('peers', table(['measured', 'Sluice', '`@upstash/ratelimit`', 'ratio'], peersIn(all, results)))
  const pictures = makePictures(results)
  return page.replace(
    /(<!-- (table|picture): (.+?) -->\n).*?(<!-- end -->)/gs,
    (_, start, kind, name, end) => {
      const picture = pictures.get(name)
      const text = kind === 'table' ? tables.get(name) : picture && `![${picture.finding}](pictures/${name})`
      if (text === undefined) throw new Error(`There is no ${kind} ${name}.`)
      return `${start}${text}\n${end}`
    },
  )
}

/** How much longer a request takes, in milliseconds: differences of medians. */
function hopsIn(all: readonly string[][]): string[][] {
  const near = rowOf(all, 'request p50 / p99 through workerd, bridge 0 ms away, proxied', 'PING')
  const far = rowOf(all, 'request p50 / p99 through workerd, bridge 20 ms away, proxied', 'PING')
  const cpu = rowOf(all, 'CPU of workerd per request, 16 connections, proxied', 'bare proxy')
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

/** What a decision adds, and how long a whole request takes. */
function latencyIn(hops: readonly string[][]): string {
  const [decision, trip] = hops.map(([, adds]) => Number.parseFloat(adds!)) as [number, number]
  const [median, p99] = hops[1]![2]!.match(/[\d.]+/g)!.map(text => Math.round(Number(text)))
  return [
    `**Latency**: with Redis 20 ms away, a decision adds **${Math.round(decision + trip)} ms** (median): the HTTP round trip, and ${decision.toFixed(1)} ms to decide.`,
    `A request took ${median} ms (p99: ${p99} ms), all on one machine. Upstash's servers and Cloudflare's edge are`,
    '[not measured](docs/performance.md).',
  ].join(' ')
}

const inMilliseconds = (microseconds: number) => `${(microseconds / 1000).toFixed(3)} ms`

/** Decisions about six limits and about one, against the calls of @upstash/ratelimit for the same algorithm. */
function peersIn(all: readonly string[][], results: string): string[][] {
  const rows = [
    ['p50 / p99, store 20 ms away', 'decision p50 / p99, six LIMITS, bridge 20 ms away', 'six CALL in turn'],
    ['p50 / p99, store 20 ms away', 'decision p50 / p99, six LIMITS, bridge 20 ms away', 'six CALL at once'],
    ['billed commands', 'billed commands per decision, six LIMITS, allowed, later ones', 'six CALL'],
    [
      'time in Redis, busy',
      'Redis server time per decision, six LIMITS, allowed, Redis busy',
      'six CALL in turn',
    ],
    [
      'time in Redis, idle in between',
      'Redis server time per decision, six LIMITS, allowed, Redis idle in between',
      'six CALL at once',
    ],
  ] as const
  const six = SIX.flatMap(([name, limits, call]) =>
    rows.map(([label, what, comparison]) => {
      const against = comparison.replace('CALL', call)
      const { own, other, ratio } = rowOf(all, what.replace('LIMITS', limits), against)
      return [`${name}: ${label}`, own, `${against}: ${other}`, ratio]
    }),
  )
  const one = rowsOf(results, /^### Per algorithm/m).find(([rule]) => rule === 'fixed-window')
  const [, own, other, ratio] = /^([\d.]+) : ([\d.]+) = (.+)$/.exec(one?.[2] ?? '') ?? []
  if (ratio === undefined) throw new Error('There is no row about one fixed window.')
  return [...six, ['one fixed window: time in Redis, busy', `${own} µs`, `one call: ${other} µs`, ratio]]
}

const SIX = [
  ['six sliding windows', 'sliding-window', 'slidingWindow'],
  ['six fixed windows', 'fixed-window', 'fixedWindow'],
] as const

const PARTS: Record<number, string> = { 7: 'seventh', 8: 'eighth', 9: 'ninth', 10: 'tenth', 11: 'eleventh' }

/** One rule against the published script for its algorithm, in a sentence. */
function singleRuleIn(results: string): string {
  const rangeOf = (rows: readonly string[][]) => {
    const ratios = rows.flatMap(([, , allowed, refused]) => [allowed!, refused!].map(ratioIn))
    const range = (values: readonly number[]) =>
      `${Math.min(...values).toFixed(1)} to ${Math.max(...values).toFixed(1)}`
    return [range(ratios.map(([middle]) => middle)), range(ratios.flatMap(([, ...ends]) => ends))] as const
  }
  const rows = rowsOf(results, /^### Per algorithm/m)
  const logs = rows.filter(([rule]) => rule!.startsWith('sliding-log'))
  const share = firstNumber(/[\d.]+(?=×$)/.exec(logs.at(-1)!.at(-1)!)![0])
  const memory = PARTS[Math.round(1 / share)]!
  const [[medians, runs], [logMedians, logRuns]] = [rangeOf(rows), rangeOf(logs)]
  return [
    `[A single rule][algorithms] takes ${medians} times as long as a published script for its algorithm (single runs: ${runs}).`,
    `A \`sliding-log\` takes ${logMedians} times as long as a sorted set (single runs: ${logRuns}). With many entries, it needs a ${memory} of the memory.`,
  ].join('\n')
}

/** `5.4 : 2.5 = 2.16× (1.93 to 2.58)` → 2.16, 1.93, 2.58 */
function ratioIn(cell: string): [median: number, lowest: number, highest: number] {
  const found = /= ([\d.]+)× \(([\d.]+) to ([\d.]+)\)$/.exec(cell)
  if (!found) throw new Error(`'${cell}' has no ratio with a range.`)
  return found.slice(1).map(Number) as [number, number, number]
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return markdownTable(
    [head, ...rows].map(row => [...row]),
    { alignDelimiters: false, padding: true },
  )
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const results = readResults()
  for (const page of PAGES) writeFileSync(page, withFigures(readFileSync(page, 'utf8'), results))
  for (const name of new Set(SENTENCES.map(({ page }) => page))) {
    const page = new URL(`../../../${name}`, import.meta.url)
    writeFileSync(page, withSentences(name, readFileSync(page, 'utf8'), results))
  }
  for (const [file, { svg }] of makePictures(results))
    writeFileSync(new URL(`../../pictures/${file}`, import.meta.url), svg)
  console.log('Made the figures and pictures of the pages from bench/results.md.')
}
