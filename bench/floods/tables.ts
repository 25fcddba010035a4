/** The results of floods: a table for each shape, with a column for each size and checkout, and their ratios. */
import type { Table } from '../../docs/programs/markdown-tables.ts'
import { times } from '../figures.ts'
import { median, quantile } from '../measure.ts'
import type { Sample } from './innocent-client.ts'
import { ISOLATES } from './node-gateways.ts'
import { NO_REPLY } from './raw-connection.ts'
import type { Run } from './run.ts'
import type { Flood } from './shapes.ts'

/** The runs of one size, by label of the checkout. */
export interface SizedRuns {
  /** `1,000 at once` */
  size: string
  byLabel: Readonly<Record<string, readonly Run[]>>
}

interface Metric {
  what: string
  /** @returns undefined if the runs have no such value */
  of: (runs: readonly Run[]) => number | undefined
  digits?: number
}

export function tableOf(kind: Flood['kind'], sizes: readonly SizedRuns[]): Table {
  const labels = Object.keys(sizes[0]!.byLabel)
  const all = sizes.flatMap(({ byLabel }) => Object.values(byLabel).flat())
  const isCompared = labels.length > 1
  const head = sizes.flatMap(({ size }) => [
    ...labels.map(label => (isCompared ? `${size}, ${label}` : size)),
    ...(isCompared ? [`${labels[1]} : ${labels[0]}`] : []),
  ])
  const rows = [...repliesOf(all), ...METRICS[kind](all)].map(metric => [
    metric.what,
    ...sizes.flatMap(({ byLabel }) => cellsOf(metric, Object.values(byLabel))),
  ])
  return { head: ['', ...head], rows: rows.filter(([, ...cells]) => cells.some(cell => cell !== '-')) }
}

function cellsOf({ of, digits = 0 }: Metric, contenders: readonly (readonly Run[])[]): string[] {
  const values = contenders.map(of)
  const cells = values.map(value => (value === undefined ? '-' : formatted(value, digits)))
  if (values.length < 2) return cells
  const [before, after] = values
  return [...cells, before && after !== undefined ? times(after / before) : '-']
}

function formatted(value: number, digits: number): string {
  return value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits })
}

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
const meanOf = (get: (run: Run) => number) => (runs: readonly Run[]) => mean(runs.map(get))
const medianOf = (get: (run: Run) => number) => (runs: readonly Run[]) => median(runs.map(get))
const mostOf = (get: (run: Run) => number) => (runs: readonly Run[]) => Math.max(...runs.map(get))

/** A row for each kind of reply in any of the runs. */
function repliesOf(all: readonly Run[]): Metric[] {
  const kinds = new Set(all.flatMap(({ replies }) => Object.keys(replies)))
  return [...kinds].sort().map(kind => {
    const [status, mark] = kind === NO_REPLY ? [kind] : kind.split(' ')
    return {
      what: mark ? `replies ${status}, degraded: ${mark}` : `replies ${status}`,
      of: meanOf(({ replies }) => replies[kind] ?? 0),
    }
  })
}

const LIMITED: readonly Metric[] = [
  { what: 'reached the origin', of: meanOf(run => run.reachedOrigin) },
  { what: 'above the limit at the origin, worst round', of: mostOf(run => run.aboveLimit) },
]

const GUESSED: Metric = {
  what: 'unknown keys looked up above the limit (401), worst round',
  of: runs =>
    runs.some(({ guesses }) => guesses)
      ? Math.max(...runs.map(({ guesses }) => guesses!.aboveLimit))
      : undefined,
}

const ofInnocent = (when: keyof Run['innocent'], of: (samples: readonly Sample[]) => number) => {
  return (runs: readonly Run[]) => {
    const samples = runs.flatMap(({ innocent }) => innocent[when])
    return samples.length > 0 ? of(samples) : undefined
  }
}
const percent = (samples: readonly Sample[], holds: (reply: string) => boolean) =>
  (100 * samples.filter(({ reply }) => holds(reply)).length) / samples.length
const timesOf = (samples: readonly Sample[]) => samples.map(({ tookMs }) => tookMs)

const INNOCENT: readonly Metric[] = [
  { what: 'innocent: requests during the flood', of: ofInnocent('during', samples => samples.length) },
  {
    what: 'innocent: served, %',
    of: ofInnocent('during', samples => percent(samples, reply => reply.startsWith('200'))),
    digits: 1,
  },
  {
    what: 'innocent: served by the isolate alone, %',
    of: ofInnocent('during', samples => percent(samples, reply => reply.startsWith('200 '))),
    digits: 1,
  },
  {
    what: 'innocent: p50, ms',
    of: ofInnocent('during', samples => median(timesOf(samples))),
    digits: 1,
  },
  {
    what: 'innocent: p99, ms',
    of: ofInnocent('during', samples => quantile(timesOf(samples), 0.99)),
    digits: 1,
  },
  {
    what: 'innocent: last reply without the store, ms after the flood',
    of: medianOf(run => run.degradedAfterMs),
  },
  {
    what: 'innocent before the flood: p50, ms',
    of: ofInnocent('before', samples => median(timesOf(samples))),
    digits: 1,
  },
  {
    what: 'innocent before the flood: p99, ms',
    of: ofInnocent('before', samples => quantile(timesOf(samples), 0.99)),
    digits: 1,
  },
]

const answered = ({ replies }: Run) => Object.values(replies).reduce((sum, count) => sum + count, 0)
const requestsServed = (run: Run) => answered(run) + run.innocent.during.length
const seconds = ({ tookMs }: Run) => tookMs / 1e3

const OF_BURST: readonly Metric[] = [
  ...LIMITED,
  { what: 'refused below the limit', of: meanOf(run => run.belowLimit) },
  GUESSED,
  { what: 'all answered after, ms', of: medianOf(run => run.tookMs) },
  ...INNOCENT,
  {
    what: "HTTP requests to the store, the innocent caller's included",
    of: medianOf(run => run.httpRequests),
  },
  { what: 'EVALSHA calls', of: medianOf(run => run.scriptCalls) },
  { what: 'CPU of Redis, ms', of: medianOf(run => run.redisCpuMs), digits: 1 },
  { what: 'of that in scripts, ms', of: medianOf(run => run.scriptMs), digits: 1 },
  {
    what: 'CPU of workerd per request, µs',
    of: medianOf(run => (1e3 * run.gatewayCpuMs) / requestsServed(run)),
  },
]

const REDIS_CPU: readonly Metric[] = [
  { what: 'CPU of Redis, ms a second', of: medianOf(run => run.redisCpuMs / seconds(run)), digits: 1 },
  {
    what: 'CPU of Redis per request, µs',
    of: medianOf(run => (1e3 * run.redisCpuMs) / requestsServed(run)),
    digits: 1,
  },
]

const OF_STREAM: readonly Metric[] = [
  ...LIMITED,
  GUESSED,
  { what: 'target rate, requests a second', of: medianOf(run => run.size.perSecond!) },
  { what: 'replies a second', of: medianOf(run => answered(run) / seconds(run)) },
  { what: 'not sent, because no connection had room', of: meanOf(run => run.notSent) },
  { what: 'all answered after, s', of: medianOf(seconds), digits: 1 },
  { what: 'EVALSHA calls a second', of: medianOf(run => run.scriptCalls / seconds(run)), digits: 1 },
  {
    what: 'EVALSHA calls a second per caller',
    of: medianOf(run => run.scriptCalls / seconds(run) / run.callers),
    digits: 2,
  },
  {
    what: 'EVALSHA calls a second per caller, after all were refused once, without the innocent caller',
    of: medianOf(run => run.laterScriptCallsPerSecond! / run.callers),
    digits: 2,
  },
  {
    what: "HTTP requests to the store a second, the innocent caller's included",
    of: medianOf(run => run.httpRequests / seconds(run)),
    digits: 1,
  },
  {
    what: 'of these, not for a decision of the innocent caller',
    of: medianOf(run => run.ownHttpRequests / seconds(run)),
    digits: 1,
  },
  ...INNOCENT,
  {
    what: 'CPU of workerd per request, µs',
    of: medianOf(run => (1e3 * run.gatewayCpuMs) / requestsServed(run)),
  },
  {
    what: 'requests a second that one core of workerd carries',
    of: medianOf(run => (1e3 * requestsServed(run)) / run.gatewayCpuMs),
  },
  {
    what: 'CPU of the client of the flood per request, µs',
    of: medianOf(run => (1e3 * run.floodingCpuMs!) / answered(run)),
  },
  ...REDIS_CPU,
]

const secondsIn = ({ seconds }: Run) => seconds ?? []
const mostOrNone = (values: readonly number[]) => (values.length > 0 ? Math.max(...values) : undefined)
const leastOrNone = (values: readonly number[]) => (values.length > 0 ? Math.min(...values) : undefined)

/** A row for each second, and the rows that summarize them. */
function ofNode(all: readonly Run[]): Metric[] {
  const most = Math.max(...all.map(run => secondsIn(run).length))
  return [
    ...LIMITED,
    GUESSED,
    { what: 'target rate, requests a second', of: medianOf(run => run.size.perSecond!) },
    {
      what: 'requests sent in a second, fewest in any second',
      of: runs => leastOrNone(runs.flatMap(run => secondsIn(run).map(({ sent }) => sent))),
    },
    { what: 'not sent, because too many were unanswered', of: meanOf(run => run.notSent) },
    { what: 'replies a second', of: medianOf(run => answered(run) / seconds(run)) },
    { what: 'all answered after, s', of: medianOf(seconds), digits: 1 },
    ...Array.from(
      { length: most },
      (_, i): Metric => ({
        what: `EVALSHA calls in second ${i + 1}, worst round`,
        of: runs => mostOrNone(runs.flatMap(run => secondsIn(run)[i]?.scriptCalls ?? [])),
      }),
    ),
    {
      what: 'EVALSHA calls a second per caller and isolate, from second 2 on',
      of: medianOf(run => {
        const later = secondsIn(run).slice(1)
        return (
          later.reduce((sum, { scriptCalls }) => sum + scriptCalls, 0) / later.length / run.callers / ISOLATES
        )
      }),
      digits: 2,
    },
    {
      what: 'shortest time between two EVALSHA calls of a caller in an isolate, from second 2 on, ms',
      of: runs => leastOrNone(runs.flatMap(({ shortestPauseMs }) => shortestPauseMs ?? [])),
      digits: 1,
    },
    { what: 'EVALSHA calls of all seconds, as counted by Redis', of: medianOf(run => run.scriptCalls) },
    {
      what: "HTTP requests to the store a second, the innocent callers' included",
      of: medianOf(run => run.httpRequests / seconds(run)),
      digits: 1,
    },
    ...INNOCENT,
    {
      what: 'CPU of gateway and callers per request, µs',
      of: medianOf(run => (1e3 * run.gatewayCpuMs) / requestsServed(run)),
    },
    ...REDIS_CPU,
  ]
}

const METRICS: Record<Flood['kind'], (all: readonly Run[]) => readonly Metric[]> = {
  burst: () => OF_BURST,
  stream: () => OF_STREAM,
  node: ofNode,
}
