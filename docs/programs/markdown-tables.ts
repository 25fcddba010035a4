/** Tables of the pages that scripts write: docs/config.md, docs/internals/reliability.md, bench/results.md. */
import { markdownTable } from 'markdown-table'

export interface Table {
  head: readonly string[]
  rows: readonly (readonly string[])[]
}

/** Cells can hold any text on one line. `isAligned` pads them, for tables that are also read in a terminal. */
export function markdownOf({ head, rows }: Table, { isAligned = false } = {}): string {
  const escaped = [head, ...rows].map(row => row.map(cell => cell.replaceAll('|', '\\|')))
  return markdownTable(escaped, { alignDelimiters: isAligned })
}
