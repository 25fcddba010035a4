/** What the OpenAPI document says about what a caller has left. */
import type { PartOperations } from '../reply-schemas.ts'

export const usageOperations: PartOperations = {
  operations: {
    'GET usage': 'usage Usage',
  },
  schemas: {
    Usage: 'consumer?, mode: (live|test), plan?, rules: RuleUsage[]',
    RuleUsage: `name, unit, limit: number, allowance, remaining: number, resetAfterMs: integer, debt?: number,
      countsAll: boolean`,
  },
}
