/**
 * Makes the tables of README.md, and the tables and the pictures of docs/performance.md, from bench/results.md:
 * `npm run performance`, after `npm run bench`. test/docs/performance.test.ts fails when one of them is stale.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { markdownTable } from 'markdown-table'
import { median } from '../../bench/measure.ts'
import { makePictures } from './pictures.ts'
import {
  firstNumber,
  mainRowsIn,
  medianAndRange,
  mixturesIn,
  priceOf,
  ratiosOfRounds,
  readResults,
  rowOf,
  rowsOf,
} from './read-results.ts'

export const PAGES = [
  new URL('../performance.md', import.meta.url),
  new URL('../../README.md', import.meta.url),
]

/** The tables of costs, by name. Each has the rows of the first table of the results whose name begins with one of its texts. */
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

/** The page with its tables, and with the alt texts of its pictures, as they should be. */
export function withFigures(page: string, results: string): string {
  const first = mainRowsIn(results)
  const tables = new Map<string, string>()
  for (const [name, starts] of Object.entries(COSTS)) {
    const rows = first.filter(([what]) => starts.some(start => what!.startsWith(start)))
    tables.set(
      name,
      table(
        ['what', 'Sluice', 'comparison', 'ratio'],
        rows.map(row => [...row.slice(0, 3), ratioOf(row, results)]),
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
      mixtures.map(({ rules, admitted, refused }) => [
        ...[rules, admitted.own.microseconds, admitted.calls.microseconds].map(String),
        ...[refused.own.microseconds, refused.calls.microseconds, admitted.own.commands].map(String),
        priceOf(admitted.own.commands).toFixed(2),
      ]),
    ),
  )
  const hops = hopsIn(first)
  tables.set('hops', table(['part', 'adds (median)', 'p50 / p99; for CPU, the mean'], hops))
  tables.set('latency', latencyIn(hops))
  tables.set('single-rule', singleRuleIn(results))
  tables.set('peers', table(['measured', 'Sluice', '`@upstash/ratelimit`', 'ratio'], peersIn(first, results)))
  const pictures = makePictures(results)
  return page.replace(
    /(<!-- (table|picture): (.+?) -->\n).*?(<!-- end -->)/gs,
    (_, start, kind, name, end) => {
      const picture = pictures.get(name)
      const text =
        kind === 'table' ? tables.get(name) : picture && `![${picture.finding}](performance/${name})`
      if (text === undefined) throw new Error(`There is no ${kind} ${name}.`)
      return `${start}${text}\n${end}`
    },
  )
}

/** How much longer a request takes, in milliseconds: differences of medians. */
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

/** The figures of `hopsIn` in sentences, in whole milliseconds or tenths. */
function latencyIn(hops: readonly string[][]): string {
  const [decision, trip, cpu] = hops.map(([, adds]) => Number.parseFloat(adds!)) as [number, number, number]
  const [median, p99] = hops[1]![2]!.match(/[\d.]+/g)!.map(text => Math.round(Number(text)))
  return [
    `With a round trip of 20 ms to Redis, a decision adds about **${Math.round(decision + trip + cpu)} ms** (median):`,
    `${decision.toFixed(1)} ms to decide six limits, ${Math.round(trip)} ms for the HTTP request, and ${cpu.toFixed(1)} ms of CPU in the Worker.`,
    `In all, with caller and origin on the same machine, a request took ${median} ms (p99: ${p99} ms). Upstash's servers and Cloudflare's edge are not measured ([performance](docs/performance.md)).`,
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
    const row = [what!, own, `${comparison}: ${other}`, ratio]
    return [label!, own, `${comparison}: ${other}`, ratioOf(row, results)]
  })
  const one = rowsOf(results, /^## Per algorithm/m).find(([rule]) => rule === 'fixed-window')
  const [, own, other] = /^([\d.]+) : ([\d.]+) = /.exec(one?.[2] ?? '') ?? []
  if (other === undefined) throw new Error('There is no row about one fixed window.')
  const raw = serverTime('fixed-window, allowed')
  const ratio = medianAndRange(ratiosOfRounds(results, raw, '@upstash fixedWindow'))
  return [...rows, ['one fixed window: time in Redis', `${own} µs`, `one call: ${other} µs`, ratio]]
}

/** How the raw values of the rows of the first table are titled. Rows without raw values are counts, which have no range. */
const RAW_TITLES: readonly [what: RegExp, title: (...found: string[]) => string][] = [
  [
    /^Redis server time per decision, (\w+), Redis busy, several algorithms, (.+)$/,
    (outcome, rules) => serverTime(`${rules}, ${outcome}`),
  ],
  [/^Redis server time per decision, (.+)$/, load => serverTime(load!)],
  [/^decision p50 \/ p99, (.+)$/, distance => `Latency, ${distance}, ms, median of each round`],
  [
    /^request p50 \/ p99 through workerd, (.+), proxied$/,
    distance => `Through workerd, ${distance}, ms, median of each round`,
  ],
  [/^CPU of workerd per request/, () => 'CPU of workerd, µs per request, each round'],
]

const serverTime = (what: string) => `Redis server time, ${what}, µs per decision`

/** The ratio of a row: the median of its rounds, with the lowest and the highest. */
function ratioOf([what, , comparison, ratio]: readonly string[], results: string): string {
  for (const [pattern, title] of RAW_TITLES) {
    const [match, ...found] = pattern.exec(what!) ?? []
    if (match === undefined) continue
    const name = comparison!.split(':')[0]!
    return medianAndRange(
      ratiosOfRounds(results, title(...found), CALLS.test(name) ? 'slidingWindow calls' : name),
    )
  }
  return ratio!
}

/** "6 calls": as many calls as the decision has rules. */
const CALLS = /^\d+ calls$/

/** One rule against the published script for its algorithm, in a sentence. */
function singleRuleIn(results: string): string {
  const ratiosOf = (rows: readonly string[][]) =>
    rows.flatMap(([rule, against]) =>
      ['allowed', 'refused'].map(outcome =>
        ratiosOfRounds(results, serverTime(`${rule}, ${outcome}`), against!),
      ),
    )
  const rangeOf = (rows: readonly string[][]) => {
    const ratios = ratiosOf(rows)
    const [medians, all] = [ratios.map(median), ratios.flat()]
    const range = (values: readonly number[]) =>
      `${Math.min(...values).toFixed(1)} to ${Math.max(...values).toFixed(1)}`
    return [range(medians), range(all)] as const
  }
  const rows = rowsOf(results, /^## Per algorithm/m)
  const logs = rows.filter(([rule]) => rule!.startsWith('sliding-log'))
  const [[medians, rounds], [logMedians, logRounds]] = [rangeOf(rows), rangeOf(logs)]
  return [
    `[A single rule][algorithms] takes ${medians} times as long as a published script for its algorithm (single rounds: ${rounds}).`,
    `A \`sliding-log\` takes ${logMedians} times as long as a sorted set (single rounds: ${logRounds}). With many entries, it needs a ninth of the memory.`,
  ].join('\n')
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
  for (const [file, { svg }] of makePictures(results)) writeFileSync(new URL(file, import.meta.url), svg)
  console.log('Made the tables and pictures of README.md and docs/performance.md from bench/results.md.')
}
