/** The schemas of requests: they check the input, and the OpenAPI document has them. */
import { MAX_COST } from '../limits/arguments.ts'
import { MAX_ITEMS } from './cursor.ts'
import {
  anyOf,
  byName,
  type InputSchema,
  integer,
  nullable,
  object,
  oneOf,
  text,
  textOf,
} from './json-schema.ts'

const string: InputSchema<string> = { type: 'string' }
const units = integer(0, MAX_COST)

/** A name of a rule or a unit. */
const name = textOf('^[a-z0-9][a-z0-9_-]{0,62}$')

const identity = byName(text(200), anyOf(string, { type: 'number' } as InputSchema<number>))
const amounts = byName(name, units)
const cost = anyOf(units, amounts)

/** As `decide` has written it. Its fields are checked when it is used. */
const receipt: InputSchema<{ limit: string; signature: string }> = {
  type: 'object',
  properties: { limit: string, signature: string },
  required: ['limit', 'signature'],
}

const costs = { 'identity?': identity, 'cost?': cost, 'amounts?': amounts }

/** The longest time that a decision may wait for units (ms): shorter than the idle timeouts of proxies. */
export const MAX_WAIT_MS = 25_000

export const decideBody = object({
  ...costs,
  'hold?': { type: 'boolean' } as InputSchema<boolean>,
  'waitMs?': integer(0, MAX_WAIT_MS),
})
export const peekBody = object({ 'identity?': identity })
export const reserveBody = object(costs)
export const refundBody = object({ receipt, 'cost?': cost })
export const heldBody = object({ receipt })
export const settleBody = object({ receipt, amounts })
/** One of both. `retryAfter`: the text of a header Retry-After. */
export const pauseBody = object({
  'identity?': identity,
  'forMs?': integer(1, MAX_COST),
  'retryAfter?': text(100),
})
export const resumeBody = peekBody
export const resetBody = object({ 'identity?': identity, 'rule?': name })

/** A duration from now such as `24h`, or a time such as `2030-12-31T18:00:00Z`. */
const time = text(40)
/** null: never, or until it is removed. */
const end = nullable(time)
const label = text(100)
const plan = text(63)
const consumer = text(255)

const newKey = { 'label?': label, 'plan?': plan, 'mode?': oneOf('live', 'test'), 'expiresAt?': time }
export const createKeyBody = object({ consumer, ...newKey })
/** Either the key, or its SHA-256. */
export const importKeyBody = object({
  consumer,
  'sha256?': textOf('^[0-9a-fA-F]{64}$'),
  'key?': text(512, 16),
  ...newKey,
})
export const changeKeyBody = object({
  'label?': nullable(label),
  'plan?': nullable(plan),
  'expiresAt?': end,
})
/** `overlap`: how long the old one stays valid, by default a day; `0s` revokes it at once. */
export const rotateBody = object({ 'overlap?': text(20) })

export const changeConsumerBody = object({ plan: nullable(plan) })
export const blockBody = object({ 'until?': end, 'reason?': label })

const mode = oneOf('enforce', 'shadow', 'off')
export const overrideBody = object({
  'limit?': integer(1, MAX_COST),
  'burst?': integer(1, MAX_COST),
  'queue?': units,
  'mode?': mode,
  'until?': end,
  'removeStale?': { type: 'boolean' } as InputSchema<boolean>,
})

export const switchBody = object({
  'mode?': mode,
  'share?': { type: 'number', minimum: 0, maximum: 1 } as InputSchema<number>,
  'until?': end,
  'reason?': label,
})
export const killBody = blockBody

export const createTokenBody = object({
  name: label,
  scopes: { type: 'array', items: text(100), minItems: 1, maxItems: 100 } as InputSchema<string[]>,
  'expiresAt?': time,
})

/** How many items a page may have. */
export const PAGE_SIZE = `^(?:[1-9]\\d?|${MAX_ITEMS})$`

/** Queries. Their values are text. */
const pageQuery = { 'cursor?': text(1000), 'limit?': textOf(PAGE_SIZE) }
export const listQuery = object(pageQuery)
export const auditQuery = object({ ...pageQuery, 'target?': text(400) })
export const keysQuery = object({ ...pageQuery, 'consumer?': consumer })

const sinceQuery = { 'since?': text(20), 'rule?': text(127) }
export const statsQuery = object(sinceQuery)
export const topQuery = object({ ...sinceQuery, 'shadow?': oneOf('true', 'false') })
