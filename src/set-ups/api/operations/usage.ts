/** What the OpenAPI document says about what a caller has left. */
import type { PartOperations } from '../reply-schemas.ts'

export const usageOperations: PartOperations = {
  operations: {
    'GET usage': [
      'usage',
      'Usage',
      'Show a caller what it has left',
      'With a credential of the gateway, such as an API key, in place of a service token. Has the enforced rules that count by consumer or credential alone. Spends nothing.',
    ],
  },
  schemas: {
    Usage: 'consumer?, mode: (live|test), plan?, rules: RuleUsage[]',
    RuleUsage: `name,
      unit "\`requests\`, or a unit of the config.",
      limit: number,
      allowance "Such as \`120 per minute\`.",
      remaining: number "Units that can be spent at once.",
      resetAfterMs: integer "Until the whole budget is back, if nothing else is spent.",
      debt?: number "Units spent above the limit.",
      countsAll: boolean "Whether the rule counts every request of the caller."`,
  },
}
