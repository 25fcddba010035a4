/**
 * How often `sliding-window`, which approximates by two counters, decides otherwise than `sliding-log`, which is exact. Both get the same
 * arrivals, and each keeps a state of its own. Callers have no effect on each other, so they are modelled one after the other.
 */
import { IDLE, type Quota, type State } from '../../src/algorithms/algorithm.ts'
import { ALL_ALGORITHMS } from '../../src/algorithms/all.ts'
import { algorithms } from '../../src/algorithms/index.ts'
import type { Duration } from '../../src/config/check/schema.ts'
import { compileLimitRule } from '../../src/config/compile-rule.ts'
import { type Chance, chanceFrom } from '../../test/simulation/chance.ts'
import { requestsIn } from '../../test/support/access-log.ts'
import { count, type Figure, NOON, percent } from './figure.ts'

const PERIOD = 60e6
const LIMIT = 100

/** The requests of callers, and what was decided about them. */
export interface Tally {
  callers: number
  /** Callers that the exact log has refused at least once. */
  limitedCallers: number
  requests: number
  /** Requests that passed, by algorithm. */
  byWindow: number
  byLog: number
  /** The window admitted, and the log refused. */
  wronglyAdmitted: number
  wronglyRefused: number
  /** The estimate from two counters of all arrivals is above the limit, and the exact number is not, or the other way round. */
  onWrongSide: number
  /** The sum of the relative errors of the estimates. */
  error: number
}

export const emptyTally = (): Tally => ({
  ...{ callers: 0, limitedCallers: 0, requests: 0, byWindow: 0, byLog: 0 },
  ...{ wronglyAdmitted: 0, wronglyRefused: 0, onWrongSide: 0, error: 0 },
})

type Algorithm = 'sliding-window' | 'sliding-log'

export interface Compared {
  limit: number
  /** µs. */
  period: number
  quotas: Readonly<Record<Algorithm, Quota>>
}

export function comparedAt(limit: number, period: Duration): Compared {
  const quotaOf = (algorithm: Algorithm) =>
    compileLimitRule({ name: algorithm, algorithm, limit, period }, ALL_ALGORITHMS).quota
  const quotas = { 'sliding-window': quotaOf('sliding-window'), 'sliding-log': quotaOf('sliding-log') }
  return { limit, period: quotas['sliding-log'].period, quotas }
}

/** Adds the requests of one caller to a tally. @param arrivals µs, ascending */
export function compareAlgorithms(
  arrivals: readonly number[],
  { limit, period, quotas }: Compared,
  tally: Tally,
): void {
  const window = keeperOf('sliding-window', quotas)
  const log = keeperOf('sliding-log', quotas)
  const estimate = estimator(period)
  let isLimited = false
  tally.callers += 1
  for (const [i, now] of arrivals.entries()) {
    const [byWindow, byLog] = [window(now), log(now)]
    const { estimated, exact } = estimate(arrivals, i)
    tally.requests += 1
    if (byWindow) tally.byWindow += 1
    if (byLog) tally.byLog += 1
    else isLimited = true
    if (byWindow && !byLog) tally.wronglyAdmitted += 1
    if (byLog && !byWindow) tally.wronglyRefused += 1
    if (estimated > limit !== exact > limit) tally.onWrongSide += 1
    tally.error += Math.abs(estimated - exact) / exact
  }
  if (isLimited) tally.limitedCallers += 1
}

/** One caller under one rule. @returns whether a request at this time (µs) passes */
function keeperOf(algorithm: Algorithm, quotas: Compared['quotas']): (now: number) => boolean {
  const quota = quotas[algorithm]
  const model = algorithms[algorithm]
  let state: State = IDLE
  return now => {
    const { after } = model.decide({ quota, state, now, cost: 1 })
    if (after) state = after.state
    return after !== undefined
  }
}

/**
 * The number of arrivals in the last period, including refused ones: exactly, and estimated from the counts of two windows.
 * @param period µs
 */
function estimator(period: number) {
  let [oldest, window, previous, current] = [0, -1, 0, 0]
  return (arrivals: readonly number[], i: number) => {
    const now = arrivals[i]!
    const at = Math.floor(now / period)
    if (at !== window) [window, previous, current] = [at, at === window + 1 ? current : 0, 0]
    current += 1
    while (arrivals[oldest]! <= now - period) oldest += 1
    const weight = 1 - (now % period) / period
    return { estimated: previous * weight + current, exact: i - oldest + 1 }
  }
}

export interface Traffic {
  callers: number
  seconds: number
  seed: number
}

/** Requests a minute: the mean over callers, and the standard deviation of the logarithm. */
const MEAN_RATE = 0.65
const SIGMA = 2
/** Bursts of a caller: their mean size, and the mean time between the requests of one. */
const BURST = 10
const BURST_GAP_PER_SECOND = 5

/** As many callers as in the post. Together they send more than ten million requests. */
const TYPICAL: Traffic = { callers: 270_000, seconds: 3600, seed: 20261125 }

/** The kinds of callers: how their requests arrive, and whether their mean rate is above the limit. */
const KINDS = [
  'random arrivals, mean rate below the limit',
  'bursts, mean rate below the limit',
  'random arrivals, mean rate above the limit',
  'bursts, mean rate above the limit',
] as const

/** Half of the callers send requests at random times (Poisson), the others in bursts. @returns a tally for each kind of caller */
export function typicalTraffic({ callers, seconds, seed }: Traffic): Tally[] {
  const chance = chanceFrom(seed)
  const compared = comparedAt(LIMIT, '1m')
  const tallies = KINDS.map(emptyTally)
  for (let i = 0; i < callers; i++) {
    const perMinute = chance.lognormal(MEAN_RATE, SIGMA)
    const isBursty = i % 2 === 1
    const arrivals = isBursty
      ? poissonTimes(chance, perMinute / 60 / BURST, seconds)
          .flatMap(start => burstFrom(chance, start))
          .sort((a, b) => a - b)
      : poissonTimes(chance, perMinute / 60, seconds)
    compareAlgorithms(arrivals, compared, tallies[(perMinute > LIMIT ? 2 : 0) + Number(isBursty)]!)
  }
  return tallies
}

function poissonTimes(chance: Chance, perSecond: number, seconds: number): number[] {
  const times: number[] = []
  for (let ms = chance.gapMs(perSecond); ms < seconds * 1e3; ms += chance.gapMs(perSecond))
    times.push(NOON + Math.round(ms * 1e3))
  return times
}

/** Requests at random times after each other. Their number is geometric. */
function burstFrom(chance: Chance, start: number): number[] {
  const times = [start]
  while (chance.uniform() > 1 / BURST)
    times.push(times.at(-1)! + Math.round(chance.gapMs(BURST_GAP_PER_SECOND) * 1e3))
  return times
}

/** The worst that a caller can do: two patterns, each repeated. */
export const WORST: Readonly<Record<string, readonly number[]>> = {
  'worst case of admitting: the limit in the last millisecond of a window, then one more each 0.6 s':
    repeated(4, [
      ...Array(LIMIT).fill(PERIOD - 1000),
      ...Array.from({ length: LIMIT - 1 }, (_, i) => PERIOD + (i + 1) * 0.6e6),
    ]),
  'worst case of refusing: the limit at once as each window begins': repeated(1, Array(LIMIT).fill(0)),
}

/** @param windows the length of the pattern */
function repeated(windows: number, pattern: readonly number[]): number[] {
  return Array.from({ length: 60 }, (_, i) => pattern.map(at => NOON + i * windows * PERIOD + at)).flat()
}

const HEAD = [
  ...[
    'traffic',
    'requests',
    'callers with a refusal by the log',
    'admitted by the log',
    'admitted by the window',
  ],
  ...['wrongly admitted', 'wrongly refused', 'estimate on the wrong side', 'mean error of the estimate'],
]

function rowOf(what: string, tally: Tally): string[] {
  const share = (part: number, digits = 3) => percent(part, tally.requests, digits)
  return [
    ...[what, count(tally.requests), `${count(tally.limitedCallers)} of ${count(tally.callers)}`],
    ...[share(tally.byLog, 2), share(tally.byWindow, 2)],
    ...[share(tally.wronglyAdmitted), share(tally.wronglyRefused), share(tally.onWrongSide)],
    share(tally.error, 1),
  ]
}

function sum(tallies: readonly Tally[]): Tally {
  const total = emptyTally()
  for (const tally of tallies)
    for (const name of Object.keys(total) as (keyof Tally)[]) total[name] += tally[name]
  return total
}

const MEANING =
  '"Wrongly": `sliding-window` decided otherwise than `sliding-log`. Each has the same arrivals and counts only what it has admitted. "Estimate": the number of arrivals in ' +
  'the last period, admitted or not, from two counters, against the exact number; "wrong side": only one of the two is above the limit.'

export async function slidingApproximation(): Promise<Figure> {
  const tallies = typicalTraffic(TYPICAL)
  const rows = [
    rowOf('all callers', sum(tallies)),
    ...tallies.map((tally, i) => rowOf(KINDS[i]!, tally)),
    ...Object.entries(WORST).map(([what, arrivals]) => {
      const tally = emptyTally()
      compareAlgorithms(arrivals, comparedAt(LIMIT, '1m'), tally)
      return rowOf(what, tally)
    }),
  ]
  return {
    sentences: [
      'Cloudflare found 0.003% of 400 million requests from 270,000 sources wrongly allowed or limited, and a mean difference of 6% between the real and the approximate rate ' +
        '([How we built rate limiting capable of scaling to millions of domains](https://blog.cloudflare.com/counting-things-a-lot-of-different-things/), 2017).',
      `The model: ${LIMIT} a minute for each of ${count(TYPICAL.callers)} callers, over an hour. The rates of callers are lognormal (mean ${MEAN_RATE} a minute, σ ${SIGMA}). Half of the callers ` +
        `send requests at random times (Poisson), the others in bursts of ${BURST} on average, 0.2 s apart. Cloudflare's traffic is not public, so the shares are those of this model.`,
      MEANING,
      'Above the limit, the two admit about as many requests of a caller, but not the same ones.',
    ],
    table: { head: HEAD, rows },
  }
}

/** @param file an access log in the common log format, as text or gzip */
export async function onAccessLog(file: string): Promise<Figure> {
  const byAddress = Map.groupBy(requestsIn(file), ({ address }) => address)
  const rows = [50, 20, 10].map(limit => {
    const tally = emptyTally()
    for (const requests of byAddress.values()) {
      const arrivals = requests.map(({ at }) => at).sort((a, b) => a - b)
      compareAlgorithms(arrivals, comparedAt(limit, '1h'), tally)
    }
    return rowOf(`${limit} an hour by address`, tally)
  })
  return {
    sentences: [
      'An illustration: 10,000 requests to a web server in May 2015, from [elastic/examples](https://github.com/elastic/examples) ("Common Data Formats/apache_logs"), Apache ' +
        'License 2.0. The log is not part of this repository; `--log <file>` names it.',
      'All its times are from 5:00 to 5:59 minutes past an hour. So a limit a minute would never span two windows, and the limits here are those of an hour.',
      MEANING,
    ],
    table: { head: HEAD, rows },
  }
}
