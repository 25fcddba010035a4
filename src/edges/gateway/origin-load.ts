/**
 * What the gateway measures of its origin, and what follows from it: the pressure of the shedder by worker utilization, and the limit that
 * adapts. Both are shared by all isolates, by reports that ride on the trips of decisions (src/shedding/signal-board.ts).
 */
import type { Background } from '../../background.ts'
import type { Clock } from '../../clock.ts'
import type { Config } from '../../config/compile.ts'
import type { Rule } from '../../config/compile-rule.ts'
import { FLEET_USAGE, wholeShareOf } from '../../config/compile-shedding.ts'
import type { Verdict } from '../../script/evaluation.ts'
import type { createAdaptiveLimit } from '../../shedding/adaptive-limit.ts'
import type { refreshOverdue, SignalReporter, withSignals } from '../../shedding/signal-board.ts'
import type { createWorkerUtilization } from '../../shedding/worker-utilization.ts'
import type { Script, Store } from '../../store/store.ts'
import type { SwitchBoard } from '../../switches/live.ts'
import { createShedding, type Shedding } from './shedding.ts'

/** A response of the origin, or what the gateway has made in its place. */
export interface OriginReply {
  response: Response
  /** Made by the gateway: the origin did not answer. */
  isOwn: boolean
  /** Until the headers of the response were there (ms). */
  latencyMs: number
  /** Of the decision on the request. */
  verdicts: readonly Verdict[]
}

export interface OriginLoad {
  /** Absent where the config has no such shedder. */
  shedding?: Shedding
  /** The adaptive limit of a rule now; undefined: its limit is fixed. */
  limitOf(rule: Rule): number | undefined
  observeReply(reply: OriginReply): void
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
  const shedding = utilization && createShedding(config, utilization.shedder, board)
  const limitOf = ({ adaptiveShare }: Rule) =>
    adaptiveShare === undefined || !adaptive
      ? undefined
      : Math.max(1, wholeShareOf(adaptive.limit(), adaptiveShare))

  return {
    ...(shedding && { shedding }),
    limitOf,

    observeReply({ response, isOwn, latencyMs, verdicts }) {
      if (!isOwn) utilization?.shedder.observeReply(response.headers)
      const inFlight = inFlightBy(verdicts, limitOf)
      if (inFlight === undefined) return
      const { count, capacity } = inFlight
      utilization?.shedder.observeInFlight(count / capacity)
      adaptive?.observe({ hasFailed: isOwn || response.status >= 500, latencyMs, inFlight: count })
    },

    withReports: store => parts.withSignals(store, reporters),
    keepFresh: (store, background) => parts.refreshOverdue(store, reporters, background),
  }
}

/** What the whole fleet has in flight, as the rule that counts all of it says. */
function inFlightBy(
  verdicts: readonly Verdict[],
  limitOf: OriginLoad['limitOf'],
): { count: number; capacity: number } | undefined {
  const whole = verdicts.find(({ rule }) => rule.name === FLEET_USAGE || rule.adaptiveShare === 1)
  if (!whole) return undefined
  const capacity = limitOf(whole.rule) ?? whole.rule.limit
  return { count: Math.max(0, capacity - whole.remaining), capacity }
}
