/** Writes docs/openapi.json, the document of all routes of the API (src/set-ups/api/openapi.ts), and the tables of docs/api-reference.md: `npm run reference`. */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { SCOPES } from '../../../src/scope-table.ts'
import { listOfScopes, openApiDocument } from '../../../src/set-ups/api/openapi.ts'
import { API_OPERATIONS, operationOf } from '../../../src/set-ups/api/openapi-operations.ts'
import { PROBLEMS, type ProblemName, problemType } from '../../../src/set-ups/api/problems.ts'
import { ROUTES } from '../../../src/set-ups/api/routes.ts'
import { markdownOf, type Table } from '../markdown-tables.ts'
import { PART_KB } from './part-sizes.ts'

const DOCUMENT = new URL('../../openapi.json', import.meta.url)
const PAGE = new URL('../../api-reference.md', import.meta.url)

/** The tables of docs/api-reference.md. */
const TABLES: Readonly<Record<string, () => Table>> = {
  scopes: () => ({
    head: ['scope', 'permits to'],
    rows: Object.entries(SCOPES).map(([name, permits]) => [`\`${name}\``, permits]),
  }),
  routes: () => ({
    head: ['request', 'does', 'scope'],
    rows: ROUTES.map(route => [
      `\`${route.method} ${route.path}\``,
      operationOf(route).summary,
      listOfScopes(route)
        .map(scope => `\`${scope}\``)
        .join(' or ') || (route.kind === 'own' ? 'an API key' : 'none'),
    ]),
  }),
  sizes: () => ({
    head: ['part', 'kB (gzip)'],
    rows: Object.entries(PART_KB).map(([part, kB]) => [
      `\`${part}\``.replace('`usual`', '`api: {}`').replace('`all`', 'all parts'),
      String(Math.round(kB)),
    ]),
  }),
  problems: () => ({
    head: ['type', 'status', 'meaning'],
    rows: Object.entries(PROBLEMS).map(([name, { status, title }]) => [
      `\`${problemType(name as ProblemName)}\``,
      String(status),
      title,
    ]),
  }),
}

/** docs/api-reference.md with its tables as they should be. */
export const withApiTables = (page: string): string =>
  page.replace(
    /(<!-- table: (\w+) -->\n).*?(<!-- end -->)/gs,
    (_, start, name, end) => `${start}${markdownOf(TABLES[name]!())}\n${end}`,
  )

/** What a Worker with all parts of the API serves. */
export const wholeDocument = () => openApiDocument(ROUTES, Object.values(API_OPERATIONS))

/** The text of docs/openapi.json. */
export const documentText = () => `${JSON.stringify(wholeDocument(), null, 2)}\n`

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(DOCUMENT, documentText())
  writeFileSync(PAGE, withApiTables(readFileSync(PAGE, 'utf8')))
  console.log(`Made ${fileURLToPath(DOCUMENT)}.`)
}
