/**
 * Reports a decision: counts it, logs unusual ones, writes a data point. This happens before the request is
 * forwarded, so that a request is reported even if its client leaves. A report never fails or delays a request.
 */
import type { Background } from '../../background.ts'
import type { Config } from '../../config/compile.ts'
import type { AnalyticsDataset } from '../../config/environment.ts'
import type { Decision } from '../../limiter/decision.ts'
import type { Ending } from '../../limiter/engine-shape.ts'
import type { Log } from '../../log.ts'
import { writeDataPoint } from '../../metrics/analytics.ts'
import type { FlushTiming, StatsRecorder } from '../../metrics/flush.ts'
import { isStoreFailure, KILLED, type Observation, refusingRuleNames } from '../../metrics/observation.ts'
import { type Caller, modeOf, verifiedConsumer } from './caller.ts'
import { observe, type RequestDetails } from './observe.ts'
import type { Ruling } from './ruling.ts'
import { logException } from './unexpected.ts'

/** Receivers of decisions; the defaults suit every platform. */
export interface Reporting extends Pick<FlushTiming, 'timer'> {
  analytics?: AnalyticsDataset
  /** Called once for each decision, at the end of its request. */
  onFinish?: (decision: Decision, ending: Ending) => void
}

export interface Reporter {
  /** @param details with the caller, if it is known */
  report(
    ruling: Ruling,
    details: RequestDetails & { caller: Caller | undefined },
    background: Background,
  ): void
  /** Logs that the address of a client is unknown, although rules or lists of the config depend on it. */
  reportUnknownAddress(): void
  /** Logs that the store has no key. */
  reportEmptyStore(): void
}

/**
 * Creates the reporter of an isolate.
 *
 * @param stats absent: nothing is counted
 */
export function createReporter(
  { address }: Pick<Config, 'address'>,
  stats: StatsRecorder | undefined,
  log: Log,
  { analytics }: Reporting,
): Reporter {
  const isReportedNowhere = !stats && !analytics
  let hasFailed = false

  return {
    report(ruling, { caller, ...details }, background) {
      const isUnusual = !isOrdinary(ruling) || details.shed?.allowed === false
      if (isReportedNowhere && !isUnusual) return
      try {
        const mode = modeOf(caller?.credential)
        const observation = observe(ruling, { ...details, mode })
        const refused = isUnusual
          ? { consumer: verifiedConsumer(caller, ruling), mode, address: caller?.address }
          : undefined
        stats?.count(observation, isStoreFailure(observation.cause), background, refused)
        if (isUnusual) logUnusual(log, observation)
        if (analytics) writeDataPoint(analytics, observation)
      } catch (error) {
        // Logged once, because it would fail for every request.
        if (!hasFailed) logException(log, error)
        hasFailed = true
      }
    },

    reportEmptyStore: () => log('warn', 'store-empty', { detail: NO_KEYS }),

    reportUnknownAddress: () => log('warn', 'unknown-address', { from: address.from, detail: NO_ADDRESS }),
  }
}

const NO_KEYS =
  'The store has no keys, so every key gets a 401. If it had some, restore a backup or create new keys.'

const NO_ADDRESS =
  'The address of a client is unknown, and all such callers count as one. Set address in the config, or on a platform that docs/guard.md does not list, the option address.'

/** Whether the store and every rule have allowed the request, so there is nothing to log. */
function isOrdinary(ruling: Ruling): boolean {
  return ruling.kind === 'allowed' && !ruling.degraded && ruling.verdicts.every(({ allowed }) => allowed)
}

/** Log lines contain no caller, address, path or credential. */
function logUnusual(log: Log, observation: Observation): void {
  const { outcome, cause, reason, detail, route, plan, mode, verdicts, retryAfter, requestId } = observation
  const fields = {
    ...(cause && { cause }),
    ...(detail && { detail }),
    ...(reason && { reason }),
    outcome,
    ...(route && { route }),
    ...(plan && { plan }),
    ...(mode && { mode }),
    ...(retryAfter !== undefined && { retry_after: retryAfter }),
    request_id: requestId,
  }
  // Under the kill switch, requests are not logged one by one.
  if (cause === KILLED) return
  const policies = refusingRuleNames(verdicts, 'enforce')
  if (cause) log('warn', 'degraded', { ...fields, policies })
  else if (outcome === 'unverifiable') log('warn', 'issuer', fields)
  else if (outcome !== 'allowed') log('info', 'refused', { ...fields, policies })
  const wouldRefuse = refusingRuleNames(verdicts, 'shadow')
  // Skip shadow results of requests that were refused anyway.
  if (wouldRefuse.length > 0 && policies.length === 0)
    log('info', 'would-refuse', { ...fields, policies: wouldRefuse })
}
