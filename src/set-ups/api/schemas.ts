/** The schemas of requests. They check the input, and the OpenAPI document is made from them, so they have only what JSON Schema has. */
import * as v from 'valibot'
import { MAX_COST } from '../limits/arguments.ts'
import { MAX_ITEMS } from './cursor.ts'

const text = (max: number) => v.pipe(v.string(), v.minLength(1), v.maxLength(max))

const units = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(MAX_COST))

/** A name of a rule or a unit. */
const NAME = v.pipe(v.string(), v.regex(/^[a-z0-9][a-z0-9_-]{0,62}$/))

const identity = v.exactOptional(v.record(text(200), v.union([v.string(), v.number()])))
const amounts = v.record(NAME, units)

/** As `decide` has written it. Its fields are checked when it is used. */
const receipt = v.looseObject({ limit: v.string(), signature: v.string() })

const costs = {
  identity,
  cost: v.exactOptional(v.union([units, v.record(NAME, units)])),
  amounts: v.exactOptional(amounts),
}

/** The longest time that a decision may wait for units (ms): shorter than the idle timeouts of proxies. */
export const MAX_WAIT_MS = 25_000

export const decideBody = v.strictObject({
  ...costs,
  hold: v.exactOptional(v.boolean()),
  waitMs: v.exactOptional(v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(MAX_WAIT_MS))),
})
export const peekBody = v.strictObject({ identity })
export const reserveBody = v.strictObject(costs)
export const refundBody = v.strictObject({ receipt, cost: costs.cost })
export const heldBody = v.strictObject({ receipt })
export const settleBody = v.strictObject({ receipt, amounts })
/** One of both. `retryAfter`: the text of a header Retry-After. */
export const pauseBody = v.strictObject({
  identity,
  forMs: v.exactOptional(v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(MAX_COST))),
  retryAfter: v.exactOptional(text(100)),
})
export const resumeBody = v.strictObject({ identity })
export const resetBody = v.strictObject({ identity, rule: v.exactOptional(NAME) })

/** A duration from now such as `24h`, or a time such as `2030-12-31T18:00:00Z`. */
const time = text(40)
/** null: never, or until it is removed. */
const end = v.exactOptional(v.nullable(time))
const label = text(100)
const plan = text(63)
const mode = v.exactOptional(v.picklist(['live', 'test']))
const consumer = text(255)

export const createKeyBody = v.strictObject({
  consumer,
  label: v.exactOptional(label),
  plan: v.exactOptional(plan),
  mode,
  expiresAt: v.exactOptional(time),
})
/** Either the key, or its SHA-256. */
export const importKeyBody = v.strictObject({
  consumer,
  sha256: v.exactOptional(v.pipe(v.string(), v.regex(/^[0-9a-fA-F]{64}$/))),
  key: v.exactOptional(v.pipe(v.string(), v.minLength(16), v.maxLength(512))),
  label: v.exactOptional(label),
  plan: v.exactOptional(plan),
  mode,
  expiresAt: v.exactOptional(time),
})
export const changeKeyBody = v.strictObject({
  label: v.exactOptional(v.nullable(label)),
  plan: v.exactOptional(v.nullable(plan)),
  expiresAt: end,
})
/** `overlap`: how long the old one stays valid, by default a day; `0s` revokes it at once. */
export const rotateBody = v.strictObject({ overlap: v.exactOptional(text(20)) })

export const changeConsumerBody = v.strictObject({ plan: v.nullable(plan) })
export const blockBody = v.strictObject({ until: end, reason: v.exactOptional(label) })

const limitUnits = v.exactOptional(v.pipe(units, v.minValue(1)))
export const overrideBody = v.strictObject({
  limit: limitUnits,
  burst: limitUnits,
  queue: v.exactOptional(units),
  mode: v.exactOptional(v.picklist(['enforce', 'shadow', 'off'])),
  until: end,
  removeStale: v.exactOptional(v.boolean()),
})

export const switchBody = v.strictObject({
  mode: v.exactOptional(v.picklist(['enforce', 'shadow', 'off'])),
  share: v.exactOptional(v.pipe(v.number(), v.minValue(0), v.maxValue(1))),
  until: end,
  reason: v.exactOptional(label),
})
export const killBody = v.strictObject({ until: end, reason: v.exactOptional(label) })

export const createTokenBody = v.strictObject({
  name: label,
  scopes: v.pipe(v.array(text(100)), v.minLength(1), v.maxLength(100)),
  expiresAt: v.exactOptional(time),
})

/** How many items a page may have. */
export const PAGE_SIZE = new RegExp(`^(?:[1-9]\\d?|${MAX_ITEMS})$`)

/** Queries. Their values are text. */
const pageQuery = {
  cursor: v.exactOptional(text(1000)),
  limit: v.exactOptional(v.pipe(v.string(), v.regex(PAGE_SIZE))),
}
export const listQuery = v.strictObject(pageQuery)
export const auditQuery = v.strictObject({ ...pageQuery, target: v.exactOptional(text(400)) })
export const keysQuery = v.strictObject({ ...pageQuery, consumer: v.exactOptional(consumer) })
export const statsQuery = v.strictObject({
  since: v.exactOptional(text(20)),
  rule: v.exactOptional(text(127)),
})
export const topQuery = v.strictObject({
  since: v.exactOptional(text(20)),
  rule: v.exactOptional(text(127)),
  shadow: v.exactOptional(v.picklist(['true', 'false'])),
})
