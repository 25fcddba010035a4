/** The schemas of requests: they check the input, and the OpenAPI document has them. Those of one part alone stand beside its routes. */
import { MAX_COST } from '../limits/arguments.ts'
import { MAX_ITEMS } from './cursor.ts'
import { type InputSchema, integer, nullable, object, oneOf, text, textOf } from './json-schema.ts'

/** A duration from now such as `24h`, or a time such as `2030-12-31T18:00:00Z`. */
const time = text(40)
/** null: never, or until it is removed. */
export const end = nullable(time)
export const label = text(100)
const plan = text(63)
const consumer = text(255)

export const newKey = {
  consumer,
  'label?': label,
  'plan?': plan,
  'mode?': oneOf('live', 'test'),
  'expiresAt?': time,
}
export const createKeyBody = object(newKey)
export const changeKeyBody = object({
  'label?': nullable(label),
  'plan?': nullable(plan),
  'expiresAt?': end,
})
/** `overlap`: how long the old one stays valid, by default a day; `0s` revokes it at once. */
export const rotateBody = object({ 'overlap?': text(20) })

export const changeConsumerBody = object({ plan: nullable(plan) })
export const blockBody = object({ 'until?': end, 'reason?': label })

export const mode = oneOf('enforce', 'shadow', 'off')
export const overrideMembers = {
  'limit?': integer(1, MAX_COST),
  'burst?': integer(1, MAX_COST),
  'queue?': integer(0, MAX_COST),
  'mode?': mode,
  'until?': end,
  'removeStale?': { type: 'boolean' } as InputSchema<boolean>,
}
export const overrideBody = object(overrideMembers)

export const createTokenBody = object({
  name: label,
  scopes: { type: 'array', items: text(100), minItems: 1, maxItems: 100 } as InputSchema<string[]>,
  'expiresAt?': time,
})

/** How many items a page may have. */
export const PAGE_SIZE = `^(?:[1-9]\\d?|${MAX_ITEMS})$`

/** Queries. Their values are text. */
export const pageQuery = { 'cursor?': text(1000), 'limit?': textOf(PAGE_SIZE) }
export const listQuery = object(pageQuery)
export const keysQuery = object({ ...pageQuery, 'consumer?': consumer })
