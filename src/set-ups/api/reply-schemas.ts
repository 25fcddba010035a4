/** The schemas of replies in the OpenAPI document, and the notation in which operations/ states them. */
import { anyOf, type InputSchema, object, oneOf } from './json-schema.ts'

/** What the document says about the routes of a part of the API, in addition to the routes. */
export interface PartOperations {
  /** By the method and the path of the route: the id of the operation, and the type of its success, as in `listKeys KeyPage`. */
  operations: Readonly<Record<string, string>>
  /**
   * The members of objects in replies, by the name that generated clients give these: `id, plan?, createdAt: time, ...Settings`. `?`: it can be
   * absent. `...Settings`: the members of Settings. Types: `string` (also if none is stated), `integer`, `number`, `boolean`, `object`, `time`,
   * one of the words `(live|test)`, an object of this table, a list `Key[]`, values by name `{integer}`, alternatives `time|null`.
   */
  schemas: Readonly<Record<string, string>>
}

interface ReplySchema extends InputSchema {
  readonly format?: 'date-time'
  readonly $ref?: string
}

/** Refers to a component. Creates it for the first reference. */
export type RefTo = (
  kind: 'schemas' | 'parameters' | 'responses',
  name: string,
  create: () => unknown,
) => { $ref: string }

const JSON_TYPES = ['string', 'integer', 'number', 'boolean', 'object', 'null'] as const
type JsonType = (typeof JSON_TYPES)[number]
const isJsonType = (type: string): type is JsonType => JSON_TYPES.includes(type as JsonType)

/** @returns what makes the schema of a type @throws Error for a type that is not known */
export function createReplySchemas(members: PartOperations['schemas'], refTo: RefTo) {
  function schemaOf(type: string): ReplySchema {
    const inner = type.slice(1, -1)
    if (type.startsWith('(')) return oneOf(...inner.split('|'))
    if (type.startsWith('{')) return { type: 'object', additionalProperties: schemaOf(inner) }
    if (type.includes('|')) return anyOf(...type.split('|').map(schemaOf))
    if (type.endsWith('[]')) return { type: 'array', items: schemaOf(type.slice(0, -2)) }
    if (type === 'time') return { type: 'string', format: 'date-time' }
    if (isJsonType(type)) return { type }
    return refTo('schemas', type, () => {
      // Later versions can add members.
      const { additionalProperties: _, ...schema } = object(membersOf(type))
      return schema
    })
  }

  function membersOf(name: string): Record<string, ReplySchema> {
    const text = members[name]
    if (!text) throw new Error(`src/set-ups/api/operations/ has no type ${name}.`)
    return Object.assign(
      {},
      ...text.split(/,\s+/).map(member => {
        if (member.startsWith('...')) return membersOf(member.slice(3))
        const [name = '', type = 'string'] = member.split(': ')
        return { [name]: schemaOf(type) }
      }),
    )
  }

  return schemaOf
}
