/** The schemas of requests about limits by name, which a Worker without them does not carry. */
import { MAX_COST } from '../limits/arguments.ts'
import { anyOf, byName, type InputSchema, integer, object, text, textOf } from './json-schema.ts'
import { overrideMembers } from './schemas.ts'

const { MAX_SAFE_INTEGER: MAX_EXACT } = Number
const string: InputSchema<string> = { type: 'string' }
const units = integer(0, MAX_COST)

/** A name of a rule or a unit. */
const name = textOf('^[a-z0-9][a-z0-9_-]{0,62}$')

/** Larger numbers are rounded: they have to be text. */
const exact: InputSchema<number> = { type: 'number', minimum: -MAX_EXACT, maximum: MAX_EXACT }
const identity = byName(text(200), anyOf(string, exact))
const amounts = byName(name, units)
const cost = anyOf(units, amounts)

/** As `decide` has written it. Its fields are checked when it is used. */
const receipt: InputSchema<{ limit: string; signature: string }> = {
  type: 'object',
  properties: { limit: string, signature: string },
  required: ['limit', 'signature'],
}

/** Of rules with `numbers: 'call'`. The limiter checks them against `max`. */
const numbers = byName(
  name,
  object({
    limit: units,
    'period?': text(20),
    'burst?': units,
    'queue?': units,
  }),
)
const costs = { 'identity?': identity, 'cost?': cost, 'amounts?': amounts, 'numbers?': numbers }

/** The longest time that a decision may wait for units (ms): shorter than the idle timeouts of proxies. */
export const MAX_WAIT_MS = 25_000

export const decideBody = object({
  ...costs,
  'hold?': { type: 'boolean' } as InputSchema<boolean>,
  'waitMs?': integer(0, MAX_WAIT_MS),
})
export const peekBody = object({ 'identity?': identity, 'numbers?': numbers })
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
export const identityBody = object({ 'identity?': identity })
export const limitOverrideBody = object({ 'identity?': identity, ...overrideMembers })
export const resetBody = object({ 'identity?': identity, 'rule?': name, 'numbers?': numbers })
