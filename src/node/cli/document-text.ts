/** A JSON document as text for people: a line for each value, a table for each list. Pure. */
import { time } from '../../ops/times.ts'
import { columns, table } from './output.ts'

type Fields = Readonly<Record<string, unknown>>

const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date)

/** Whether a value gets a table: a list of objects. */
const isTable = (value: unknown): value is readonly Fields[] =>
  Array.isArray(value) && value.length > 0 && value.every(isObject)

export function documentText(document: object): string {
  const fields = Object.entries(flat(withDates(document)))
  const lines = fields.filter(([, value]) => !isTable(value))
  const tables = fields.flatMap(([name, value]) =>
    isTable(value) ? [`${inWords(name)}:\n${tableOf(value)}`] : [],
  )
  const text = columns(lines.map(([name, value]) => [inWords(name), cellOf(value)]))
  return [...(text ? [text] : []), ...tables].join('\n\n')
}

/** A table of documents of one kind, with a row for each. */
export const tableOfDocuments = (rows: readonly object[]): string => tableOf(withDates(rows))

function tableOf(rows: readonly Fields[]): string {
  const all = rows.map(row => flat(row))
  const names = [...new Set(all.flatMap(row => Object.keys(row)))]
  return table(
    names.map(name => inWords(name).toUpperCase()),
    all.map(row => names.map(name => (name in row ? cellOf(row[name]) : ''))),
  )
}

/** `{ config: { mode } }` has the field `config.mode`. */
function flat(fields: Fields, prefix = ''): Record<string, unknown> {
  const entries = Object.entries(fields).flatMap(([name, value]) =>
    isObject(value) ? Object.entries(flat(value, `${prefix}${name}.`)) : [[prefix + name, value]],
  )
  return Object.fromEntries(entries)
}

/** `blockedAt` is `blocked at`. */
const inWords = (name: string) => name.replaceAll(/(?<=[a-z])[A-Z]/g, letter => ` ${letter.toLowerCase()}`)

function cellOf(value: unknown): string {
  if (value instanceof Date) return `${time(value)} UTC`
  if (Array.isArray(value) && !value.some(each => typeof each === 'object')) return value.join(', ') || 'none'
  if (value === null) return 'none'
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

/** Names of the times in documents. */
const TIMES = /(?:At|Until)$|^(?:since|until|at|last)$/

/** A document with its times as dates, as the tables of the command line take it. */
export const withDates = <T>(document: unknown): T =>
  JSON.parse(JSON.stringify(document), (name, value: unknown) =>
    TIMES.test(name) && typeof value === 'string' ? new Date(value) : value,
  ) as T
