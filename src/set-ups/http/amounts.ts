/**
 * What requests cost in units of the config: estimates before they are decided, and actual amounts from their replies. A Worker whose config
 * has neither `units` nor `countIf` does not carry this file.
 */
import type { Background } from '../../background.ts'
import type { Config } from '../../config/compile.ts'
import { countsInFlight, type GatewayRule, REQUESTS } from '../../config/compile-rule.ts'
import type { Decided, Ending } from '../../limiter/engine-shape.ts'
import type { Log } from '../../log.ts'
import { isRead } from '../../usage/reads.ts'
import type { Amounts } from '../../usage/usage.ts'
import { anyEstimated, estimatesFromBody } from './amounts-needed.ts'
import type { Caller } from './caller.ts'
import {
  createDecideRequest,
  type DecideIdentified,
  type DecideRequest,
  type DecideRequestParts,
} from './decide-request.ts'
import type { DecidedRequest } from './decided-request.ts'
import { type CostOf, costInRequests } from './demand-rules.ts'
import type { createEstimateAmounts } from './estimate-amounts.ts'
import { type EstimatedRequest, withoutBody } from './estimated-request.ts'
import { type Forwarded, replyToGoneClient } from './forward.ts'
import { httpMethodsOf } from './methods.ts'
import { problem } from './problem.ts'
import type { Reporting } from './report.ts'
import { costWithoutReply, createAmountSettler, type SettleParts } from './settle-amounts.ts'
import { createReadOn, createTapPump } from './tap-pump.ts'
import { logException, runOrLog } from './unexpected.ts'

/** Parts that a Worker carries only if its units need them. */
export interface AmountParts extends SettleParts {
  /** With units that are estimated from the body of a request, or that ask the origin for usage. */
  createEstimateAmounts: typeof createEstimateAmounts
}

/** What a set-up passes in for amounts. */
export interface AmountsPlatform {
  parts: AmountParts
  log: Log
  /** Monotonic time (ms). */
  now(): number
  onFinish: Reporting['onFinish'] | undefined
}

type Settling = Pick<DecidedRequest, 'forward' | 'finish'>

/** As `createDecideRequest`. */
export function createDecideRequestWithAmounts(
  config: Config,
  parts: DecideRequestParts & AmountsPlatform,
): DecideRequest {
  return createDecideRequest(config, parts, anyEstimated(config) ? withAmounts(config, parts) : undefined)
}

/** Estimates what a request will cost before it is decided, and settles it afterwards. */
function withAmounts(
  config: Config,
  { parts, now, onFinish, log }: AmountsPlatform,
): (decide: DecideIdentified) => DecideIdentified {
  const units = config.units!
  const settler = createAmountSettler({ units, hooks: config.hooks }, parts, now, log)
  const readOn = config.onClientGone === 'read-on' ? createReadOn() : undefined
  const estimate = estimatesFromBody(config)
    ? parts.createEstimateAmounts(units)
    : async (request: Request, _: Caller, __: unknown, amounts: Amounts): Promise<EstimatedRequest> =>
        withoutBody(request, amounts)

  /** The units that a request does not cost, because it only reads what was made before. */
  function freeUnits(request: Request, rules: readonly GatewayRule[]): Amounts {
    const free = rules.flatMap(({ unit }) => {
      const actual = units.get(unit)?.actual
      if (typeof actual !== 'object' || !('usage' in actual)) return []
      const url = new URL(request.url)
      const isOverridden = httpMethodsOf(request, url).length > 1
      return !isOverridden && isRead(actual.usage, request, url.pathname) ? [[unit, 0] as const] : []
    })
    return Object.fromEntries(free)
  }

  function settling(
    { decision, stake, finish }: Decided,
    estimated: EstimatedRequest,
    background: Background,
  ): Settling {
    const { request: copy, bodyFailed, isBroken } = estimated
    const reservedBy = (hidesUsage: boolean) => ({
      ...{ reservation: stake?.reservation, hidesUsage },
      estimate: estimated.amounts,
    })
    const holdsUnits =
      'verdicts' in decision && decision.verdicts.some(({ rule, allowed }) => allowed && countsInFlight(rule))
    // Until the request is forwarded, it costs nothing.
    let end = (ending: Ending) => finish(ending, () => 0)

    /** What is not found in the reply costs the estimate. A large body has shown on its way what that is. */
    const finishKnowingBody: typeof finish = (ending, settling) => {
      if (!bodyFailed || settling === 'unsettled') finish(ending, settling)
      else finish(ending, rule => settling?.(rule) ?? estimated.amounts()[rule.unit])
    }

    /** Finds the cost of a reply. @returns the reply to pass on */
    function follow(forwarded: Forwarded, startedAt: number): Forwarded {
      end = finishKnowingBody
      const cost = settler.follow(forwarded, reservedBy(estimated.hidesUsage()), startedAt)
      if (!cost) return forwarded
      // An exception must not keep the request from ending, or its reservation would be renewed as long as this isolate lives.
      end = ending =>
        background(
          cost
            .end(ending)
            .catch(error => void logException(log, error))
            .then(actualOf => runOrLog(log, () => finishKnowingBody(ending, actualOf))),
        )
      return {
        ...forwarded,
        awaitsEnding: cost.needsEnd || holdsUnits || onFinish !== undefined,
        pump: cost.tap && createTapPump(cost.tap, { readOn }),
      }
    }

    return {
      finish(ending) {
        estimated.release()
        end(ending)
      },
      async forward(request, context, forward) {
        if (isBroken) return replyToGoneClient()
        const startedAt = now()
        // From here on, an exception does not say that nothing was done.
        end = ending => finishKnowingBody(ending, costWithoutReply(500))
        const mayHide = estimated.mayHideUsage || estimated.hidesUsage()
        const encoding = settler.acceptEncoding(request.headers.get('accept-encoding'), reservedBy(mayHide))
        const forwarded = await forward(copy, {
          ...context,
          ...(copy !== request && { copy, bodyFailed }),
          adapt(settings) {
            if (encoding) (settings.headers as Headers).set('accept-encoding', encoding)
            if (bodyFailed) settings.signal = AbortSignal.any([settings.signal!, bodyFailed])
          },
        })
        let reply = forwarded
        runOrLog(log, () => {
          reply = follow(forwarded, startedAt)
        })
        // The body was broken off on its way to the origin, because it is not JSON. What it has cost until then is not given back.
        const refusal = forwarded.isFromSluice && estimated.refusal()
        return refusal ? { ...reply, response: problem(refusal) } : reply
      },
    }
  }

  return decide => async (identified, background) => {
    const { request, caller, matched, amounts: given = {} } = identified
    const free = freeUnits(request, matched.rules)
    const estimated = await estimate(request, caller, matched.rules, { ...free, ...given })
    const refusal = estimated.refusal()
    if (refusal) {
      estimated.release()
      skipBody(estimated)
      return { unread: { kind: 'unread', problem: refusal } }
    }
    const amounts = estimated.amounts()
    const costOf: CostOf = (rule, matched) => {
      const { unit, cost } = rule
      if (unit === REQUESTS) return costInRequests(rule, matched)
      return Object.hasOwn(amounts, unit) ? amounts[unit]! : cost
    }
    try {
      const decided = await decide({ ...identified, costOf }, background)
      if ('unread' in decided) return decided
      // Without the store, a made-up key is admitted as well.
      if (decided.decision.kind !== 'allowed') skipBody(estimated)
      else if (!decided.decision.degraded) estimated.rememberCaller()
      return { ...decided, ...settling(decided, estimated, background) }
    } finally {
      // What passes is held until it has passed, or the request is over.
      if (!estimated.bodyFailed) estimated.release()
    }
  }
}

/** Lets the platform skip the rest of a body of which the beginning was read. Otherwise the client may not get the refusal. */
function skipBody({ request, bodyFailed }: EstimatedRequest): void {
  if (bodyFailed) request.body?.cancel().catch(() => {})
}
