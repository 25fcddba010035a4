/**
 * Makes the tables of docs/config.md from the schema of the config, the table of identity parts, and their doc comments: `npm run
 * reference`. The text between `<!-- table: … -->` and `<!-- end -->` is generated, and the rest is written by
 * hand; test/docs/config.test.ts checks both.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { markdownOf } from '../markdown-tables.ts'
import { type PartRow, tableOfParts } from './identity-parts.ts'
import { readSettings, type Setting } from './settings.ts'

const PAGE = new URL('../../config.md', import.meta.url)

/** Settings that have a table of their own, each with the link that replaces `object` in other tables. */
const LINKS: Record<string, string> = {
  rules: '[rule](#rules)',
  'rules.match': '[match](#match)',
  'shedding.classes.match': '[match](#match)',
  'shedding.fleetUsage.adaptive': '[adaptive](#adaptive)',
  'rules.adaptive': '[adaptive](#adaptive)',
  'rules.plans': '[numbers](#plans)',
  routes: '[route](#routes)',
  limits: '[rule](#limits)',
  units: '[unit](#units)',
  credentials: '[credentials](#credentials)',
  'credentials.jwt': 'by name: [issuer](#credentialsjwt)',
  address: '[address](#address)',
  allow: '[allow](#allow)',
  block: '[block](#block)',
  store: '[store](#store)',
  log: '[log](#log)',
  stats: '[stats](#stats)',
  shedding: '[shedding](#shedding)',
  cors: '[cors](#cors)',
  'api.cors': '[cors](#cors)',
  hooks: '[hooks](#hooks)',
  headers: '[headers](#headers)',
}

export interface Row extends Setting {
  /** From the start of the table, as in `match.path`. */
  path: string
  /** The variants that have this setting. Absent: it is the same in all variants. */
  of?: readonly string[]
}

export interface Tables {
  /** The rows of each table of settings, by its name. */
  settings: ReadonlyMap<string, readonly Row[]>
  /** What a rule can count by. */
  parts: readonly PartRow[]
}

export function readTables(): Tables {
  const { config, jwt, variables, parts } = readSettings()
  const find = (path: string) => at(config, path.split('.'))
  const rules = rowsOfVariants(find('rules').variants, 'rules')
  const issuers = rowsOfVariants(jwt, 'credentials.jwt')
  const isOfAlgorithm = ({ name, of }: Row) => of !== undefined || name === 'algorithm'
  const texts = new Set(rules.map(row => text(row)))
  const settings = new Map([
    ['config', rowsOf(config)],
    ['rules', rules.filter(row => !isOfAlgorithm(row))],
    ['algorithms', rules.filter(isOfAlgorithm)],
    ['plans', rowsOf(find('rules.plans').settings, 'rules.plans')],
    ['match', rowsOf(find('rules.match').settings, 'rules.match')],
    ['adaptive', rowsOf(find('rules.adaptive').settings, 'rules.adaptive')],
    ['limits', rowsOfVariants(find('limits').variants, 'limits').filter(row => !texts.has(text(row)))],
    ['credentials.jwt', issuers.filter(row => row.of).concat(issuers.filter(row => !row.of))],
    ...[
      'routes',
      'shedding',
      'credentials',
      'address',
      'allow',
      'block',
      'store',
      'log',
      'stats',
      'units',
      'cors',
      'hooks',
      'headers',
    ].map(name => [name, rowsOf(find(name).settings, name)] as const),
    ['environment', rowsOf(variables)],
  ])
  return { settings, parts }
}

function at(settings: readonly Setting[], [name, ...rest]: readonly string[]): Setting {
  const all = [...settings, ...(settings[0]?.variants.values() ?? [])].flat()
  const found = all.find(setting => setting.name === name)
  if (!found) throw new Error(`There is no setting ${name}.`)
  return rest.length === 0 ? found : at(innerOf(found), rest)
}

function innerOf({ settings, variants }: Setting): readonly Setting[] {
  return [...settings, ...[...variants.values()].flat()]
}

/** Objects without a table of their own are described by their settings. */
function rowsOf(settings: readonly Setting[], place = '', prefix = ''): Row[] {
  return settings.flatMap(setting => {
    const path = `${prefix}${setting.name}`
    const link = LINKS[place ? `${place}.${path}` : path]
    const row = { ...setting, path, value: link ? linked(setting.value, link) : setting.value }
    return link || setting.settings.length === 0
      ? [row]
      : [row, ...rowsOf(setting.settings, place, `${path}.`)]
  })
}

function linked(value: string, link: string): string {
  return value.includes('object') ? value.replace('object', link) : link
}

/** A setting that several variants have gets one row. */
function rowsOfVariants(variants: ReadonlyMap<string, readonly Setting[]>, place: string): Row[] {
  const rows = new Map<string, Row & { of: string[] }>()
  for (const [variant, settings] of variants) {
    for (const row of rowsOf(settings, place)) {
      const isName = row.name === 'algorithm'
      const key = isName ? row.meaning : text(row)
      const same = rows.get(key)
      if (!same) rows.set(key, { ...row, of: [variant] })
      else {
        same.of.push(variant)
        if (isName) same.value += `, ${row.value}`
      }
    }
  }
  const paths = [...rows.values()].map(({ path }) => path)
  return [...rows.values()]
    .sort((a, b) => paths.indexOf(a.path) - paths.indexOf(b.path))
    .map(({ of, ...row }) => (of.length === variants.size || row.name === 'algorithm' ? row : { ...row, of }))
}

function text({ path, value, isRequired, default: usual, meaning }: Row): string {
  return [path, value, isRequired, usual, meaning].join('|')
}

/** The page with its tables as they should be. */
export function withTables(page: string, { settings, parts }: Tables = readTables()): string {
  const tables = new Map([...settings].map(([name, rows]) => [name, tableOf(rows)]))
  tables.set('by', markdownOf(tableOfParts(parts)))
  return page.replace(/(<!-- table: (.+?) -->\n).*?(<!-- end -->)/gs, (_, start, name, end) => {
    const table = tables.get(name)
    if (!table) throw new Error(`There is no table ${name}.`)
    return `${start}${table}\n${end}`
  })
}

function tableOf(rows: readonly Row[]): string {
  const lines = rows.map(row => {
    const of = row.of ? `<br>(${row.of.map(name => `\`${name}\``).join(', ')})` : ''
    const usual = row.isRequired ? '**required**' : row.default
    return [`\`${row.path}\`${of}`, row.value, usual, row.meaning]
  })
  return markdownOf({ head: ['setting', 'value', 'default', 'meaning'], rows: lines })
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const page = readFileSync(PAGE, 'utf8')
  writeFileSync(PAGE, withTables(page))
  console.log(`Made the tables of ${fileURLToPath(PAGE)}.`)
}
