/**
 * Measurements of the origin. The pressure of the worker utilization shedder and the adaptive limit follow from them.
 * All isolates share both, through reports that are sent with decisions (src/shedding/signal-board.ts).
 */
import { type Clock, elapsed } from '../../clock.ts'
import type { Config } from '../../config/compile.ts'
import type { Rule } from '../../config/compile-rule.ts'
import { FLEET_USAGE, shareOfAdaptive } from '../../config/compile-shedding.ts'
import type { Allowed, Denied } from '../../limiter/decision.ts'
import type { Verdict } from '../../script/evaluation.ts'
import type { createAdaptiveLimit } from '../../shedding/adaptive-limit.ts'
import type { createProcessPressure, ProcessUsage } from '../../shedding/process-pressure.ts'
import type { createUtilizationShedderAndBoard } from '../../shedding/worker-utilization.ts'
import type { Script } from '../../store/store.ts'
import type { SwitchBoard } from '../../switches/live.ts'
import type { Rider } from '../../trips/rider.ts'
import { createShedder, type Shedder } from './shed.ts'

/** A response of the origin, or the reply that the gateway made instead. */
export interface OriginReply {
  request: Request
  response: Response
  /** The gateway made it, because the origin did not answer. */
  isFromSluice: boolean
  /** Its end was awaited, and depends on how fast the client reads. */
  isLarge?: boolean
  /** Time until the headers of the response arrived, or until a framework has sent all of it (ms). */
  latencyMs: number
  decision: Allowed
}

export interface OriginLoad {
  /** Absent if the config has no such shedder. */
  shedder?: Shedder
  /** The current adaptive limit of a rule; undefined if its limit is fixed. */
  limitOf(rule: Rule): number | undefined
  observeReply(reply: OriginReply): void
  /** Removes the signal from a response to a request that is not counted. */
  hideSignal(headers: Headers): void
  observeRefusal(refusal: Denied): void
  /** Report the measurements, one rider for each signal. */
  readonly riders: readonly Rider[]
}

/** The parts of the gateway that this needs, as far as the config uses them. */
export interface OriginLoadParts {
  createUtilizationShedderAndBoard: typeof createUtilizationShedderAndBoard
  /** With signals of the process. Undefined in a built Worker, which has none. */
  createProcessPressure?: typeof createProcessPressure | undefined
  createAdaptiveLimit: typeof createAdaptiveLimit
  signalScript: () => Script
}

interface OriginLoadOptions {
  clock: Clock
  board: SwitchBoard
  /** The time of reports (µs); absent: the clock of the store. */
  reportAt?: (() => number) | undefined
  processUsage?: ProcessUsage | undefined
}

/** Creates the measurements of an isolate, if a limit depends on the origin. */
export function createOriginLoad(
  config: Pick<Config, 'allow' | 'shedding' | 'adaptive'>,
  parts: OriginLoadParts,
  { clock, board, reportAt, processUsage }: OriginLoadOptions,
): OriginLoad {
  const { workerUtilization } = config.shedding ?? {}
  const boardOptions = { now: () => elapsed(clock), script: parts.signalScript, reportAt }
  const ofProcess =
    workerUtilization?.ofProcess &&
    parts.createProcessPressure?.(workerUtilization, boardOptions.now, processUsage)
  const utilization =
    workerUtilization && parts.createUtilizationShedderAndBoard(workerUtilization, boardOptions, ofProcess)
  const adaptive = config.adaptive && parts.createAdaptiveLimit(config.adaptive, boardOptions)
  const shedder = utilization && createShedder(config, utilization.shedder, board)
  const limitOf = ({ adaptiveShare }: Rule) =>
    adaptiveShare === undefined || !adaptive ? undefined : shareOfAdaptive(adaptive.limit(), adaptiveShare)

  return {
    ...(shedder && { shedder }),
    limitOf,

    observeReply({ request, response, isFromSluice, isLarge, latencyMs, decision }) {
      const isFresh = !isFromSluice && !isCached(response.headers)
      utilization?.shedder.observeReply(response.headers, isFresh)
      // The isolate's own counts say nothing about the fleet.
      const verdicts = decision.degraded ? [] : decision.verdicts
      const fleet = verdicts.find(({ rule }) => rule.name === FLEET_USAGE)
      // The quota has the capacity of the config, also if the limit of this request was lower.
      if (fleet) utilization?.shedder.observeInFlight(inFlightOf(fleet) / fleet.rule.quota.burst)
      const whole = verdicts.find(({ rule }) => rule.adaptiveShare === 1)
      if (!whole || !(isFresh || isFromSluice) || isLarge || dependsOnClient(request, isFromSluice)) return
      const hasFailed = isFromSluice || response.status >= 500
      adaptive?.observe({ hasFailed, latencyMs, inFlight: inFlightOf(whole) })
    },

    hideSignal: headers => utilization?.shedder.observeReply(headers, false),

    observeRefusal({ violated, degraded }) {
      if (!degraded && violated.some(({ rule }) => rule.adaptiveShare !== undefined))
        adaptive?.observeRefusal()
    },

    riders: [utilization?.board, adaptive?.board].filter(board => board !== undefined),
  }
}

/** Requests of the fleet in flight when the store decided, including this one. */
const inFlightOf = ({ rule: { limit }, remaining }: Verdict) => Math.max(0, limit - remaining)

/** Whether the response comes from a cache, with headers of an earlier time. */
const isCached = (headers: Headers) => headers.has('age') || headers.get('cf-cache-status') === 'HIT'

/** The largest body, in bytes, that does not affect the measurement. */
export const MAX_BODY_BYTES = 64 * 1024

/**
 * Whether the client may have caused the latency or the failure: it has left, or sends a long body. Content-Length
 * can be trusted here, because a wrong one breaks the request.
 */
function dependsOnClient({ body, headers, signal }: Request, hasFailed: boolean): boolean {
  if (signal.aborted) return true
  if (body === null) return false
  const length = headers.get('content-length')
  return hasFailed || length === null || Number(length) > MAX_BODY_BYTES
}
