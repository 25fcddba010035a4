/** What commands print: tables and times for people, or one JSON document. */
import { formatWait } from '../../config/duration.ts'

export function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  return columns([headings, ...rows])
}

/** Each column as wide as its widest cell. Control characters are replaced, since cells hold text of others. */
export function columns(rows: readonly (readonly string[])[], indent = ''): string {
  const lines = rows.map(row => row.map(cell => cell.replace(/\p{Cc}/gu, '?')))
  const widths = lines[0]?.map((_, i) => Math.max(...lines.map(row => row[i]!.length))) ?? []
  const padded = lines.map(row => row.map((cell, i) => cell.padEnd(widths[i]!)))
  return padded.map(row => (indent + row.join('  ')).trimEnd()).join('\n')
}

/** @param human what people read, where no JSON is asked for */
export function print(flags: { json?: boolean }, document: unknown, human: () => string): void {
  console.log(flags.json ? JSON.stringify(document, null, 2) : human())
}

/** `2026-11-21 06:00` (UTC) */
export function time(date: Date): string {
  return date.toISOString().slice(0, 16).replace('T', ' ')
}

/** `2026-11-21 06:00 (in 23 h)` */
export function timeAhead(date: Date, now = Date.now()): string {
  const left = date.getTime() - now
  return `${time(date)} (${left > 0 ? `in ${formatWait(left * 1000)}` : 'over'})`
}
