/**
 * Puts what a run has found into docs/reliability.md: `npm run test:anomalies` and `npm run test:soak`. What stands between
 * `<!-- table: … -->` and `<!-- end -->` there is made by them, the rest by hand.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { markdownOf, type Table } from '../markdown-tables.ts'

const PAGE = new URL('../reliability.md', import.meta.url)

/** @throws when the page has no place for it */
export function writeTable(name: string, table: Table): void {
  writeFileSync(PAGE, withTable(readFileSync(PAGE, 'utf8'), name, table))
}

export function withTable(page: string, name: string, table: Table): string {
  const start = `<!-- table: ${name} -->\n`
  const from = page.indexOf(start)
  const to = page.indexOf('<!-- end -->', from)
  if (from < 0 || to < 0) throw new Error(`The page has no table ${name}.`)
  return `${page.slice(0, from + start.length)}${markdownOf(table)}\n${page.slice(to)}`
}
