/**
 * Makes the OpenAPI document from the routes that are served, the schemas that check their input, and operations/. docs/openapi.json is that of
 * all routes.
 */
import { scopesForLimit } from '../../scopes.ts'
import { API_PATH } from './create-api.ts'
import { MAX_ITEMS } from './cursor.ts'
import { type InputSchema, text } from './json-schema.ts'
import { PROBLEM } from './operations/problem.ts'
import { PROBLEMS } from './problems.ts'
import { createReplySchemas, type PartOperations, type RefTo } from './reply-schemas.ts'
import { type Route, scopesOf } from './route.ts'
import { PAGE_SIZE } from './schemas.ts'

/** That of package.json, which a Worker does not carry. A test compares them. */
const VERSION = '0.1.0'

const ABOUT_IDEMPOTENCY_KEY =
  'A repeat within a day creates nothing twice: 409 with the id of what the first request has created.'

type Components = Record<Parameters<RefTo>[0], Record<string, unknown>>

/**
 * @param routes that are served
 * @param parts what the document says about them
 * @throws Error for a route or a type that the parts lack
 */
export function openApiDocument(routes: readonly Route[], parts: readonly PartOperations[]) {
  const operations: PartOperations['operations'] = merged(parts.map(each => each.operations))
  const components: Components = { schemas: {}, parameters: {}, responses: {} }
  // A component is in the document if an operation refers to it.
  const refTo: RefTo = (kind, name, create) => {
    components[kind][name] ??= create()
    return { $ref: `#/components/${kind}/${name}` }
  }
  const schemaOf = createReplySchemas(merged([PROBLEM, ...parts.map(each => each.schemas)]), refTo)

  const problem = (status: number) =>
    refTo('responses', String(status), () => ({
      description: titlesOf(status),
      ...((status === 429 || status === 503) && {
        headers: { 'Retry-After': { schema: { type: 'string' } } },
      }),
      ...contentOf(schemaOf('Problem'), 'application/problem+json'),
    }))

  const header = (name: string, maxLength: number, description?: string) =>
    refTo('parameters', name, () => ({ name, in: 'header', description, schema: text(maxLength) }))

  function documentOf(route: Route) {
    const { kind, method, path, query, body, isCreation } = route
    const [tag = ''] = path.split(/[/.]/)
    const operation = operations[`${method} ${path}`]
    if (!operation) throw new Error(`operations/ has no ${method} ${path}.`)
    const [operationId, reply, summary, description] = operation
    return {
      ...{ operationId, summary, description },
      tags: [tag],
      security:
        kind === 'own' ? [{ credential: [] }] : listOfScopes(route).map(scope => ({ token: [scope] })),
      parameters: [
        ...[...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
          ...{ name, in: 'path', required: true },
          schema: { type: 'string', minLength: 1 },
        })),
        ...Object.entries(query?.properties ?? {}).map(([name, schema]) => ({
          ...{ name, in: 'query' },
          schema: valueInQuery(schema),
        })),
        ...(isCreation ? [header('Idempotency-Key', 255, ABOUT_IDEMPOTENCY_KEY)] : []),
        ...(kind === 'admin' && method !== 'GET' ? [header('Sluice-Reason', 100)] : []),
      ],
      ...(body && { requestBody: { required: true, ...contentOf(body) } }),
      responses: {
        [isCreation ? 201 : 200]: { description: 'Done', ...contentOf(schemaOf(reply)) },
        ...Object.fromEntries(problemsOf(route).map(status => [status, problem(status)])),
      },
    }
  }

  const paths: Record<string, Record<string, ReturnType<typeof documentOf>>> = {}
  for (const route of routes) {
    const path = `/${route.path}`
    paths[path] ??= {}
    paths[path][route.method.toLowerCase()] = documentOf(route)
  }
  return {
    openapi: '3.1.0',
    info: {
      ...{ title: 'Sluice', version: VERSION, license: { name: 'MIT', identifier: 'MIT' } },
      summary: 'Limits by name, and the administration of a gateway',
    },
    servers: [{ url: API_PATH }],
    paths,
    components: {
      ...components,
      securitySchemes: {
        credential: bearer('An API key, or a token of an issuer.'),
        token: bearer('A service token.'),
      },
    },
  }
}

const merged = <T>(tables: readonly Readonly<Record<string, T>>[]): Record<string, T> =>
  Object.assign({}, ...tables)

const contentOf = (schema: unknown, type = 'application/json') => ({ content: { [type]: { schema } } })

const bearer = (description: string) => ({ type: 'http', scheme: 'bearer', description })

const titlesOf = (status: number) =>
  Object.values(PROBLEMS)
    .flatMap(each => (each.status === status ? each.title : []))
    .join('; ')

/** Any one of them is enough. */
export function listOfScopes(route: Route): readonly string[] {
  const scopes =
    route.kind === 'admin'
      ? scopesOf(route, { name: 'name' })
      : route.kind === 'limit'
        ? scopesForLimit('name')
        : []
  return scopes.map(scope => scope.replace(/:name$/, ':{name}'))
}

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

/** What the text in a query stands for, so that typed clients take numbers and booleans. */
function valueInQuery(schema: InputSchema): InputSchema {
  if (String(schema.enum) === 'true,false') return { type: 'boolean' }
  if (schema.pattern === PAGE_SIZE) return { type: 'integer', minimum: 1, maximum: MAX_ITEMS }
  return schema
}
