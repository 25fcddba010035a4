/** Formats the findings as Markdown, for bench/results.md and for the terminal. Each part of the benchmark has a section. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { cpus, totalmem } from 'node:os'
import { markdownOf, type Table } from '../docs/programs/markdown-tables.ts'
import { median } from './measure.ts'

/** One comparison, with a target or without. */
export interface Row {
  what: string
  sluice: string
  comparison: string
  /** Value of Sluice ÷ value of the comparison: of each round if it was measured, one number if it is a count. Below 1, Sluice needs less. */
  ratio?: number | readonly number[]
  target?: Target
}

export interface Target {
  text: string
  isReached: boolean
  /** The profile that says why it may be missed: sentences, printed below the table if it is. */
  why?: string | undefined
}

/** The values of all rounds, by contender. `npm run bench -- --against` compares those of Sluice with those of another commit. */
export interface Rounds {
  title: string
  columns: Record<string, readonly number[]>
}

/** A table with columns of its own. */
export interface SideTable extends Table {
  title: string
}

export interface Findings {
  rows?: readonly Row[]
  tables?: readonly SideTable[]
  rounds?: readonly Rounds[]
  /** Sentences about the method of this measurement. */
  notes?: readonly string[]
}

/** The part that was measured, when, and at which commit. */
export interface Part {
  name: string
  findings: Findings
  /** `2026-11-24, commit 098e223` */
  when: string
}

/** A target for a median of ratios. @param why as in Target */
export function atMost(ratios: readonly number[], most: number, why?: string): Target {
  return { text: `≤ ${most}×`, isReached: median(ratios) <= most, why }
}

/** A row without a comparison: the median of the rounds, their range, and a target. */
export function rowOf(
  what: string,
  values: readonly number[],
  { unit, most, why, digits = 1 }: { unit: string; most?: number; why?: string; digits?: number },
): Row {
  const [low, high] = [Math.min(...values), Math.max(...values)]
  const range = values.length > 1 ? ` (${low.toFixed(digits)} to ${high.toFixed(digits)})` : ''
  return {
    what,
    sluice: `${median(values).toFixed(digits)} ${unit}${range}`,
    comparison: '-',
    ...(most !== undefined && {
      target: { text: `≤ ${most} ${unit}`, isReached: median(values) <= most, why },
    }),
  }
}

/** The ratios of two contenders, round by round. The contenders of a round ran one after the other. */
export function ratiosOf(own: readonly number[], theirs: readonly number[]): number[] {
  return own.map((value, i) => value / theirs[i]!)
}

export const times = (ratio: number) => `${ratio.toFixed(2)}×`

/** The median of the ratios, the lowest and the highest: `1.20× (0.98 to 1.40)`. */
export function medianAndRange(ratios: readonly number[]): string {
  const [lowest, highest] = [Math.min(...ratios), Math.max(...ratios)]
  return `${times(median(ratios))} (${lowest.toFixed(2)} to ${highest.toFixed(2)})`
}

/** One cell with two counts and their ratio. */
export function sideBySide(own: number, theirs: number): string {
  return `${own} : ${theirs} = ${times(own / theirs)}`
}

/** One cell with the medians of two contenders, and the median and the range of the ratios of their rounds. */
export function roundsSideBySide(own: readonly number[], theirs: readonly number[]): string {
  return `${median(own).toFixed(1)} : ${median(theirs).toFixed(1)} = ${medianAndRange(ratiosOf(own, theirs))}`
}

export function sectionOf({ name, findings, when }: Part): string {
  const { rows = [], tables = [], notes = [] } = findings
  const missed = new Set(rows.flatMap(({ target }) => (target && !target.isReached && target.why) || []))
  const bullets = [...[...missed].map(why => `Missed: ${why}`), ...notes]
  return [
    `## ${name[0]!.toUpperCase()}${name.slice(1)}`,
    `Measured on ${when}.`,
    ...(rows.length > 0 ? [tableOf(rows)] : []),
    ...tables.map(({ title, head, rows }) => `### ${title}\n\n${markdownTable(head, rows)}`),
    ...(bullets.length > 0 ? [bullets.map(bullet => `- ${bullet}`).join('\n')] : []),
  ].join('\n\n')
}

function tableOf(rows: readonly Row[]): string {
  return markdownTable(
    ['what', 'Sluice', 'comparison', 'ratio', 'target', 'reached'],
    rows.map(({ what, sluice, comparison, ratio, target }) => [
      what,
      sluice,
      comparison,
      ratio === undefined ? '-' : typeof ratio === 'number' ? times(ratio) : medianAndRange(ratio),
      target?.text ?? '-',
      target ? (target.isReached ? 'yes' : 'no') : '-',
    ]),
  )
}

/** The thousands of instructions that `npm run bench -- --instructions` has counted. */
export function countsOf(parts: readonly Part[]): string {
  const rows = parts.flatMap(({ findings: { rounds = [] } }) =>
    rounds.flatMap(({ title, columns }) =>
      Object.entries(columns).map(([name, [count]]) => [title, name, count!.toFixed(1)]),
    ),
  )
  return markdownTable(['what', 'of', 'thousands of instructions'], rows)
}

export function reportOf(
  parts: readonly Part[],
  { method, redisVersion }: { method: readonly string[]; redisVersion: string },
): string {
  return [
    '# Benchmark',
    'Made by `npm run bench`. `npm run bench -- --only "<section>" --write` renews one section.',
    '## Machine and versions',
    [...machine(), versions(redisVersion)].map(line => `- ${line}`).join('\n'),
    '## Method',
    method.map(line => `- ${line}`).join('\n'),
    ...parts.map(sectionOf),
    '',
  ].join('\n\n')
}

/**
 * The report with the sections of some parts replaced.
 * @throws Error if the report has no such section
 */
export function withSections(parts: readonly Part[], report: string): string {
  let text = report
  for (const part of parts) {
    const section = sectionOf(part)
    const heading = section.split('\n', 1)[0]!
    const from = text.indexOf(`\n${heading}\n`)
    if (from < 0)
      throw new Error(`bench/results.md has no section '${heading}'. Run all parts: npm run bench`)
    const next = text.indexOf('\n## ', from + 1)
    text = `${text.slice(0, from + 1)}${section}\n${next < 0 ? '' : text.slice(next)}`
  }
  return text
}

function markdownTable(head: Table['head'], rows: Table['rows']): string {
  return markdownOf({ head, rows }, { isAligned: true })
}

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
