/**
 * Compares a reply of the API with the schema that the OpenAPI document has for it, because another server can reply with anything. Members and
 * words that the schema lacks are permitted: a newer gateway can have more of them.
 */
import { COMPONENTS, type JsonSchema } from '../../set-ups/api/openapi-operations.ts'

/** The keywords of the schemas of replies that matter here. */
interface Shape {
  $ref?: string
  anyOf?: readonly JsonSchema[]
  type?: string | readonly string[]
  format?: string
  properties?: Readonly<Record<string, JsonSchema>>
  required?: readonly string[]
  additionalProperties?: JsonSchema
  items?: JsonSchema
}

/** @param place of the value in the reply: empty for all of it @returns the place of the first value that has another type, or is missing */
export function misshapenPlace(schema: JsonSchema, value: unknown, place = ''): string | undefined {
  const { $ref, anyOf, type, format, ...parts }: Shape = schema
  if ($ref !== undefined) return misshapenPlace(COMPONENTS[$ref.slice(REF.length)]!, value, place)
  if (anyOf) return anyOf.some(each => misshapenPlace(each, value) === undefined) ? undefined : place
  const found = typeOf(value)
  const types = [type ?? found].flat()
  if (!types.includes(found) && !(found === 'integer' && types.includes('number'))) return place
  if (format === 'date-time' && found === 'string' && !isTime(value as string)) return place
  if (found === 'array') return firstOf((value as unknown[]).entries(), () => parts.items ?? {}, place)
  return found === 'object' ? misshapenMember(parts, value as Members, place) : undefined
}

const REF = '#/components/schemas/'

type Members = Readonly<Record<string, unknown>>

function misshapenMember(
  { properties = {}, required = [], additionalProperties = {} }: Shape,
  value: Members,
  place: string,
): string | undefined {
  const missing = required.find(name => !Object.hasOwn(value, name))
  if (missing !== undefined) return `${place}/${missing}`
  const schemaOf = (name: string) =>
    Object.hasOwn(properties, name) ? properties[name]! : additionalProperties
  return firstOf(Object.entries(value), schemaOf, place)
}

function firstOf<Name extends string | number>(
  entries: Iterable<[Name, unknown]>,
  schemaOf: (name: Name) => JsonSchema,
  place: string,
): string | undefined {
  for (const [name, value] of entries) {
    const found = misshapenPlace(schemaOf(name), value, `${place}/${name}`)
    if (found !== undefined) return found
  }
  return undefined
}

function typeOf(value: unknown): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'array'
  return Number.isInteger(value) ? 'integer' : typeof value
}

/** ISO 8601, as the API writes times. Without the form, `Date` also reads other texts. */
const isTime = (text: string) => /^\d{4}-\d\d-\d\dT/.test(text) && !Number.isNaN(Date.parse(text))
