/** What commands print: tables for people, or one JSON document. */
import { styleText } from 'node:util'
import { Help } from 'commander'
import { printable } from '../../ops/names.ts'

/** Text of a table; `isAlert` where it is shown in red. */
export type Cell = string | { text: string; isAlert: boolean }

export function table(headings: readonly string[], rows: readonly (readonly Cell[])[]): string {
  return columns([headings, ...rows])
}

/** Each column as wide as its widest cell. Invisible characters are replaced, since cells hold text of others. */
export function columns(rows: readonly (readonly Cell[])[], indent = ''): string {
  const cells = rows.map(row => row.map(cellOf))
  const widths = cells[0]?.map((_, i) => Math.max(...cells.map(row => row[i]!.text.length))) ?? []
  const lines = cells.map(row =>
    row.map(({ text, isAlert }, i) => (isAlert ? alert(text) : text) + ' '.repeat(widths[i]! - text.length)),
  )
  return lines.map(line => (indent + line.join('  ')).trimEnd()).join('\n')
}

function cellOf(cell: Cell): { text: string; isAlert: boolean } {
  const { text, isAlert } = typeof cell === 'string' ? { text: cell, isAlert: false } : cell
  return { text: printable(text), isAlert: isAlert && text !== '' }
}

/** A cell in red. */
export const alertCell = (text: string): Cell => ({ text, isAlert: true })

/** Red, for what is denied, blocked or switched off. Like all colors, it is left out if standard output is not a terminal, and with NO_COLOR. */
export const alert = (text: string) => styleText('red', text)

export const success = (text: string) => styleText('green', text)

export const warning = (text: string) => styleText('yellow', text)

/** As `printable`, for a text of several lines. */
export const printableLines = (text: string): string => text.split('\n').map(printable).join('\n')

/** A terminal, or another stream. */
type Screen = Pick<NodeJS.WriteStream, 'isTTY' | 'columns'>

/** Rows of a table, and commands to paste. */
const NOT_WRAPPED = /^ {4}|\S {2,}\S/

/**
 * Breaks sentences between words, because a terminal breaks them anywhere. For another stream, and a terminal of an unknown width (0 in some
 * containers), nothing is changed.
 */
export const wrapped = (text: string, screen: Screen, isKept: RegExp = NOT_WRAPPED): string =>
  screen.isTTY && screen.columns > 0
    ? text
        .split('\n')
        .map(line => (isKept.test(line) ? line : new Help().boxWrap(line, screen.columns)))
        .join('\n')
    : text

/** Prints a message on standard error. It can have texts of another server. */
export const note = (text: string): void => console.error(wrapped(printableLines(text), process.stderr))

/** As `printableLines`. Keeps the colors of `alert` and others. */
export const printableText = (text: string): string =>
  text
    .split(/(\x1b\[\d+m|\n)/)
    .map((part, i) => (i % 2 === 1 ? part : printable(part)))
    .join('')

/** Prints a result: the document as JSON with `--json`, else the text of `human`. Both can have texts of another server. */
export function print(flags: { json?: boolean }, document: unknown, human: () => string): void {
  console.log(flags.json ? jsonText(document, 2) : wrapped(printableText(human()), process.stdout))
}

/** JSON. Characters that change how a terminal shows a text are escaped, also those that JSON permits. @param indent spaces */
export const jsonText = (document: unknown, indent?: number): string =>
  JSON.stringify(document, null, indent).replace(/[\x7f-\x9f\p{Cf}\p{Zl}\p{Zp}]/gu, character =>
    Array.from({ length: character.length }, (_, i) => unicodeEscape(character.charCodeAt(i))).join(''),
  )

const unicodeEscape = (unit: number) => `\\u${unit.toString(16).padStart(4, '0')}`
