/** A value that a schema of the OpenAPI document permits, with all of its members. */
import { COMPONENTS, type JsonSchema } from '../../src/set-ups/api/openapi-operations.ts'

interface Schema {
  $ref?: string
  anyOf?: JsonSchema[]
  type?: string | string[]
  enum?: string[]
  format?: string
  properties?: Record<string, JsonSchema>
  additionalProperties?: JsonSchema
  items?: JsonSchema
}

interface Choices {
  /** Each text, and a member of each object that the schema does not have. */
  text: string
  /** Whether words are those of the schema, flags true, and what can be null is null. */
  isKnown?: boolean
}

export function exampleOf(schema: JsonSchema, choices: Choices): unknown {
  const { text, isKnown = false } = choices
  const { $ref, anyOf, type, format, items, properties = {}, ...more }: Schema = schema
  if ($ref) return exampleOf(COMPONENTS[$ref.split('/').at(-1)!]!, choices)
  if (anyOf) return exampleOf(anyOf.at(isKnown ? -1 : 0)!, choices)
  const kind = [type ?? 'null'].flat().at(isKnown ? -1 : 0)
  if (kind === 'object') {
    // Lists would have no end.
    const known = Object.entries(properties).filter(([name]) => name !== 'cursor')
    const further: [string, JsonSchema] = [text, more.additionalProperties ?? { type: 'string' }]
    return Object.fromEntries([...known, further].map(([name, each]) => [name, exampleOf(each, choices)]))
  }
  if (kind === 'array') return [exampleOf(items!, choices)]
  if (kind === 'string')
    return format === 'date-time' ? '2090-01-02T03:04:05.000Z' : (isKnown && more.enum?.[0]) || text
  return kind === 'null' ? null : kind === 'boolean' ? isKnown : 90_000
}
