/** The schemas of replies in the OpenAPI document, and the notation in which operations/ states them. */
/** JSON Schema 2020-12. */
export type JsonSchema = Readonly<Record<string, unknown>>

/** What the document says about an operation, in addition to its route. `reply`: the type of its success, as of a member. */
export type Operation = readonly [id: string, reply: string, summary: string, description?: string]

/** What the document says about the routes of a part of the API. */
export interface PartOperations {
  /** By the method and the path of the route. */
  operations: Readonly<Record<string, Operation>>
  /**
   * The members of the objects in replies, by the name that generated clients give them: `id plan? "Absent: none." scopes:string[]`. `?`: may
   * be absent. `...Key`: the members of Key. Types: `string` (if none is written), `integer`, `number`, `boolean`, `time`, `object`, one of
   * the words `(live|test)`, another object, `Key[]` (a list), `{integer}` (values by name), `time|null`.
   */
  schemas: Readonly<Record<string, string>>
}

export const MEMBER = /(\.\.\.)?([\w-]+)(\??)(?::(\([^)]+\)|\S+))?(?:\s+"([^"]+)")?/g

/** Refers to a component, and creates it for the first reference. */
export type RefTo = (
  kind: 'schemas' | 'parameters' | 'responses',
  name: string,
  create: () => unknown,
) => JsonSchema

interface ObjectSchema extends JsonSchema {
  properties: Readonly<Record<string, JsonSchema>>
  required: readonly string[]
}

/** @returns what makes the schema of a type @throws Error for an object without a notation */
export function createReplySchemas(notations: PartOperations['schemas'], refTo: RefTo) {
  function schemaOf(type: string): JsonSchema {
    const inner = type.slice(1, -1)
    if (type.startsWith('(')) return { type: 'string', enum: inner.split('|') }
    if (type.startsWith('{')) return { type: 'object', additionalProperties: schemaOf(inner) }
    if (type.includes('|')) return { anyOf: type.split('|').map(schemaOf) }
    if (type.endsWith('[]')) return { type: 'array', items: schemaOf(type.slice(0, -2)) }
    if (type === 'time') return { type: 'string', format: 'date-time' }
    if (/^[a-z]/.test(type)) return { type }
    return refTo('schemas', type, () => objectOf(type))
  }

  function objectOf(name: string): ObjectSchema {
    const notation = notations[name]
    if (!notation) throw new Error(`No reply has the type ${name}.`)
    const properties: Record<string, JsonSchema> = {}
    const required: string[] = []
    for (const [, dots, member = '', mark, type = 'string', description] of notation.matchAll(MEMBER)) {
      if (dots) {
        const base = objectOf(member)
        Object.assign(properties, base.properties)
        required.push(...base.required)
      } else {
        properties[member] = { ...schemaOf(type), ...(description && { description }) }
        if (!mark) required.push(member)
      }
    }
    return { type: 'object', properties, required }
  }

  return schemaOf
}
