/** Formats the findings as Markdown, for bench/results.md and for the terminal. */
import { readFileSync } from 'node:fs'
import { cpus, totalmem } from 'node:os'
import { markdownOf, type Table } from '../docs/markdown-tables.ts'

/** One row of the main table. */
export interface Row {
  what: string
  sluice: string
  comparison: string
  /** Value of Sluice ÷ value of the comparison. Below 1, Sluice needs less. */
  ratio?: number
  target?: { text: string; isReached: boolean }
}

/** The values of all rounds, by contender. */
export interface RawTable {
  title: string
  columns: Record<string, readonly number[]>
  digits: number
}

/** An additional table, for findings with other columns than the main one. */
export interface SideTable extends Table {
  title: string
}

export interface Findings {
  rows: readonly Row[]
  tables?: readonly SideTable[]
  raw?: readonly RawTable[]
  /** Sentences about the method of this measurement. */
  notes?: readonly string[]
}

/** All tables, the main one first. */
export function tablesOf(findings: readonly Findings[]): string {
  const main = findings.flatMap(({ rows }) => rows)
  const others = findings.flatMap(({ tables = [] }) => tables)
  return [
    ...(main.length > 0 ? [mainTable(main)] : []),
    ...others.map(({ title, head, rows }) => `## ${title}\n\n${markdownTable(head, rows)}`),
  ].join('\n\n')
}

function mainTable(rows: readonly Row[]): string {
  return markdownTable(
    ['what', 'Sluice', 'comparison', 'ratio', 'target', 'reached'],
    rows.map(({ what, sluice, comparison, ratio, target }) => [
      what,
      sluice,
      comparison,
      ratio === undefined ? '-' : times(ratio),
      target?.text ?? '-',
      target ? (target.isReached ? 'yes' : 'no') : '-',
    ]),
  )
}

export const times = (ratio: number) => `${ratio.toFixed(2)}×`

/** One cell with the value of Sluice, the other value, and their ratio. */
export function sideBySide(own: number, theirs: number, digits = 0): string {
  return `${own.toFixed(digits)} : ${theirs.toFixed(digits)} = ${times(own / theirs)}`
}

export function notesOf(findings: readonly Findings[]): string[] {
  return findings.flatMap(({ notes = [] }) => notes)
}

export function reportOf(
  findings: readonly Findings[],
  { method, redisVersion }: { method: readonly string[]; redisVersion: string },
): string {
  const notes = [...method, ...notesOf(findings)]
  const raw = findings.flatMap(({ raw = [] }) => raw)
  return [
    '# Benchmark',
    '',
    'Made by `npm run bench`.',
    '',
    tablesOf(findings),
    '',
    '## Machine and versions',
    '',
    ...machine().map(line => `- ${line}`),
    `- ${versions(redisVersion)}`,
    `- ${new Date().toISOString().slice(0, 10)}`,
    '',
    '## Method',
    '',
    ...notes.map(note => `- ${note}`),
    '',
    '## Raw values',
    '',
    raw.map(rawTable).join('\n\n'),
    '',
  ].join('\n')
}

/**
 * The report with the tables and notes of some parts replaced, and a note about their date. Notes of a part begin with its title, as in
 * `Hot callers: `.
 * @throws Error for a part that also has rows of the main table or raw values: run all parts for these
 */
export function withTablesOf(findings: readonly Findings[], report: string): string {
  let text = report
  for (const { rows, tables = [], raw = [], notes = [] } of findings) {
    if (rows.length > 0 || raw.length > 0 || tables.length === 0) {
      throw new Error(
        'Parts with rows of the main table, or with raw values, are only written by a run of all parts.',
      )
    }
    for (const { title, head, rows } of tables) {
      text = replaced(text, new RegExp(`^## ${literal(title)}\\n\\n(\\|.*\\n)+`, 'm'), [
        `## ${title}`,
        '',
        markdownTable(head, rows),
        '',
      ])
    }
    const part = tables[0]!.title.split(':')[0]!
    const date = `${part}: measured on ${new Date().toISOString().slice(0, 10)}.`
    const lines = [...notes, date].map(note => `- ${note}`)
    text = replaced(text, new RegExp(`(^- ${literal(part)}: .*\\n)+`, 'm'), [...lines, ''])
  }
  return text
}

const literal = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')

/** @throws Error if nothing is found */
function replaced(text: string, what: RegExp, lines: readonly string[]): string {
  if (!what.test(text)) throw new Error(`bench/results.md has no ${what.source}`)
  return text.replace(what, () => lines.join('\n'))
}

function rawTable({ title, columns, digits }: RawTable): string {
  const rounds = Math.max(...Object.values(columns).map(values => values.length))
  return [
    `${title}:`,
    '',
    markdownTable(
      ['', ...Array.from({ length: rounds }, (_, i) => String(i + 1))],
      Object.entries(columns).map(([name, values]) => [name, ...values.map(value => value.toFixed(digits))]),
    ),
  ].join('\n')
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
