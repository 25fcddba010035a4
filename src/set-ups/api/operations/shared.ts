/** Schemas of replies that several parts of the API share. Each stands alone, so that a Worker has only those of its parts. */

export const KEY = {
  Key: `id, consumer, kind: (api-key|opaque-key), mode: (live|test), plan?, label?, createdAt: time,
    expiresAt?: time, hint?, replacedBy?, signedBy?`,
}

/** Of keys and tokens. */
export const CREDENTIAL = {
  Replaced: 'id, expiresAt: time|null',
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
