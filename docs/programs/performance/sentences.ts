/** Figures of the benchmark inside sentences of pages. `npm run performance` writes them, and a test compares them. */
import { comparisonsIn, firstNumber, rowOf, rowsOf } from './read-results.ts'

/** A part of a sentence, with a … for each figure. */
interface Sentence {
  /** From the root of the repository. */
  page: string
  text: string
  /** In the order of the text. */
  figures(results: string): readonly string[]
}

export const SENTENCES: readonly Sentence[] = [
  {
    page: 'docs/internals/script.md',
    text: 'the script has [… kB, and Redis loads it in … ms]',
    figures: results =>
      ['length of the script, 200 rules', 'time to load the script, 200 rules'].map(ownOf(results)),
  },
  {
    page: 'docs/algorithms.md',
    text: 'a caller with three rules takes … B, and one with six rules by consumer and address … B.',
    figures: results =>
      ['three limits of one identity', 'six limits of two identities'].map(limits =>
        ownOf(results)(`memory of Redis per caller, ${limits}, sliding-window`),
      ),
  },
  {
    page: 'docs/algorithms.md',
    text: 'takes … kB for 100 requests, … kB for 1,000, and … kB for 100,000, where a decision takes … µs of Redis',
    figures(results) {
      const [few, some, many] = [100, 1000, 100_000].map(requests =>
        ownOf(results)(`bytes in Redis, sliding-log with ${requests} requests`),
      )
      const time = ownOf(results)('Redis server time per decision, sliding-log with 100000 requests, allowed')
      return [few!, some!, Math.round(Number(many)).toLocaleString('en'), rounded(time)]
    },
  },
  {
    page: 'docs/hot-callers.md',
    text: 'leases take … trips per request and $… per million, instead of … and $….',
    figures(results) {
      const rows = rowsOf(results, /^### Hot callers: /m)
      const head = /^\| requests .*$/m
        .exec(results.slice(results.search(/^### Hot callers: /m)))![0]
        .split('|')
      const column = (name: string) => head.findIndex(text => text.trim() === name) - 1
      const after = rows.slice(rows.findIndex(([what]) => what === '1,000 a second, one isolate'))
      const cell = (contender: string, name: string) =>
        after.find(([, decidedBy]) => decidedBy === contender)![column(name)]!
      const [trips, dollars] = ['trips', '$ per million'] as const
      return [
        ...[cell('lease 250ms', trips), cell('lease 250ms', dollars)],
        ...[rounded(cell('default', trips)), cell('default', dollars)],
      ]
    },
  },
  {
    page: 'docs/operations.md',
    text: 'takes … kB a day, and … B after eight days: 20 counters, … MB.',
    figures(results) {
      const what = 'bytes in Redis, a counter of statistics and a day'
      const [first, later] = [what, `${what}, after eight days`].map(row => Number(ownOf(results)(row)))
      const all = 20 * (8 * first! + (DAYS_KEPT - 8) * later!)
      return [kilobytes(first!), String(later), (all / 1e6).toFixed(1)]
    },
  },
  {
    page: 'docs/operations.md',
    text: 'A rule that refuses takes up to … kB an hour.',
    figures: results => [
      kilobytes(ownOf(results)('bytes in Redis, refused callers of a rule and an hour, the most')),
    ],
  },
  {
    page: 'docs/security.md',
    text: 'no secrets, … kB a change',
    figures: results => [
      kilobytes(ownOf(results)('bytes in Redis, a change in the audit trail, mean of three')),
    ],
  },
  {
    page: 'docs/internals/concurrency.md',
    text: 'passes the whole value to the script: … kB for 1,000 isolates.',
    figures: results => [rounded(String(Number.parseInt(inFlightIn(results, '1000').at(-1)!, 10) / 1000))],
  },
  {
    page: 'docs/internals/concurrency.md',
    text: 'An admitted request takes … times as long with 100 isolates as with one, and … times as long with 1,000.',
    figures(results) {
      const time = (isolates: string) => firstNumber(inFlightIn(results, isolates)[2]!)
      return ['100', '1000'].map(isolates => (time(isolates) / time('1')).toFixed(1))
    },
  },
  {
    page: 'docs/deploy.md',
    text: '$… for CPU (… ms a request: 200 × … − 30 = … million ms at $0.02 a million): $….',
    figures(results) {
      const { cpu, billed, dollars, all } = billOf(results)
      return [dollars, cpu, cpu, billed.toFixed(0), all.toFixed(2)]
    },
  },
  {
    page: 'README.md',
    text: '**$…**, with … ms of CPU each',
    figures(results) {
      const { cpu, all } = billOf(results)
      return [all.toFixed(0), Number(cpu).toFixed(1)]
    },
  },
  {
    page: 'docs/deploy.md',
    text: "The … GB that the requests send (… B each) and the … GB of the bridge's replies (… B)",
    figures(results) {
      const { sent, received } = trafficOf(results)
      return [sent.gigabytes, sent.bytes, received.gigabytes, received.bytes].map(String)
    },
  },
  {
    page: 'docs/deploy.md',
    text: 'with leases … to … GB in all',
    figures(results) {
      const { sent, received } = trafficOf(results)
      const all = sent.gigabytes + received.gigabytes
      return [all / 10, all].map(String)
    },
  },
  {
    page: 'docs/deploy.md',
    text: 'A caller takes about [… B](performance.md)',
    figures: results => [String(bytesPerCaller(results))],
  },
  {
    page: 'README.md',
    text: '5 GB of data (… million callers)',
    figures: results => [String(Math.floor(5e3 / bytesPerCaller(results)))],
  },
  {
    page: 'README.md',
    text: 'For six sliding windows, Upstash bills that call as … commands; with six calls of `@upstash/ratelimit`, ….',
    figures(results) {
      const what = 'billed commands per decision, six sliding-window, allowed, later ones'
      const { own, other } = rowOf(comparisonsIn(results), what, 'six slidingWindow')
      return [own, other]
    },
  },
  {
    page: 'docs/deploy.md',
    text: 'a request took … ms (p99: … ms)',
    figures: results =>
      rowOf(comparisonsIn(results), 'request p50 / p99 through workerd, bridge 20 ms away, proxied', 'PING')
        .own.match(/[\d.]+/g)!
        .map(rounded),
  },
]

/** The page with the figures of its sentences as they should be. @throws Error if it lacks one of its sentences */
export function withSentences(name: string, page: string, results: string): string {
  return SENTENCES.filter(sentence => sentence.page === name).reduce((text, sentence) => {
    // A line of the page can end at each space.
    const parts = sentence.text.split('…').map(part => escaped(part).replaceAll(' ', '\\s+'))
    // Not the full stop after a figure.
    const pattern = new RegExp(parts.map(part => `(${part})`).join('\\d+(?:[.,]\\d+)*'))
    if (!pattern.test(text)) throw new Error(`${name} has no sentence '${sentence.text}'.`)
    const figures = sentence.figures(results)
    return text.replace(pattern, (_, ...groups: string[]) =>
      parts.map((_, i) => `${groups[i]}${figures[i] ?? ''}`).join(''),
    )
  }, page)
}

/** The text as a part of a regular expression. `RegExp.escape` needs Node 24. */
const escaped = (text: string) => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')

/** How long statistics are kept. */
const DAYS_KEPT = 401

const kilobytes = (bytes: number | string) => (Number(bytes) / 1000).toFixed(1)

const rounded = (figure: string) => String(Math.round(Number(figure)))

/** The figure of Sluice in the row about something, without its unit. */
const ownOf = (results: string) => (what: string) => {
  const row = comparisonsIn(results).find(([name]) => name === what)
  if (!row) throw new Error(`There is no row '${what}'.`)
  return row[1]!.split(' ')[0]!
}

const inFlightIn = (results: string, isolates: string) =>
  rowsOf(results, /^### In flight/m).find(([count]) => count === isolates)!

/** For 200 million requests a month on Workers Paid. */
function billOf(results: string) {
  const what = 'CPU of workerd per request, 16 connections, proxied'
  const cpu = (firstNumber(rowOf(comparisonsIn(results), what, 'PING').own) / 1000).toFixed(2)
  const billed = 200 * Number(cpu) - 30
  const dollars = (billed * 0.02).toFixed(2)
  return { cpu, billed, dollars, all: 5 + 57 + Number(dollars) }
}

/** Of 200 million requests. */
function trafficOf(results: string) {
  const of = (what: string) => {
    const row = `bytes ${what} the store per decision, six fixed-window, allowed, with headers`
    const bytes = firstNumber(rowOf(comparisonsIn(results), row, 'six fixedWindow at once').own)
    return { bytes: Math.round(bytes / 10) * 10, gigabytes: Math.round((bytes * 200) / 1e4) * 10 }
  }
  return { sent: of('sent to'), received: of('received from') }
}

function bytesPerCaller(results: string): number {
  const what = 'memory of Redis per caller, six limits of two identities, fixed-window'
  return Math.round(firstNumber(rowOf(comparisonsIn(results), what, 'as many fixedWindow').own) / 100) * 100
}
