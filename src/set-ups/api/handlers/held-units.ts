/** Units in flight that a receipt holds (held.ts). A Worker whose limits count no units in flight does not carry it. */
import type { Hold } from '../../limits/held.ts'
import type { SettleableDecision } from '../../limits/limiter-shape.ts'
import { heldBody } from '../limit-schemas.ts'
import { ApiError, invalidInput } from '../problems.ts'
import type { SignedReceipt } from '../receipts.ts'
import { limitRoute, type Route } from '../route.ts'
import { at, mustBeMade, rulesOf } from './limits.ts'

export const heldUnitsRoutes: readonly Route[] = (['renew', 'release'] as const).map(verb =>
  limitRoute({
    path: `limits/{name}/${verb}`,
    body: heldBody,
    async run(call, services) {
      const { receipt } = call.body
      rulesOf(call, services)
      const limit = call.params.name!
      const decision = at('/receipt', () => services.limits.receipts.decisionOf(receipt, limit))
      const hold = holdOf(receipt, decision)
      const { renewWithinMs, degraded } = await call.limiter[verb]!(hold)
      mustBeMade({ degraded })
      if (verb === 'renew' && !renewWithinMs)
        throw new ApiError('refused', 'These units were released, or not renewed in time.')
      return { limit, renewWithinMs }
    },
  }),
)

/** What a receipt holds. @param decision that it is of @throws ApiError if it holds nothing */
function holdOf(receipt: Partial<SignedReceipt>, { limit, identity, id = '' }: SettleableDecision): Hold {
  const { held } = receipt
  if (held) return { limit, identity, id, held }
  throw invalidInput('/receipt', 'Its decision holds no units.')
}
