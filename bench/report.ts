/** Formats the findings as Markdown, for bench/results.md and for the terminal. Each part of the benchmark has a section. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { cpus, loadavg, totalmem } from 'node:os'
import { markdownOf } from '../docs/programs/markdown-tables.ts'
import {
  type Cell,
  cell,
  counted,
  countedRatio,
  type Figure,
  measured,
  measuredRatio,
  textOf,
} from './figures.ts'
import { median, quantile } from './measure.ts'

/** One comparison, with a target or without. */
export interface Row {
  what: string
  sluice: Cell
  comparison: Cell
  /** Value of Sluice ÷ value of the comparison. Below 1, Sluice needs less. */
  ratio?: Figure
  target?: Target
}

export interface Target {
  text: string
  /** Reached if the median of this figure is at most `most`. */
  of: Figure
  most: number
  /** The profile that says why it may be missed: sentences, printed below the table if it is. */
  why?: Cell | undefined
}

/** The values of all rounds, by contender. `npm run bench -- --against` compares those of Sluice with those of another commit. */
export interface Rounds {
  title: string
  columns: Record<string, readonly number[]>
}

/** A table with columns of its own. */
export interface SideTable {
  title: string
  head: readonly string[]
  rows: readonly (readonly Cell[])[]
}

export interface Findings {
  rows?: readonly Row[]
  tables?: readonly SideTable[]
  rounds?: readonly Rounds[]
  /** Sentences about the method of this measurement. */
  notes?: readonly Cell[]
}

/** The part that was measured. */
export interface Part {
  name: string
  findings: Findings
}

/** A target for a figure, in its unit. @param why as in Target */
export function atMost(of: Figure, most: number, why?: Cell): Target {
  return { text: `≤ ${most}${of.unit}`, of, most, why }
}

/** A row without a comparison. @param rounds the values of one run */
export function rowOf(
  what: string,
  rounds: readonly number[],
  { unit, most, why, digits = 1 }: { unit: string; most?: number; why?: Cell; digits?: number },
): Row {
  const sluice = measured(rounds, { unit, digits })
  return { what, sluice, comparison: '-', ...(most !== undefined && { target: atMost(sluice, most, why) }) }
}

/** A row that compares two counts, with a target for that of Sluice. @param name of the comparison */
export function countsRow(
  what: string,
  [name, own, theirs]: readonly [name: string, own: number, theirs: number],
  { unit = '', most }: { unit?: string; most?: number } = {},
): Row {
  const sluice = counted(own, { unit })
  return {
    ...{ what, sluice, comparison: cell`${name}: ${counted(theirs, { unit })}` },
    ratio: countedRatio(own, theirs),
    ...(most !== undefined && { target: atMost(sluice, most) }),
  }
}

/** A row that compares a count with what is needed, which is 1. */
export function neededRow(
  what: string,
  count: number,
  { most, per = '' }: { most: number; per?: string },
): Row {
  const ratio = countedRatio(count, 1)
  const sluice = counted(count, { digits: 2, unit: per })
  return { what, sluice, comparison: 'needed: 1', ratio, target: atMost(ratio, most) }
}

/** A row that compares the rounds of two contenders, with a target for their ratio. @param name of the comparison */
export function roundsRow(
  what: string,
  [name, own, theirs]: readonly [name: string, own: readonly number[], theirs: readonly number[]],
  { most, why, ...format }: { unit: string; digits?: number; most?: number | undefined; why?: Cell },
): Row {
  const ratio = measuredRatio(own, theirs)
  return {
    ...{ what, sluice: measured(own, format), comparison: cell`${name}: ${measured(theirs, format)}`, ratio },
    ...(most !== undefined && { target: atMost(ratio, most, why) }),
  }
}

/** A row that compares the p50 and the p99 of two contenders. @param samples durations (ms), by round */
export function latencyRow(
  what: string,
  [name, own, theirs]: readonly [name: string, own: Samples, theirs: Samples],
  most?: number,
): Row {
  const both = (samples: Samples) => {
    const [middle, slow] = [samples.map(median), [quantile(samples.flat(), 0.99)]]
    return cell`${measured(middle, { digits: 2 })} / ${measured(slow, { digits: 2 })} ms`
  }
  const ratio = measuredRatio(own.map(median), theirs.map(median))
  return {
    ...{ what, sluice: both(own), comparison: cell`${name}: ${both(theirs)}`, ratio },
    ...(most !== undefined && { target: atMost(ratio, most) }),
  }
}

type Samples = readonly (readonly number[])[]

/** @param most kB */
export function kilobytesRow(what: string, bytes: number, most?: number): Row {
  const sluice = counted(bytes / 1000, { unit: 'kB', digits: 1 })
  return { what, sluice, comparison: '-', ...(most !== undefined && { target: atMost(sluice, most) }) }
}

export function bytesRow(what: string, bytes: number): Row {
  return { what, sluice: counted(bytes, { unit: 'B' }), comparison: '-' }
}

/** @param when `2026-11-24, commit 098e223` */
export function sectionOf({ name, findings }: Part, when: string): string {
  const { rows = [], tables = [], notes = [] } = findings
  const reasons = rows.flatMap(({ target }) => (target?.why && !isReached(target) ? textOf(target.why) : []))
  const bullets = [...[...new Set(reasons)].map(why => `Missed: ${why}`), ...notes.map(textOf)]
  return [
    headingOf(name),
    `Measured on ${when}.`,
    ...(rows.length > 0 ? [tableOf(rows)] : []),
    ...tables.map(({ title, head, rows }) => `### ${title}\n\n${markdownTable(head, rows)}`),
    ...(bullets.length > 0 ? [bullets.map(bullet => `- ${bullet}`).join('\n')] : []),
  ].join('\n\n')
}

const headingOf = (name: string) => `## ${name[0]!.toUpperCase()}${name.slice(1)}`

const isReached = ({ of, most }: Target) => median(of.values) <= most

function tableOf(rows: readonly Row[]): string {
  return markdownTable(
    ['what', 'Sluice', 'comparison', 'ratio', 'target', 'reached'],
    rows.map(({ what, sluice, comparison, ratio, target }) => [
      ...[what, sluice, comparison, ratio ?? '-', target?.text ?? '-'],
      target ? (isReached(target) ? 'yes' : 'no') : '-',
    ]),
  )
}

/** The section about what `npm run bench -- --instructions` has counted. */
export function instructionsOf(parts: readonly Part[]): Part {
  const rows = parts.flatMap(({ findings: { rounds = [] } }) =>
    rounds.flatMap(({ title, columns }) =>
      Object.entries(columns).map(([name, [count]]) => [title, name, counted(count!, { digits: 1 })]),
    ),
  )
  const title = 'Thousands of instructions of Redis, or commands'
  return { name: INSTRUCTIONS, findings: { tables: [{ title, head: ['what', 'of', 'count'], rows }] } }
}

export const INSTRUCTIONS = 'instructions'

export function reportOf(
  parts: readonly Part[],
  { when, method, redisVersion }: { when: string; method: readonly string[]; redisVersion: string },
): string {
  return [
    '# Benchmark',
    'Made by `npm run bench`. `npm run bench -- --only "<section>" --write` renews one section, and `npm run bench -- --instructions --write` ' +
      'the last one.',
    '## Machine and versions',
    [...machine(), versions(redisVersion)].map(line => `- ${line}`).join('\n'),
    '## Method',
    method.map(line => `- ${line}`).join('\n'),
    ...parts.map(part => sectionOf(part, when)),
    '',
  ].join('\n\n')
}

/**
 * The report with the sections of some parts replaced.
 * @param names all parts in their order. A section that the report does not have is put where it belongs.
 */
export function withSections(
  parts: readonly Part[],
  report: string,
  { when, names }: { when: string; names: readonly string[] },
): string {
  const startOf = (name: string, text: string) => text.indexOf(`\n${headingOf(name)}\n`)
  return parts.reduce((text, part) => {
    const later = names.slice(names.indexOf(part.name) + 1)
    const [next] = later.map(name => startOf(name, text)).filter(start => start >= 0)
    const [own, end] = [startOf(part.name, text), next ?? text.length]
    const from = own < 0 ? end : own
    return `${text.slice(0, from)}\n${sectionOf(part, when)}\n${text.slice(end)}`
  }, report)
}

/** The section about instructions as it is: it is made by a command of its own. */
export function instructionsIn(report: string): string {
  const start = report.indexOf(`\n${headingOf(INSTRUCTIONS)}\n`)
  return start < 0 ? '' : report.slice(start)
}

function markdownTable(head: readonly string[], rows: readonly (readonly Cell[])[]): string {
  return markdownOf({ head, rows: rows.map(row => row.map(textOf)) }, { isAligned: true })
}

/** Of the last minute. Processes wait for each other if this is above the number of cores. */
export const loadAverage = () => loadavg()[0]!.toFixed(0)

export function machine(): string[] {
  const [cpu] = cpus()
  const gigabytes = (totalmem() / 2 ** 30).toFixed(0)
  return [`${cpu?.model.trim()}, ${cpus().length} cores, ${gigabytes} GB of memory`]
}

const PACKAGES = ['@upstash/ratelimit', '@upstash/redis', 'redis', 'hono', 'wrangler', 'workerd']

export function versions(redisVersion: string, packages = PACKAGES): string {
  const named = packages.map(name => `\`${name}\` ${versionOf(name)}`)
  return `Node ${process.versions.node}, redis-server ${redisVersion}, ${named.join(', ')}`
}

function versionOf(name: string): string {
  const file = new URL(`../node_modules/${name}/package.json`, import.meta.url)
  return JSON.parse(readFileSync(file, 'utf8')).version
}

/** The commit that is measured: `098e223`, or `098e223 and changes`. */
export function commit(): string {
  const git = (...words: string[]) =>
    execFileSync('git', words, { cwd: new URL('.', import.meta.url), encoding: 'utf8' }).trim()
  const hasChanges = git('status', '--porcelain', '--', '../src', '../bench/*.ts', '../bench/*/*.ts') !== ''
  return `${git('rev-parse', '--short', 'HEAD')}${hasChanges ? ' and changes' : ''}`
}
