/**
 * A request is decided: counts it, logs what is unusual, sends the data point. Before the origin is asked, since who goes
 * away meanwhile has been decided about too. Nothing of this fails or delays a request.
 */
import type { Config } from '../config/compile.ts'
import type { AnalyticsDataset } from '../config/environment.ts'
import type { Decision } from '../limiter/decide.ts'
import type { DegradedCause } from '../limiter/evaluate.ts'
import { causeOf } from '../limiter/evaluate.ts'
import { writeDataPoint } from '../metrics/analytics.ts'
import { createCounters } from '../metrics/counters.ts'
import { createFlusher, type FlushTiming } from '../metrics/flush.ts'
import { createLog, type Log } from '../metrics/log.ts'
import { type Circumstances, type Observation, observe, refusing } from '../metrics/observation.ts'
import type { StoreChange } from '../store/breaker.ts'
import type { Store } from '../store/store.ts'
import type { Background } from './background.ts'
import { logException } from './unexpected.ts'

/** How it is told; what is absent is as on any platform. */
export interface Telling extends Omit<FlushTiming, 'everyMs'> {
  analytics?: AnalyticsDataset
}

export interface Settle {
  /** A request is decided. */
  settle(decision: Decision, circumstances: Circumstances, background: Background): void
  /** The store is gone, or back: one line each, whatever comes of requests. */
  tellOfStore(change: StoreChange): void
}

/** One for an isolate. */
export function createSettle(
  config: Pick<Config, 'log' | 'stats'>,
  store: Store,
  { analytics, ...timing }: Telling,
): Settle {
  const counters = createCounters()
  const flusher = config.stats && createFlusher(counters, store, { ...timing, ...config.stats })
  const log = createLog(config.log.perSecond, timing.now)
  let hasFailed = false

  function settle(decision: Decision, circumstances: Circumstances, background: Background): void {
    try {
      const observation = observe(decision, circumstances)
      if (flusher) {
        counters.record(observation)
        if (observation.cause && observation.cause !== KILLED) flusher.doubt()
        flusher.schedule(background)
      }
      logUnusual(log, observation)
      if (analytics) writeDataPoint(analytics, observation)
    } catch (error) {
      // Once: what fails here fails for every request.
      if (!hasFailed) logException(error)
      hasFailed = true
    }
  }

  return {
    settle,
    tellOfStore(change) {
      if (change.isOpen)
        log('warn', 'store-lost', { cause: causeOf(change.cause), detail: change.cause.message })
      else log('info', 'store-back', { after_ms: change.afterMs })
    },
  }
}

/** Who has switched everything off need not be told so by every request, and the store has not failed. */
const KILLED: DegradedCause = 'kill-switch'

/** No caller, address, path or credential stands in a line. */
function logUnusual(log: Log, observation: Observation): void {
  const { outcome, cause, reason, detail, route, plan, verdicts, retryAfter, requestId } = observation
  const told = {
    ...(cause && { cause }),
    ...(detail && { detail }),
    ...(reason && { reason }),
    outcome,
    ...(route && { route }),
    ...(plan && { plan }),
    ...(retryAfter !== undefined && { retry_after: retryAfter }),
    request_id: requestId,
  }
  if (cause === KILLED) return
  const policies = refusing(verdicts, 'enforce')
  if (cause) log('warn', 'degraded', { ...told, policies })
  else if (outcome === 'unverifiable') log('warn', 'issuer', told)
  else if (outcome !== 'allowed') log('info', 'refused', { ...told, policies })
  const wouldRefuse = refusing(verdicts, 'shadow')
  // Who is refused anyway is no argument about a rule.
  if (wouldRefuse.length > 0 && policies.length === 0)
    log('info', 'would-refuse', { ...told, policies: wouldRefuse })
}
