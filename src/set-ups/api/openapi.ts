/**
 * Makes the OpenAPI document from the routes that are served, the schemas that check their input, and openapi-operations.ts. docs/openapi.json
 * is that of all routes.
 */
import { SCOPE_NAMES } from '../../scopes.ts'
import { API_PATH } from './create-api.ts'
import { MAX_ITEMS } from './cursor.ts'
import type { InputSchema } from './json-schema.ts'
import { COMPONENTS, operationOf, TAGS } from './openapi-operations.ts'
import { PROBLEMS } from './problems.ts'
import { type Route, scopesOf } from './route.ts'
import { PAGE_SIZE } from './schemas.ts'

/** That of package.json, which a Worker does not carry. A test compares them. */
const VERSION = '0.1.0'

/** @param routes that are served */
export function openApiDocument(routes: readonly Route[]) {
  const paths: Record<string, Record<string, unknown>> = {}
  for (const route of routes) {
    const path = `/${route.path}`
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: documentOf(route) }
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Sluice',
      version: VERSION,
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
          description: `A service token. Its scopes: ${SCOPE_NAMES.join(', ')}, limits:use:<limit>.`,
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

function documentOf(route: Route) {
  const { id, tag, summary, description, result } = operationOf(route)
  const parameters = parametersOf(route)
  return {
    operationId: id,
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
      [route.isCreation ? 201 : 200]: {
        description: 'Done',
        content: { 'application/json': { schema: result } },
      },
      ...Object.fromEntries(
        problemsOf(route).map(status => [status, { $ref: `#/components/responses/${status}` }]),
      ),
    },
  }
}

/** Any one of them is enough. */
export const listOfScopes = (route: Route): readonly string[] =>
  route.kind === 'admin'
    ? scopesOf(route, { name: 'name' }).map(scope => scope.replace(/:name$/, ':{name}'))
    : route.kind === 'limit'
      ? ['limits:use', 'limits:use:{name}']
      : []

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
