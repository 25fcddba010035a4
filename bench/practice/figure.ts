/** What each program of this folder returns: a section of bench/practice.md. */
import type { Table } from '../../docs/programs/markdown-tables.ts'

export interface Figure {
  /** What was published and where; what was modelled or measured, against what; what is scaled. */
  sentences: readonly string[]
  table: Table
}

/** 2026-11-20T12:00:00Z in µs, when modelled time begins: windows of a second, a minute and an hour begin there, too. */
export const NOON = Date.UTC(2026, 10, 20, 12) * 1e3

/** A share of a whole, for a cell. */
export function percent(part: number, whole: number, digits = 1): string {
  return `${((100 * part) / whole).toFixed(digits)}%`
}

export const count = (n: number) => n.toLocaleString('en')
