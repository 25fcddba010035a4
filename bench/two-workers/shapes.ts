/** The traffic of one or more callers in two isolates. */
import type { Path } from './rules.ts'

export interface Shape {
  what: string
  path: Path
  callers: number
  seconds: number
  /** For each Worker, the number of requests that it has received after `ms` milliseconds. */
  arrived: readonly [(ms: number) => number, (ms: number) => number]
  /** How many requests the limit admits in all. Absent: all of them. */
  permitted?: (limit: number, seconds: number) => number
}

const none = () => 0
const steady = (perSecond: number) => (ms: number) => (perSecond * ms) / 1000
const both = (arrived: (ms: number) => number) => [arrived, arrived] as const

/** `atOnce` requests at the beginning of every second, and one in each tenth of a second. */
const bursts = (atOnce: number) => (ms: number) => atOnce * Math.ceil(ms / 1000) + ms / 100

export const SHAPES: readonly Shape[] = [
  ...[10, 100, 1000].map(
    (perSecond): Shape => ({
      what: `${perSecond.toLocaleString('en')} a second in one isolate`,
      ...{ path: 'plenty', callers: 1, seconds: perSecond < 100 ? 10 : 5 },
      arrived: [steady(perSecond), none],
    }),
  ),
  {
    what: '20 a second in each isolate',
    ...{ path: 'plenty', callers: 1, seconds: 10, arrived: both(steady(20)) },
  },
  {
    what: 'bursts: 100 at once in each isolate, every second',
    ...{ path: 'plenty', callers: 1, seconds: 8, arrived: both(bursts(100)) },
  },
  {
    what: '300 a second in each isolate, until the limit of 4,000 is used up',
    ...{ path: 'edge', callers: 1, seconds: 10, arrived: both(steady(300)), permitted: limit => limit },
  },
  {
    what: '300 a second in each isolate, against a limit of 500 a second',
    ...{ path: 'second', callers: 1, seconds: 7.9, arrived: both(steady(300)) },
    permitted: (limit, seconds) => limit * Math.ceil(seconds),
  },
  {
    what: '500 cold callers, each once in two seconds',
    ...{ path: 'plenty', callers: 500, seconds: 4, arrived: both(steady(125)) },
  },
]
