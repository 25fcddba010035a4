/** Reservations of limits by name: units whose amount is known only later. A Worker whose limits reserve nothing does not carry it. */
import { checkReserves, checkSettled } from '../../limits/arguments.ts'
import { reserveBody, settleBody } from '../limit-schemas.ts'
import { limitRoute, type Route } from '../route.ts'
import { at, checkCall, documentOf, mustBeMade, replyOf, rulesOf } from './limits.ts'

export const reservationsRoutes: readonly Route[] = [
  limitRoute({
    path: 'limits/{name}/reserve',
    body: reserveBody,
    async run(call, services) {
      const name = checkCall(call, services)
      at('', () => checkReserves(name, rulesOf(call, services)))
      const { identity = {}, ...options } = call.body
      return replyOf(await call.limiter.reserve(name, identity, options), services)
    },
  }),
  limitRoute({
    path: 'limits/{name}/settle',
    body: settleBody,
    async run(call, services) {
      const { receipt, amounts } = call.body
      const rules = rulesOf(call, services)
      const name = call.params.name!
      const decision = at('/receipt', () => services.limits.receipts.decisionOf(receipt, name))
      at('/amounts', () => checkSettled(name, amounts, rules, decision.reserved))
      const settled = await call.limiter.settle(decision, amounts)
      mustBeMade(settled)
      return { ...documentOf(settled, services), receipt, applied: settled.applied }
    },
  }),
]
