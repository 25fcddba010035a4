/** Schemas of replies, and texts, that several parts of the API share. Each stands alone, so that a Worker has only those of its parts. */

/** Of each list. */
export const PAGE = {
  Page: 'cursor? "For the next page, also after one with fewer items than the limit. Absent: this is the last one."',
}

export const KEY = {
  Key: `id "\`<consumer>/<digits>\`: the path of the key below /keys.",
    consumer, kind: (api-key|opaque-key), mode: (live|test),
    plan? "Absent: the plan of the consumer applies.",
    label?, createdAt: time, expiresAt?: time,
    hint? "Its last letters.",
    replacedBy?, signedBy?`,
}

export const WITH_PLAN = 'With `plan`, the scope consumers:write is needed too.'

export const REMOVED = 'No such thing is left, so a repeat is answered with 404.'

/** Of keys and tokens. */
export const CREDENTIAL = {
  Replaced: 'id, expiresAt: time|null "null: its end could not be set."',
  Revoked: 'id, revoked: boolean',
}

export const OVERRIDE = {
  Override: `rule, limit?: number, burst?: number, queue?: number, mode?: (enforce|shadow|off),
    until: time|null, at?: time, by?, status: (applies|over|rule-changed|rule-gone|rule-off)`,
}

/** Of a consumer. */
export const SETTINGS = {
  Settings: 'consumer, plan: string|null, blockedAt: time|null, blockedUntil?: time, blockedBy?, reason?',
}

export const SIGNATURE = { Signature: 'at: time, by, until?: time, reason?' }

/** Of one caller by one rule. */
export const REFUSALS = {
  Refusals: 'atLeast: integer, atMost: integer, since: time, last: time, byMinute: integer[]',
}
