/** The OpenAPI document of all routes, with its texts (openapi-texts.ts). */
import { SCOPE_NAMES } from '../../../src/scopes.ts'
import type { InputSchema } from '../../../src/set-ups/api/json-schema.ts'
import { openApiDocument } from '../../../src/set-ups/api/openapi.ts'
import { API_OPERATIONS } from '../../../src/set-ups/api/openapi-operations.ts'
import { ROUTES } from '../../../src/set-ups/api/routes.ts'
import { MEMBERS, OPERATIONS, PARAMETERS, TAGS } from './openapi-texts.ts'

/** The document as a Worker with all parts serves it. */
export const servedDocument = () => openApiDocument(ROUTES, Object.values(API_OPERATIONS))

/** @throws Error for an operation without a summary, and for a text of something that is not in the document */
export function describedDocument() {
  const { info, servers, paths, components, ...rest } = servedDocument()
  const { description: _, ...about } = info
  const unused = new Set([
    ...Object.keys(OPERATIONS),
    ...Object.keys(TAGS),
    ...Object.keys(PARAMETERS),
    ...Object.entries(MEMBERS).flatMap(([schema, members]) =>
      Object.keys(members).map(member => `${schema}.${member}`),
    ),
  ])
  const use = (name: string) => unused.delete(name)

  const described = mapValues(paths, path =>
    mapValues(path, operation => {
      const { operationId, ...others } = operation
      const texts = OPERATIONS[operationId]
      if (!texts) throw new Error(`openapi-texts.ts has no summary of ${operationId}.`)
      use(operationId)
      const [summary, description] = texts
      for (const tag of others.tags) use(tag)
      return { operationId, summary, ...(description && { description }), ...others }
    }),
  )
  const schemas = mapValues(components.schemas as Record<string, InputSchema>, (schema, name) => ({
    ...schema,
    properties: mapValues(schema.properties!, (member, memberName) => {
      const description = MEMBERS[name]?.[memberName]
      if (description) use(`${name}.${memberName}`)
      return { ...member, ...(description && { description }) }
    }),
  }))
  const parameters = mapValues(components.parameters as Record<string, object>, (parameter, name) => {
    use(name)
    return { ...parameter, description: PARAMETERS[name] }
  })
  if (unused.size > 0) throw new Error(`openapi-texts.ts has texts that nothing needs: ${[...unused]}.`)
  const { credential, token } = components.securitySchemes
  return {
    ...rest,
    info: { ...about, summary: 'Limits by name, and the administration of a gateway' },
    servers,
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    paths: described,
    components: {
      schemas,
      parameters,
      responses: components.responses,
      securitySchemes: {
        credential: {
          ...credential,
          description: 'What the gateway accepts from callers: an API key, or a token of an issuer.',
        },
        token: {
          ...token,
          description: `A service token. Its scopes: ${SCOPE_NAMES.join(', ')}, limits:use:<limit>.`,
        },
      },
    },
  }
}

const mapValues = <T, R>(table: Readonly<Record<string, T>>, map: (value: T, name: string) => R) =>
  Object.fromEntries(Object.entries(table).map(([name, value]) => [name, map(value, name)]))
