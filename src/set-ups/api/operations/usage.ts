/** What the OpenAPI document says about what a caller has left. */
import type { PartOperations } from '../reply-schemas.ts'

export const usageOperations: PartOperations = {
  operations: {
    'GET usage': [
      'usage',
      'Usage',
      'Show a caller what it has left',
      'Has the enforced rules that count by consumer or credential alone. Spends nothing.',
    ],
  },
  schemas: {
    Usage: `consumer? mode:(live|test) plan? rules:RuleUsage[]`,
    RuleUsage: `name unit       limit:number
      allowance "Such as \`120 per minute\`."
      remaining:number "Can be spent at once."
      resetAfterMs:integer "Until the whole budget is back."
      debt?:number "Spent above the limit."
      countsAll:boolean "Of every request of the caller."`,
  },
}
