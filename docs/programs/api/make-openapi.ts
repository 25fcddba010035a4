/**
 * Makes the OpenAPI document of the API from its routes, the schemas that check its input, and operations.ts: `npm run reference`. It is
 * docs/openapi.json, and what the gateway serves.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { SCOPES } from '../../../src/scope-table.ts'
import { API_PATH } from '../../../src/set-ups/api/create-api.ts'
import { MAX_ITEMS } from '../../../src/set-ups/api/cursor.ts'
import type { InputSchema } from '../../../src/set-ups/api/json-schema.ts'
import { PROBLEMS, type ProblemName, problemType } from '../../../src/set-ups/api/problems.ts'
import { type Route, scopesOf } from '../../../src/set-ups/api/route.ts'
import { ROUTES } from '../../../src/set-ups/api/routes.ts'
import { PAGE_SIZE } from '../../../src/set-ups/api/schemas.ts'
import { markdownOf, type Table } from '../markdown-tables.ts'
import { COMPONENTS, OPERATIONS, TAGS } from './operations.ts'
import { PART_KB } from './part-sizes.ts'

const DOCUMENT = new URL('../../openapi.json', import.meta.url)
const PAGE = new URL('../../api.md', import.meta.url)
const SERVED = new URL('../../../src/set-ups/api/openapi.generated.ts', import.meta.url)
const PACKAGE = new URL('../../../package.json', import.meta.url)

const { version } = JSON.parse(readFileSync(PACKAGE, 'utf8')) as { version: string }

export function openApiDocument() {
  const paths: Record<string, Record<string, unknown>> = {}
  for (const route of ROUTES) {
    const path = `/${route.path}`
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operationOf(route) }
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Sluice',
      version,
      summary: 'Limits by name, and the administration of a gateway',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: API_PATH }],
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    security: [{ token: [] }],
    paths,
    components: {
      securitySchemes: {
        credential: {
          type: 'http',
          scheme: 'bearer',
          description: 'What the gateway accepts from callers: an API key, or a token of an issuer.',
        },
        token: {
          type: 'http',
          scheme: 'bearer',
          description: `A service token. Its scopes: ${Object.keys(SCOPES).join(', ')}, limits:use:<limit>.`,
        },
      },
      schemas: COMPONENTS,
      parameters: {
        IdempotencyKey: {
          name: 'Idempotency-Key',
          in: 'header',
          description:
            'A repeat within a day creates nothing twice: 409 with the id of what the first request has created.',
          schema: { type: 'string', minLength: 1, maxLength: 255 },
        },
        Reason: {
          name: 'Sluice-Reason',
          in: 'header',
          description: 'Why the change is made.',
          schema: { type: 'string', minLength: 1, maxLength: 100 },
        },
      },
      responses: Object.fromEntries(
        Object.values(PROBLEMS)
          // No operation has it: the method is what is wrong.
          .filter(({ status }) => status !== 405)
          .map(({ status }) => [String(status), responseTo(status)]),
      ),
    },
  }
}

function responseTo(status: number) {
  const titles = Object.values(PROBLEMS).flatMap(each => (each.status === status ? each.title : []))
  const headers = {
    ...(status === 429 || status === 503 ? { 'Retry-After': { schema: { type: 'string' } } } : {}),
  }
  return {
    description: titles.join('; '),
    ...(Object.keys(headers).length > 0 && { headers }),
    content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
  }
}

function operationOf(route: Route) {
  const operation = OPERATIONS[route.id]
  if (!operation) throw new Error(`operations.ts has no ${route.id}.`)
  const { tag, summary, description, result } = operation
  const parameters = parametersOf(route)
  return {
    operationId: route.id,
    tags: [tag],
    summary,
    ...(description && { description }),
    ...(route.kind === 'open'
      ? { security: [] }
      : route.kind === 'own'
        ? { security: [{ credential: [] }] }
        : { 'x-scopes': listOfScopes(route) }),
    ...(parameters.length > 0 && { parameters }),
    ...(route.body && {
      requestBody: { required: true, content: { 'application/json': { schema: route.body } } },
    }),
    responses: {
      [route.status ?? 200]: { description: 'Done', content: { 'application/json': { schema: result } } },
      ...Object.fromEntries(
        problemsOf(route).map(status => [status, { $ref: `#/components/responses/${status}` }]),
      ),
    },
  }
}

/** Any one of them is enough. */
export const listOfScopes = (route: Route): readonly string[] =>
  route.kind === 'open' || route.kind === 'own'
    ? []
    : route.kind === 'limit'
      ? ['limits:use', 'limits:use:{name}']
      : scopesOf(route, { name: 'name' }).map(scope => scope.replace(/:name$/, ':{name}'))

/** The statuses of the problems that an operation can have. */
function problemsOf({ kind, path, body, method }: Route): number[] {
  if (kind === 'open') return [404, 500]
  if (kind === 'own') return [400, 401, 403, 429, 500, 503]
  return [
    ...[400, 401, 403, 404],
    ...(kind === 'admin' && method !== 'GET' ? [409] : []),
    ...(body ? [413, 415] : []),
    ...(path === 'stats' || (kind === 'limit' && !path.endsWith('/renew')) ? [] : [422]),
    ...[429, 500, 503],
  ]
}

function parametersOf({ path, query, isCreation, kind, method }: Route): unknown[] {
  const ofPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    ...{ name, in: 'path', required: true },
    schema: { type: 'string', minLength: 1 },
  }))
  const { properties = {} } = query ?? {}
  const ofQuery = Object.entries(properties).map(([name, schema]) => ({
    ...{ name, in: 'query' },
    schema: valueInQuery(schema),
  }))
  return [
    ...ofPath,
    ...ofQuery,
    ...(isCreation ? [{ $ref: '#/components/parameters/IdempotencyKey' }] : []),
    ...(kind === 'admin' && method !== 'GET' ? [{ $ref: '#/components/parameters/Reason' }] : []),
  ]
}

/** What the text in a query stands for, so that typed clients take numbers and booleans. */
function valueInQuery(schema: InputSchema): InputSchema {
  if (String(schema.enum) === 'true,false') return { type: 'boolean' }
  if (schema.pattern === PAGE_SIZE) return { type: 'integer', minimum: 1, maximum: MAX_ITEMS }
  return schema
}

/** The tables of docs/api.md. */
const TABLES: Readonly<Record<string, () => Table>> = {
  scopes: () => ({
    head: ['scope', 'permits to'],
    rows: Object.entries(SCOPES).map(([name, permits]) => [`\`${name}\``, permits]),
  }),
  routes: () => ({
    head: ['request', 'does', 'scope'],
    rows: ROUTES.map(route => [
      `\`${route.method} ${route.path}\``,
      OPERATIONS[route.id]!.summary,
      listOfScopes(route)
        .map(scope => `\`${scope}\``)
        .join(' or ') || (route.kind === 'own' ? 'an API key' : 'none'),
    ]),
  }),
  sizes: () => ({
    head: ['part alone', 'kB (gzip)'],
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

/** docs/api.md with its tables as they should be. */
export const withApiTables = (page: string): string =>
  page.replace(
    /(<!-- table: (\w+) -->\n).*?(<!-- end -->)/gs,
    (_, start, name, end) => `${start}${markdownOf(TABLES[name]!())}\n${end}`,
  )

/** The text of docs/openapi.json. */
export const documentText = () => `${JSON.stringify(openApiDocument(), null, 2)}\n`

/** The module with the document that the gateway serves. */
export function servedModule(): string {
  const text = JSON.stringify(openApiDocument())
  return `// Made by \`npm run reference\` from the routes and their schemas. Do not edit.\nexport const OPENAPI = ${JSON.stringify(text)}\n`
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(DOCUMENT, documentText())
  writeFileSync(SERVED, servedModule())
  writeFileSync(PAGE, withApiTables(readFileSync(PAGE, 'utf8')))
  console.log(`Made ${fileURLToPath(DOCUMENT)}.`)
}
