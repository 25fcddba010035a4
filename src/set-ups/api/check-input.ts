/** Checks input against a schema. No message repeats a value, because it may be a secret. */
import type { InputSchema } from './json-schema.ts'
import { ApiError, type InputMistake } from './problems.ts'

/** More mistakes than this are not listed. */
const MAX_MISTAKES = 20

/** @param prefix of the pointers: empty for a body, `?` for the query @throws ApiError `invalid-input` that lists the mistakes */
export function checkInput<T>(schema: InputSchema<T>, input: unknown, prefix = ''): T {
  const errors = mistakesIn(schema, input, prefix).slice(0, MAX_MISTAKES)
  if (errors.length === 0) return input as T
  const what = prefix === '?' ? 'query' : 'body'
  throw new ApiError('invalid-input', `The ${what} of the request has a mistake.`, { extra: { errors } })
}

function mistakesIn(schema: InputSchema, value: unknown, pointer: string): InputMistake[] {
  // Of alternatives, the one that is meant is that of the same type.
  const meant = (schema.anyOf ?? [schema]).find(each => isOfType(each, value))
  if (!meant) return [{ pointer, detail: `Wrong type or value. Use ${nameOf(schema)}.` }]
  const detail = detailOf(meant, value)
  const { items } = meant
  return [
    ...(detail ? [{ pointer, detail }] : []),
    ...(items ? (value as unknown[]).flatMap((item, i) => mistakesIn(items, item, `${pointer}/${i}`)) : []),
    ...(meant.type === 'object' ? mistakesInMembers(meant, value as Members, pointer) : []),
  ]
}

type Members = Readonly<Record<string, unknown>>

function mistakesInMembers(schema: InputSchema, value: Members, parent: string): InputMistake[] {
  const { properties = {}, required = [], propertyNames = {}, additionalProperties = {} } = schema
  return Object.keys({ ...properties, ...value }).flatMap(name => {
    const pointer =
      parent === '?' ? `?${name}` : `${parent}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`
    if (!Object.hasOwn(value, name))
      return required.includes(name) ? { pointer, detail: 'Missing. Add it.' } : []
    const member = Object.hasOwn(properties, name) ? properties[name]! : additionalProperties
    // Code that reads a member by its name could take one such as `constructor` for what every object has.
    if (!member || name in Object.prototype) return { pointer, detail: 'Unknown member. Leave it out.' }
    return [...mistakesIn(propertyNames, name, pointer), ...mistakesIn(member, value[name], pointer)]
  })
}

/** What is wrong with a value of the right type. */
function detailOf(schema: InputSchema, value: unknown): string | undefined {
  const {
    pattern,
    minimum,
    maximum,
    minLength,
    minItems = minLength,
    maxLength,
    maxItems = maxLength,
  } = schema
  const { length } = Object(value) as string | unknown[]
  const number = value as number
  if (pattern !== undefined && !new RegExp(pattern).test(value as string))
    return `Wrong form. Use text of the form /${pattern}/.`
  if (minimum !== undefined && number < minimum) return `Too low. The least value is ${minimum}.`
  if (maximum !== undefined && number > maximum) return `Too high. The greatest value is ${maximum}.`
  if (minItems !== undefined && length < minItems) return `Too short. The least length is ${minItems}.`
  if (maxItems !== undefined && length > maxItems) return `Too long. The greatest length is ${maxItems}.`
  return undefined
}

function isOfType({ type, enum: words }: InputSchema, value: unknown): boolean {
  if (words) return words.includes(value as string)
  if (type === 'integer') return Number.isInteger(value)
  const found = value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value
  return (type ?? found) === found
}

const nameOf = ({ type, enum: words, anyOf }: InputSchema): string =>
  (anyOf?.map(nameOf) ?? words?.map(word => JSON.stringify(word)) ?? [String(type)]).join(' or ')
