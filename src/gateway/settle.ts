/**
 * After the reply: what is left to do that must not delay it. One structured line for each degraded decision, and for each
 * token that could not be verified.
 */
import type { Decision } from '../limiter/decide.ts'

export function settle(decision: Decision, requestId: string): void {
  if ('degraded' in decision && decision.degraded) {
    warn('degraded', { ...decision.degraded, request_id: requestId })
  }
  if (decision.kind === 'unauthenticated' && decision.reason === 'unverifiable') {
    warn('issuer', { detail: decision.detail, request_id: requestId })
  }
}

function warn(event: string, fields: Record<string, unknown>): void {
  console.warn(JSON.stringify({ level: 'warn', event, ...fields }))
}
