/**
 * What the gateway measures of its origin. Two things follow from it: the pressure of the shedder by worker utilization, and the adaptive
 * limit. Both are shared by all isolates, by reports that ride on the trips of decisions (src/shedding/signal-board.ts).
 */
import type { Background } from '../../background.ts'
import type { Clock } from '../../clock.ts'
import type { Config } from '../../config/compile.ts'
import type { Rule } from '../../config/compile-rule.ts'
import { FLEET_USAGE, wholeShareOf } from '../../config/compile-shedding.ts'
import type { Allowed, Denied } from '../../limiter/decision.ts'
import type { createAdaptiveLimit } from '../../shedding/adaptive-limit.ts'
import type { refreshOverdue, SignalReporter, withSignals } from '../../shedding/signal-board.ts'
import type { createWorkerUtilization } from '../../shedding/worker-utilization.ts'
import type { Script, Store } from '../../store/store.ts'
import type { SwitchBoard } from '../../switches/live.ts'
import { createShedder, type Shedder } from './shed.ts'

/** A response of the origin, or what the gateway has made in its place. */
export interface OriginReply {
  request: Request
  response: Response
  /** Made by the gateway: the origin did not answer. */
  isOwn: boolean
  /** Until the headers of the response were there (ms). */
  latencyMs: number
  decision: Allowed
}

export interface OriginLoad {
  /** Absent where the config has no such shedder. */
  shedder?: Shedder
  /** The adaptive limit of a rule now; undefined: its limit is fixed. */
  limitOf(rule: Rule): number | undefined
  observeReply(reply: OriginReply): void
  /** Takes the signal out of a response to a request that is not counted. */
  hideSignal(headers: Headers): void
  observeRefusal(refusal: Denied): void
  /** The store; its trips carry the reports that are due. */
  withReports(store: Store): Store
  /** For requests that make no trip: reports what is overdue. */
  keepFresh(store: Store, background: Background): void
}

/** Those of the gateway's parts that this needs, as far as the config uses them. */
export interface OriginLoadParts {
  createWorkerUtilization: typeof createWorkerUtilization
  createAdaptiveLimit: typeof createAdaptiveLimit
  withSignals: typeof withSignals
  refreshOverdue: typeof refreshOverdue
  signalScript: () => Script
}

interface Surroundings {
  clock: Clock
  board: SwitchBoard
  /** µs to report by; absent: the clock of the store. */
  reportAt?: (() => number) | undefined
}

/** One for an isolate, where something follows the origin. */
export function createOriginLoad(
  config: Pick<Config, 'allow' | 'shedding' | 'adaptive'>,
  parts: OriginLoadParts,
  { clock, board, reportAt }: Surroundings,
): OriginLoad {
  const { workerUtilization } = config.shedding ?? {}
  const surroundings = { now: () => clock.now(), script: parts.signalScript, reportAt }
  const utilization = workerUtilization && parts.createWorkerUtilization(workerUtilization, surroundings)
  const adaptive = config.adaptive && parts.createAdaptiveLimit(config.adaptive, surroundings)
  const reporters = [utilization?.board, adaptive?.board].filter(
    (reporter): reporter is SignalReporter => reporter !== undefined,
  )
  const shedder = utilization && createShedder(config, utilization.shedder, board)
  const limitOf = ({ adaptiveShare }: Rule) =>
    adaptiveShare === undefined || !adaptive
      ? undefined
      : Math.max(1, wholeShareOf(adaptive.limit(), adaptiveShare))

  return {
    ...(shedder && { shedder }),
    limitOf,

    observeReply({ request, response, isOwn, latencyMs, decision }) {
      const isFresh = !isOwn && !isCached(response.headers)
      utilization?.shedder.observeReply(response.headers, isFresh)
      // What an isolate counts by itself says nothing of the fleet.
      const verdicts = decision.degraded ? [] : decision.verdicts
      const fleet = verdicts.find(({ rule }) => rule.name === FLEET_USAGE)
      if (fleet) {
        const capacity = limitOf(fleet.rule) ?? fleet.rule.limit
        utilization?.shedder.observeInFlight((capacity - fleet.remaining) / fleet.rule.limit)
      }
      const whole = verdicts.find(({ rule }) => rule.adaptiveShare === 1)
      if (!whole || !(isFresh || isOwn) || isOfClient(request, isOwn)) return
      const inFlight = Math.max(0, limitOf(whole.rule)! - whole.remaining)
      adaptive?.observe({ hasFailed: isOwn || response.status >= 500, latencyMs, inFlight })
    },

    hideSignal: headers => utilization?.shedder.observeReply(headers, false),

    observeRefusal({ violated, degraded }) {
      if (!degraded && violated.some(({ rule }) => rule.adaptiveShare !== undefined))
        adaptive?.observeRefusal()
    },

    withReports: store => parts.withSignals(store, reporters),
    keepFresh: (store, background) => parts.refreshOverdue(store, reporters, background),
  }
}

/** The response comes from a cache, with the headers of an earlier moment. */
const isCached = (headers: Headers) => headers.has('age') || headers.get('cf-cache-status') === 'HIT'

/** The most bytes of a body whose sending does not count. */
const SMALL_BODY = 64 * 1024

/**
 * Whether the time, or the failure, may be of the client and not of the origin: it has left, or it has a long body to send. A
 * Content-Length is the client's word; a wrong one breaks the request.
 */
function isOfClient({ body, headers, signal }: Request, hasFailed: boolean): boolean {
  if (signal.aborted) return true
  if (body === null) return false
  const length = headers.get('content-length')
  return hasFailed || length === null || Number(length) > SMALL_BODY
}
