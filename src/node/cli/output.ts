/** What commands print: tables and times for people, or one JSON document. */

/** Columns as wide as their widest cell. Text of others cannot move the cursor. */
export function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [headings, ...rows].map(row => row.map(cell => cell.replace(/\p{Cc}/gu, '?')))
  const widths = headings.map((_, i) => Math.max(...lines.map(row => row[i]!.length)))
  return lines
    .map(row =>
      row
        .map((cell, i) => cell.padEnd(widths[i]!))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
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
  return `${time(date)} (${left > 0 ? `in ${about(left * 1000)}` : 'over'})`
}

const UNITS = [
  ['d', 86400e6],
  ['h', 3600e6],
  ['min', 60e6],
  ['s', 1e6],
  ['ms', 1e3],
] as const

/** Of microseconds, as a person would say it: `23 h`, `90 s`, `5 ms`. */
export function about(microseconds: number): string {
  const [name, unit] = UNITS.find(([, unit]) => microseconds >= 1.995 * unit) ?? ['ms', 1e3]
  return `${Math.max(1, Math.round(microseconds / unit))} ${name}`
}

/** The same of a period, which is never rounded: `1 h`, `90 s`. */
export function exactly(microseconds: number): string {
  const [name, unit] = UNITS.find(([, unit]) => microseconds % unit === 0) ?? ['ms', 1e3]
  return `${microseconds / unit} ${name}`
}
