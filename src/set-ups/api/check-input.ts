/** Checks input against a schema. No message repeats a value, because it may be a secret. */
import * as v from 'valibot'
import { ApiError, type InputMistake, invalidInput } from './problems.ts'

export type InputSchema = v.GenericSchema

/** More mistakes than this are not listed. */
const MAX_MISTAKES = 20

/** @param prefix of the pointers: empty for a body, `?` for the query @throws ApiError `invalid-input` that lists the mistakes */
export function checkInput<S extends InputSchema>(schema: S, input: unknown, prefix = ''): v.InferOutput<S> {
  const list = findList(schema as unknown as SchemaData, input)
  if (list !== undefined) throw invalidInput(prefix + list, 'Wrong type or value. Use Object.')
  const { success, output, issues } = v.safeParse(schema, input)
  if (success) return output
  const errors = issues.slice(0, MAX_MISTAKES).map(issue => mistakeOf(issue, prefix))
  const what = prefix === '?' ? 'query' : 'body'
  throw new ApiError('invalid-input', `The ${what} of the request has a mistake.`, { extra: { errors } })
}

interface SchemaData {
  type: string
  entries?: Record<string, SchemaData>
  wrapped?: SchemaData
}

/** Finds a list where an object is expected, because valibot accepts it. @returns its pointer */
function findList({ type, entries, wrapped }: SchemaData, input: unknown): string | undefined {
  if (wrapped) return findList(wrapped, input)
  if (Array.isArray(input)) return type === 'array' ? undefined : ''
  if (!entries || typeof input !== 'object' || input === null) return undefined
  for (const [name, schema] of Object.entries(entries)) {
    const found = findList(schema, (input as Record<string, unknown>)[name])
    if (found !== undefined) return `/${name}${found}`
  }
  return undefined
}

function mistakeOf(issue: v.BaseIssue<unknown>, prefix: string): InputMistake {
  const keys = (issue.path ?? []).map(({ key }) => String(key))
  const pointer =
    prefix === '?'
      ? `?${keys.join('.')}`
      : keys.map(key => `/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('')
  return { pointer, detail: detailOf(issue) }
}

function detailOf({ kind, type, expected, requirement, input, issues }: v.BaseIssue<unknown>): string {
  if (expected === 'never') return 'Unknown member. Leave it out.'
  if (kind === 'schema' && input === undefined) return 'Missing. Add it.'
  // Of the values of a union, the one that is meant is not known.
  if (type === 'union' && issues?.length === 1) return detailOf(issues[0])
  if (type === 'integer') return 'Not a whole number.'
  if (type === 'regex') return `Wrong form. Use text of the form ${expected}.`
  if (kind === 'schema') return `Wrong type or value. Use ${expected}.`
  const words = BOUNDS[type]
  return words ? `${words} ${String(requirement)}.` : `Wrong value. Use ${expected}.`
}

const BOUNDS: Record<string, string> = {
  min_length: 'Too short. The least length is',
  max_length: 'Too long. The greatest length is',
  min_value: 'Too low. The least value is',
  max_value: 'Too high. The greatest value is',
}
