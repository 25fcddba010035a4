/** The schemas of replies in the OpenAPI document, and the notation in which operations/ states them. */
import { anyOf, type InputSchema, object, oneOf } from './json-schema.ts'

/** What the document says about an operation, in addition to its route. `reply`: the type of its success. */
export type Operation = readonly [id: string, reply: string, summary: string, description?: string]

/** What the document says about the routes of a part of the API. */
export interface PartOperations {
  /** By the method and the path of the route. */
  operations: Readonly<Record<string, Operation>>
  /**
   * The members of objects in replies, by the name that generated clients give these: `id, createdAt: time, plan? "Absent: none.", ...Settings`.
   * `?`: it can be absent. `"…"`: its description. `...Settings`: the members of Settings. Types: `string` (also if none is stated), `integer`,
   * `number`, `boolean`, `object`, `time`, one of the words `(live|test)`, an object of this table, a list `Key[]`, values by name `{integer}`,
   * alternatives `time|null`.
   */
  schemas: Readonly<Record<string, string>>
}

interface ReplySchema extends InputSchema {
  readonly format?: 'date-time'
  readonly $ref?: string
  readonly description?: string
}

/** A member, with the comma after it. */
const MEMBER = /(?:\.\.\.(\w+)|([\w-]+\??)(?:: ([^",]+?))?(?:\s+"([^"\n]+)")?)(?:,\s+|$)/gy

/** Refers to a component. Creates it for the first reference. */
export type RefTo = (
  kind: 'schemas' | 'parameters' | 'responses',
  name: string,
  create: () => unknown,
) => { $ref: string }

const isJsonType = (type: string): type is NonNullable<InputSchema['type']> =>
  /^(string|integer|number|boolean|object|null)$/.test(type)

/** @returns what makes the schema of a type @throws Error for a type that does not exist, and for a member that is not in the notation */
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
    if (!text) throw new Error(`operations/ has no type ${name}.`)
    const rest = text.replaceAll(MEMBER, '')
    if (rest) throw new Error(`operations/ has a mistake in ${name}: ${rest}`)
    return Object.assign(
      {},
      ...Array.from(text.matchAll(MEMBER), ([, base, member = '', type = 'string', description]) =>
        base ? membersOf(base) : { [member]: { ...schemaOf(type), description } },
      ),
    )
  }

  return schemaOf
}
