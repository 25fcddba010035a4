/** After the reply: what is left to do that must not delay it. One structured line for each degraded decision. */
import type { Decision } from '../limiter/decide.ts'

export function settle(decision: Decision, requestId: string): void {
  if (decision.kind !== 'allowed' || !decision.degraded) return
  const { cause, detail } = decision.degraded
  console.warn(JSON.stringify({ level: 'warn', event: 'degraded', cause, detail, request_id: requestId }))
}
