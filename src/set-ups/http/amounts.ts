/**
 * What requests cost in units of the config: estimates before they are decided, and actual amounts from their replies. A Worker whose config
 * has neither `units` nor `countIf` does not carry this file.
 */
import type { Background } from '../../background.ts'
import type { Timer } from '../../clock.ts'
import type { Config } from '../../config/compile.ts'
import { countsInFlight, type GatewayRule, REQUESTS } from '../../config/compile-rule.ts'
import type { Decision } from '../../limiter/decision.ts'
import type { Decided, Ending } from '../../limiter/engine-shape.ts'
import type { createJobs } from '../../limiter/reservations/jobs.ts'
import type { ActualOf } from '../../limiter/reservations/reservation.ts'
import type { Log } from '../../log.ts'
import { sha256 } from '../../sha256.ts'
import { jobKey } from '../../store/keys.ts'
import { choosesReply } from '../../usage/partial-reply.ts'
import { isRead } from '../../usage/reads.ts'
import type { Amounts, Job, UsageFormat } from '../../usage/usage.ts'
import { anyEstimated, estimatesFromBody, readsJobs } from './amounts-needed.ts'
import { type Caller, verifiedConsumer } from './caller.ts'
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
import { type Problem, problem } from './problem.ts'
import type { Reporting } from './report.ts'
import { type Cost, costWithoutReply, createAmountSettler, type SettleParts } from './settle-amounts.ts'
import { createReadOn, createTapPump } from './tap-pump.ts'
import { logException, runOrLog } from './unexpected.ts'

/** Parts that a Worker carries only if its units need them. */
export interface AmountParts extends SettleParts {
  /** With units that are estimated from the body of a request, or that ask the origin for usage. */
  createEstimateAmounts: typeof createEstimateAmounts
  /** With units whose `actual` is `{ usage: 'openai' }`. */
  createJobs: typeof createJobs
}

/** What a set-up passes in for amounts. */
export interface AmountsPlatform {
  parts: AmountParts
  log: Log
  /** Monotonic time (ms). */
  now(): number
  /** The time of this machine (ms). */
  wallClock(): number
  timer: Timer
  onFinish: Reporting['onFinish'] | undefined
}

/** The format whose responses and batches can be jobs. */
const JOBS_OF = 'openai'

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
  { parts, engine, ruleSet, now, wallClock, timer, onFinish, log }: AmountsPlatform & DecideRequestParts,
): (decide: DecideIdentified) => DecideIdentified {
  const units = config.units!
  const settler = createAmountSettler({ units, hooks: config.hooks }, parts, now, log)
  const jobs = readsJobs(config)
    ? parts.createJobs({ engine, ruleSet, rules: config.rules, timer, wallClock })
    : undefined
  const readOn = config.onClientGone === 'read-on' ? createReadOn() : undefined
  const estimate = estimatesFromBody(config)
    ? parts.createEstimateAmounts(units)
    : async (request: Request, _: Caller, __: unknown, amounts: Amounts): Promise<EstimatedRequest> =>
        withoutBody(request, amounts)

  const usageOf = ({ unit }: GatewayRule) => {
    const actual = units.get(unit)?.actual
    return typeof actual === 'object' && 'usage' in actual ? actual.usage : undefined
  }
  const rulesWithJobs = config.rules.filter(rule => usageOf(rule) === JOBS_OF)

  /**
   * The units that a request does not cost, because it only reads what was made before, and the rules that may have counted the job which it
   * reads: also those that only match creations. `choosing`: what lets the reply have no usage.
   */
  function readsOf(request: Request, rules: readonly GatewayRule[]) {
    const url = new URL(request.url)
    const isOverridden = httpMethodsOf(request, url).length > 1
    const reads = (format: UsageFormat) => !isOverridden && isRead(format, request, url.pathname)
    const freeUnits: Record<string, number> = {}
    let choosing: string | undefined
    for (const rule of rules) {
      const format = usageOf(rule)
      if (!format) continue
      if (reads(format)) freeUnits[rule.unit] = 0
      else choosing ??= choosesReply(format, request, url)
    }
    const readsJob = rulesWithJobs.length > 0 && reads(JOBS_OF) === 'job'
    return {
      ...{ freeUnits, choosing },
      jobRules: readsJob ? rulesWithJobs : undefined,
    }
  }

  /** The key of a job of the caller. Undefined: only the store knows the caller, and has not decided the request. */
  function keyOfJob({ id }: Job, caller: Caller, decision: Decision): string | undefined {
    const consumer = verifiedConsumer(caller, decision)
    const owner = caller.credential ? consumer && { consumer } : { address: caller.addressIdentity }
    return owner ? jobKey(owner, sha256(id)) : undefined
  }

  function settling(
    { decision, stake, finish, caller }: Decided & { caller: Caller },
    estimated: EstimatedRequest,
    jobRules: readonly GatewayRule[] | undefined,
    background: Background,
  ): Settling {
    const { request: copy, bodyFailed, isBroken } = estimated
    const reservedBy = (hidesUsage: boolean) => ({
      ...{ reservation: stake?.reservation, jobRules, hidesUsage },
      estimate: estimated.amounts,
    })
    const holdsUnits =
      'verdicts' in decision && decision.verdicts.some(({ rule, allowed }) => allowed && countsInFlight(rule))
    // Until the request is forwarded, it costs nothing.
    let end = (ending: Ending) => finish(ending, () => 0)

    /** What is not found in the reply costs the estimate. A large body has shown on its way what that is. */
    const knowingBody = (actualOf: ActualOf | undefined): ActualOf | undefined =>
      bodyFailed ? rule => actualOf?.(rule) ?? estimated.amounts()[rule.unit] : actualOf
    const finishKnowingBody = (ending: Ending, actualOf?: ActualOf) => finish(ending, knowingBody(actualOf))

    /** Keeps the job that a request has begun, or settles the one that it has read. */
    function noteJob({ job, actualOf }: Cost): void {
      const key = job && keyOfJob(job, caller, decision)
      if (!key || !jobs) return
      const reservation = stake?.reservation
      if (jobRules) {
        if (job.isOver) background(jobs.settle(key, actualOf, background).catch(logFailure))
      } else if (reservation && !job.isOver) {
        background(jobs.keep(key, reservation, knowingBody(actualOf), background).catch(logFailure))
      }
    }
    const logFailure = (error: unknown) => logException(log, error)

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
            .then(cost => {
              runOrLog(log, () => finishKnowingBody(ending, cost?.actualOf))
              if (cost) runOrLog(log, () => noteJob(cost))
            }),
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
            context.adapt?.(settings)
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
    const { freeUnits, jobRules, choosing } = readsOf(request, matched.rules)
    if (choosing !== undefined) return { unread: { kind: 'unread', problem: withoutUsage(choosing) } }
    const estimated = await estimate(request, caller, matched.rules, { ...freeUnits, ...given })
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
      return { ...decided, ...settling(decided, estimated, jobRules, background) }
    } finally {
      // What passes is held until it has passed, or the request is over.
      if (!estimated.bodyFailed) estimated.release()
    }
  }
}

const withoutUsage = (choosing: string): Problem => ({
  ...{ status: 400, title: 'Bad Request' },
  detail: `The reply would not have its usage because of ${choosing}. Nothing was charged. Send the request without it.`,
})

/** Lets the platform skip the rest of a body of which the beginning was read. Otherwise the client may not get the refusal. */
function skipBody({ request, bodyFailed }: EstimatedRequest): void {
  if (bodyFailed) request.body?.cancel().catch(() => {})
}
