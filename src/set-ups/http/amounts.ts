/**
 * What requests cost in units of the config: estimates before they are decided, and actual amounts from their replies. A Worker whose config
 * has neither `units` nor `countIf` does not carry this file.
 */
import type { Config } from '../../config/compile.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import { estimatesFromBody } from './amounts-needed.ts'
import type { DecidedRequest } from './decided-request.ts'
import type { createEstimateAmounts, EstimateAmounts } from './estimate-amounts.ts'
import { type CostOfReply, type Forward, replyToGoneClient } from './forward.ts'
import { createAmountSettler, type SettleParts } from './settle-amounts.ts'
import { createReadOnSlots, createTapPump } from './tap-pump.ts'
import { runOrLog } from './unexpected.ts'

/** Parts that a Worker carries only if its units need them. */
export interface AmountParts extends SettleParts {
  /** With units that are estimated from the body of a request, or that ask the origin for usage. */
  createEstimateAmounts: typeof createEstimateAmounts
}

/** How long a reply is read after its client has left: workerd ends such work after 30 s. */
const READ_ON_MS = 25_000

/** How many such replies an isolate reads at once. */
const MAX_READ_ON = 100

export interface Amounts {
  /** Undefined: no estimate depends on the body of a request. */
  estimate: EstimateAmounts | undefined
  /** Forwards an admitted request, and finds what it has cost. */
  forwarding(forward: Forward, decided: DecidedRequest): Forward
  /** The cost of an admitted request that was not forwarded: nothing. */
  unsent: CostOfReply
}

/**
 * @param now monotonic time (ms)
 * @param isObserved whether something else depends on the end of each request
 */
export function createAmounts(
  config: Config,
  parts: AmountParts,
  now: () => number,
  isObserved: boolean,
): Amounts {
  const unsent: CostOfReply = { needsEnd: true, end: async () => () => 0 }
  const settler = createAmountSettler(config, parts, now)
  const readOn =
    config.onClientGone === 'read-on'
      ? { forMs: READ_ON_MS, begin: createReadOnSlots(MAX_READ_ON) }
      : undefined
  return {
    estimate: estimatesFromBody(config) ? parts.createEstimateAmounts(config.units) : undefined,

    forwarding: (forward, decided) => async (request, context) => {
      const { ruling, estimated } = decided
      if (estimated?.isBroken) return { ...replyToGoneClient(), cost: unsent }
      const startedAt = now()
      const copy = estimated?.request ?? request
      const forwarded = await forward(copy, {
        ...context,
        ...(copy !== request && { copy, bodyFailed: estimated?.bodyFailed }),
        acceptEncoding: settler.acceptEncoding(request.headers.get('accept-encoding'), decided),
      })
      let cost: CostOfReply | undefined
      runOrLog(() => {
        const found = settler.follow(forwarded, decided, startedAt)
        if (!found) return
        const { tap, ...rest } = found
        const holdsUnits =
          'verdicts' in ruling && ruling.verdicts.some(({ rule, allowed }) => allowed && countsInFlight(rule))
        cost = {
          ...rest,
          ...(tap && { pump: createTapPump(tap, { readOn }) }),
          needsEnd: rest.needsEnd || holdsUnits || isObserved,
        }
      })
      return { ...forwarded, cost }
    },

    unsent,
  }
}
