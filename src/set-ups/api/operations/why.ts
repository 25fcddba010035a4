/** What the OpenAPI document says about why a caller is refused. */
import type { PartOperations } from '../reply-schemas.ts'
import { REFUSALS, SIGNATURE } from './shared.ts'

export const whyOperations: PartOperations = {
  operations: {
    'GET why/{caller}': ['why', 'Why', 'Say why a caller is refused, or that it is not'],
  },
  schemas: {
    ...{ ...REFUSALS, ...SIGNATURE },
    Why: `caller, kind: (consumer|key|address|identity), state: (refused|partly|admitted|unknown),
      sentence, plan: string|null, blockedAt: time|null, overrides: string[],
      hasMoreKeys?: boolean "Only 100 keys of the consumer were looked at.",
      kill: Signature|null, rules: RuleNow[], refusals: RuleRefusals[], notAsked: string[]`,
    RuleNow: `rule, mode: (enforce|shadow), limit: number, cost: number, allowed: boolean, remaining: number,
      retryAfterMs: integer, pausedUntil?: time, switch?: SwitchNow`,
    SwitchNow: '...Signature, mode?: (enforce|shadow|off), share?: number',
    RuleRefusals: 'rule, mode: (enforce|shadow), ...Refusals',
  },
}
