/** What the OpenAPI document says about limits by name. What it says about reservations and units in flight is in files of their own. */
import type { PartOperations } from '../reply-schemas.ts'

export const limitsOperations: PartOperations = {
  operations: {
    'POST limits/{name}': [
      'decide',
      'Decision',
      'Decide under a limit by name, and spend if it admits',
      "A refusal has the status 200 too: read `allowed`. With `waitMs`, waits up to so long for units. With `hold`, the receipt holds units in flight. `numbers` (of rules with `numbers: 'call'`) need the scope limits:numbers, here and in other calls.",
    ],
    'POST limits/{name}/peek': ['peek', 'State', 'Read what a decision would be now'],
    'POST limits/{name}/refund': [
      'refund',
      'Decision',
      'Give back what a decision has spent',
      '`cost`: how many of its units are given back in all; absent: all of them. So a repeat gives back nothing more.',
    ],
    'POST limits/{name}/reset': ['reset', 'State', 'Make the whole budget of an identity available again'],
    'POST limits/{name}/pause': [
      'pause',
      'Pause',
      'Refuse all calls for an identity until a time',
      'For `forMs`, or as long as a header Retry-After of a third party says (seconds or a date), at most `longestPause` of the config. Never ends a longer pause. If `retryAfter` cannot be read, nothing is paused.',
    ],
    'POST limits/{name}/resume': ['resume', 'Pause', 'End the pause of an identity'],
  },
  schemas: {
    RuleResult: `name, mode: (enforce|shadow), allowed: boolean, limit: number, remaining: number,
      resetAfterMs: integer, retryAfterMs: integer, debt?: number,
      inFlight?: boolean "The rule counts units in flight. Without \`hold\` they are released at once."`,
    Receipt: `id, limit, identity: {string|number}, at: integer, costs: {integer}, reserved?: {integer},
      records?: {string}, numbers?: {object}, held?: {integer}, signature`,
    State: `success: boolean "The same as \`allowed\`.",
      limit,
      allowed: boolean "If false, nothing was spent.",
      delayMs: integer "How long to wait before the work starts (\`leaky-bucket\`; else 0).",
      retryAfterMs: integer "After this time the same cost would be allowed. -1: never.",
      rules: RuleResult[],
      pausedUntil?: time "When the pause of the limit ends. Absent: it is not paused.",
      changedRules?: string[] "Rules that a deployment has changed or removed since, and that give nothing back.",
      degraded? "Why the store has not decided. Absent: it has."`,
    Decision: `...State,
      renewWithinMs?: integer "Units are in flight: renew them within this time, and release them at the end.",
      receipt: Receipt`,
    Pause: 'limit, paused: boolean, retryAfterMs: integer "Until the pause ends.", pausedUntil?: time',
  },
}
