/**
 * What requests cost in units of the config: estimates before they are decided, and actual amounts from their replies. A Worker whose config
 * has neither `units` nor `countIf` does not carry this file.
 */
import type { Background } from '../../background.ts'
import type { Config, GatewayRule } from '../../config/compile.ts'
import { countsInFlight } from '../../config/compile-rule.ts'
import { REQUESTS } from '../../config/compile-units.ts'
import type { Decided, Ending } from '../../limiter/engine-shape.ts'
import type { Amounts } from '../../usage/usage.ts'
import { estimatesFromBody } from './amounts-needed.ts'
import type { DecidedRequest } from './decided-request.ts'
import type { createEstimateAmounts, EstimatedRequest } from './estimate-amounts.ts'
import { type Forwarded, replyToGoneClient } from './forward.ts'
import type { AppliedHooks } from './hooks.ts'
import type { Reporting } from './report.ts'
import { createAmountSettler, type SettleParts } from './settle-amounts.ts'
import { createReadOnSlots, createTapPump } from './tap-pump.ts'
import { logException, runOrLog } from './unexpected.ts'

/** Parts that a Worker carries only if its units need them. */
export interface AmountParts extends SettleParts {
  /** With units that are estimated from the body of a request, or that ask the origin for usage. */
  createEstimateAmounts: typeof createEstimateAmounts
}

/** How long a reply is read after its client has left: workerd ends such work after 30 s. */
const READ_ON_MS = 25_000

/** How many such replies an isolate reads at once. */
const MAX_READ_ON = 100

/** Finds what requests cost in units of the config. */
export type FindAmounts = (
  request: Request,
  applied: Pick<AppliedHooks, 'matched' | 'amounts'>,
) => Promise<RequestAmounts>

type Settling = Pick<DecidedRequest, 'forwarding' | 'finish'>

/** What one request costs in units of the config. */
export interface RequestAmounts {
  /** The estimate under a rule. Undefined: the rule counts requests. */
  costOf(rule: GatewayRule): number | undefined
  /** Forwards the admitted request so that, when it ends, what it has reserved is replaced by what it has cost. */
  settling(decided: Decided, background: Background): Settling
}

/** @param now monotonic time (ms) */
export function createAmounts(
  config: Config,
  parts: AmountParts,
  now: () => number,
  { onFinish }: Pick<Reporting, 'onFinish'>,
): FindAmounts {
  const units = config.units!
  const settler = createAmountSettler({ units, hooks: config.hooks }, parts, now)
  const readOn =
    config.onClientGone === 'read-on'
      ? { forMs: READ_ON_MS, begin: createReadOnSlots(MAX_READ_ON) }
      : undefined
  const estimate = estimatesFromBody(config)
    ? parts.createEstimateAmounts(units)
    : async (request: Request, _: unknown, amounts: Amounts): Promise<EstimatedRequest> => ({
        ...{ request, amounts, hidesUsage: false, isBroken: false },
      })

  function settling(
    { decision, reservation, finish }: Decided,
    estimated: EstimatedRequest,
    background: Background,
  ): Settling {
    const { request: copy, bodyFailed, hidesUsage, isBroken } = estimated
    const reserved = { reservation, hidesUsage }
    const holdsUnits =
      'verdicts' in decision && decision.verdicts.some(({ rule, allowed }) => allowed && countsInFlight(rule))
    // Until the request is forwarded, it costs nothing.
    let end = (ending: Ending) => finish(ending, () => 0)

    /** Finds the cost of a reply. @returns the reply to pass on */
    function follow(forwarded: Forwarded, startedAt: number): Forwarded {
      end = finish
      const cost = settler.follow(forwarded, reserved, startedAt)
      if (!cost) return forwarded
      // An exception must not keep the request from ending, or its reservation would be renewed as long as this isolate lives.
      end = ending =>
        background(
          cost
            .end(ending)
            .catch(error => void logException(error))
            .then(actualOf => runOrLog(() => finish(ending, actualOf))),
        )
      return {
        ...forwarded,
        awaitsEnding: cost.needsEnd || holdsUnits || onFinish !== undefined,
        pump: cost.tap && createTapPump(cost.tap, { readOn }),
      }
    }

    return {
      finish: ending => end(ending),
      forwarding: forward => async (request, context) => {
        if (isBroken) return replyToGoneClient()
        const startedAt = now()
        const forwarded = await forward(copy, {
          ...context,
          ...(copy !== request && { copy, bodyFailed }),
          acceptEncoding: settler.acceptEncoding(request.headers.get('accept-encoding'), reserved),
        })
        let reply = forwarded
        runOrLog(() => {
          reply = follow(forwarded, startedAt)
        })
        return reply
      },
    }
  }

  return async (request, { matched, amounts: given = {} }) => {
    const estimated = await estimate(request, matched.rules, given)
    const { amounts } = estimated
    return {
      costOf: ({ unit, cost }) =>
        unit === REQUESTS ? undefined : Object.hasOwn(amounts, unit) ? amounts[unit] : cost,
      settling: (decided, background) => settling(decided, estimated, background),
    }
  }
}
