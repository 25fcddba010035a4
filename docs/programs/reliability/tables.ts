/**
 * Puts the result of a run into a page, docs/internals/reliability.md unless another one is named: `npm run test:anomalies` and `npm run
 * test:soak`. The text between `<!-- table: … -->` and `<!-- end -->` is the result, the rest is written by hand.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { markdownOf, type Table } from '../markdown-tables.ts'

/** @throws when the page has no place for it */
export function writeTable(name: string, table: Table, page = 'reliability.md'): void {
  const file = new URL(`../../internals/${page}`, import.meta.url)
  writeFileSync(file, withTable(readFileSync(file, 'utf8'), name, table))
}

export function withTable(page: string, name: string, table: Table): string {
  const start = `<!-- table: ${name} -->\n`
  const from = page.indexOf(start)
  const to = page.indexOf('<!-- end -->', from)
  if (from < 0 || to < 0) throw new Error(`The page has no table ${name}.`)
  return `${page.slice(0, from + start.length)}${markdownOf(table)}\n${page.slice(to)}`
}
