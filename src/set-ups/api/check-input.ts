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
  const mistakes = detailsOf(meant, value).map(detail => ({ pointer, detail }))
  if (meant.items)
    for (const [i, item] of (value as unknown[]).entries())
      mistakes.push(...mistakesIn(meant.items, item, `${pointer}/${i}`))
  else if (meant.type === 'object') mistakes.push(...mistakesInMembers(meant, value as object, pointer))
  return mistakes
}

function mistakesInMembers(schema: InputSchema, value: object, parent: string): InputMistake[] {
  const { properties = {}, required = [], propertyNames = {}, additionalProperties = {} } = schema
  const [known, members] = [new Map(Object.entries(properties)), new Map(Object.entries(value))]
  return [...new Set([...known.keys(), ...members.keys()])].flatMap(name => {
    const pointer =
      parent === '?' ? `?${name}` : `${parent}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`
    if (!members.has(name)) return required.includes(name) ? { pointer, detail: 'Missing. Add it.' } : []
    const member = known.get(name) ?? additionalProperties
    if (!member) return { pointer, detail: 'Unknown member. Leave it out.' }
    return [...mistakesIn(propertyNames, name, pointer), ...mistakesIn(member, members.get(name), pointer)]
  })
}

function detailsOf(schema: InputSchema, value: unknown): string[] {
  const { type, pattern, minimum, maximum, minLength, minItems, maxLength, maxItems } = schema
  if (pattern !== undefined && !new RegExp(pattern).test(value as string))
    return [`Wrong form. Use text of the form /${pattern}/.`]
  if (typeof value === 'number')
    return [
      ...(type === 'integer' && !Number.isInteger(value) ? ['Not a whole number.'] : []),
      ...boundsOf(value, minimum, maximum, [
        'Too low. The least value is',
        'Too high. The greatest value is',
      ]),
    ]
  const { length } = Object(value) as unknown[]
  const [least, most] = [minLength ?? minItems, maxLength ?? maxItems]
  return boundsOf(length, least, most, ['Too short. The least length is', 'Too long. The greatest length is'])
}

function boundsOf(
  value: number,
  least: number | undefined,
  most: number | undefined,
  words: [string, string],
) {
  if (least !== undefined && value < least) return [`${words[0]} ${least}.`]
  return most !== undefined && value > most ? [`${words[1]} ${most}.`] : []
}

function isOfType({ type, enum: words }: InputSchema, value: unknown): boolean {
  if (words) return words.includes(value as string)
  const found = value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value
  return (type === 'integer' ? 'number' : (type ?? found)) === found
}

const nameOf = ({ type, enum: words, anyOf }: InputSchema): string =>
  (anyOf?.map(nameOf) ?? words?.map(word => JSON.stringify(word)) ?? [String(type)]).join(' or ')
