/** What the OpenAPI document says about limits by name. */
import type { PartOperations } from '../reply-schemas.ts'

export const limitsOperations: PartOperations = {
  operations: {
    'POST limits/{name}': 'decide Decision',
    'POST limits/{name}/peek': 'peek State',
    'POST limits/{name}/reserve': 'reserve Decision',
    'POST limits/{name}/refund': 'refund Decision',
    'POST limits/{name}/settle': 'settle Settlement',
    'POST limits/{name}/renew': 'renew Hold',
    'POST limits/{name}/release': 'release Hold',
    'POST limits/{name}/reset': 'reset State',
    'POST limits/{name}/pause': 'pause Pause',
    'POST limits/{name}/resume': 'resume Pause',
  },
  schemas: {
    RuleResult: `name, mode: (enforce|shadow), allowed: boolean, limit: number, remaining: number,
      resetAfterMs: integer, retryAfterMs: integer, debt?: number, inFlight?: boolean`,
    Receipt: `id, limit, identity: {string|number}, at: integer, costs: {integer}, reserved?: {integer},
      held?: {integer}, signature`,
    State: `success: boolean, limit, allowed: boolean, delayMs: integer, retryAfterMs: integer,
      rules: RuleResult[], pausedUntil?: time, degraded?`,
    Decision: '...State, renewWithinMs?: integer, receipt: Receipt',
    Hold: 'limit, renewWithinMs: integer',
    Settlement: '...State, receipt: Receipt, applied: boolean',
    Pause: 'limit, paused: boolean, retryAfterMs: integer, pausedUntil?: time',
  },
}
