/** Reads figures out of bench/results.md. */
import { readFileSync } from 'node:fs'

const RESULTS = new URL('../../../bench/results.md', import.meta.url)

/** USD for a million commands (Upstash, pay as you go: $0.20 per 100,000). */
const DOLLARS_PER_MILLION = 2

/** Decisions about a number of rules with one identity. */
export interface Mixture {
  rules: number
  admitted: Compared
  refused: Compared
}

/** One decision, and the calls of @upstash/ratelimit for the algorithms of its rules. */
interface Compared {
  own: Usage
  calls: Usage
}

export interface Usage {
  microseconds: number
  /** Commands that Upstash bills. */
  commands: number
}

/** The latencies of a decision about six sliding windows, and of its comparisons, at one distance to Redis. */
export interface Latencies {
  /** Milliseconds of a round trip. */
  distance: number
  contenders: readonly Latency[]
}

export interface Latency {
  name: 'PING' | 'Sluice' | 'six at once' | 'six in turn'
  p50: number
  p99: number
}

export function readResults(): string {
  return withoutRanges(readFileSync(RESULTS, 'utf8'))
}

/** Pages show medians. Only ratios keep their range. */
export function withoutRanges(results: string): string {
  return results.replaceAll(/(?<!×) \(-?[\d.]+ to -?[\d.]+\)/g, '')
}

/** The rows of all sections that compare one value with another: what, Sluice, comparison, ratio, target, reached. */
export function comparisonsIn(results: string): string[][] {
  const heads = [...results.matchAll(/^\| what +\| Sluice +\| comparison +\|/gm)]
  return heads.flatMap(({ index }) => rowsOf(results.slice(index), /^/))
}

/** USD for a million decisions. */
export const priceOf = (commands: number) => commands * DOLLARS_PER_MILLION

/** @param comparison how the text about the comparison begins, before its colon */
export function rowOf(rows: readonly string[][], what: string, comparison: string) {
  const row = rows.find(([name, , text]) => name === what && text!.startsWith(`${comparison}: `))
  if (!row) throw new Error(`There is no row '${what}' against ${comparison}.`)
  return { own: row[1]!, other: row[2]!.slice(comparison.length + 2), ratio: row[3]! }
}

/** `2.47 / 8.48 ms` → 2.47 */
export const firstNumber = (text: string) => Number.parseFloat(text)

/** Measured in a client without a Worker. */
export function latenciesIn(results: string): Latencies[] {
  const rows = comparisonsIn(results)
  return [0, 20].map(distance => {
    const what = `decision p50 / p99, six sliding-window, bridge ${distance} ms away`
    const against = (comparison: string) => rowOf(rows, what, comparison)
    const contenders = [
      latencyOf('PING', against('PING').other),
      latencyOf('Sluice', against('PING').own),
      latencyOf('six at once', against('six slidingWindow at once').other),
      latencyOf('six in turn', against('six slidingWindow in turn').other),
    ]
    return { distance, contenders }
  })
}

/** @param text such as `2.47 / 8.48 ms` */
function latencyOf(name: Latency['name'], text: string): Latency {
  const [, p50, p99] = /^([\d.]+) \/ ([\d.]+) ms$/.exec(text) ?? []
  if (p50 === undefined || p99 === undefined) throw new Error(`'${text}' is not a p50 and a p99.`)
  return { name, p50: Number(p50), p99: Number(p99) }
}

export function mixturesIn(results: string): Mixture[] {
  return rowsOf(results, /^### Mixtures/m).flatMap(([what, ...cells]) => {
    const [, rules] = /^(\d+) rules?, one identity$/.exec(what!) ?? []
    if (rules === undefined) return []
    const [admitted, , admittedCommands, refused, , refusedCommands] = cells
    return [
      {
        rules: Number(rules),
        admitted: comparedIn(admitted!, admittedCommands!),
        refused: comparedIn(refused!, refusedCommands!),
      },
    ]
  })
}

function comparedIn(times: string, commands: string): Compared {
  const [ownTime, theirTime] = pairOf(times)
  const [ownCommands, theirCommands] = pairOf(commands)
  return {
    own: { microseconds: ownTime, commands: ownCommands },
    calls: { microseconds: theirTime, commands: theirCommands },
  }
}

/** `5.4 : 3.8 = 1.42×` */
function pairOf(text: string): readonly [own: number, theirs: number] {
  const [, own, theirs] = /^([\d.]+) : ([\d.]+)/.exec(text) ?? []
  if (own === undefined || theirs === undefined) throw new Error(`'${text}' is not a pair of figures.`)
  return [Number(own), Number(theirs)]
}

/** The rows of the first table under a heading. */
export function rowsOf(results: string, heading: RegExp): string[][] {
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
