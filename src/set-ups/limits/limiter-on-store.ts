/** Limits by name with every part. Scripts that were not built are compiled when they are first needed. */

import { mistakesOfSettlement } from '../../config/check/mistakes-of-settlement.ts'
import { createLeases } from '../../limiter/answers/leases.ts'
import { createRefusalMemory } from '../../limiter/answers/refusals.ts'
import { evaluateOnCluster } from '../../limiter/cluster.ts'
import { createLocalLimiter } from '../../limiter/outage/local.ts'
import { preparePause, prepareReset } from '../../limiter/prepared-call.ts'
import { createEngineWithReservations } from '../../limiter/reservations/engine-with-reservations.ts'
import { createHoldingsKeeper } from '../../limiter/units/keep-holdings.ts'
import { createStatsRecorder } from '../../metrics/flush.ts'
import { createMeasurements } from '../../metrics/measurements.ts'
import { createMetricsReader } from '../../metrics/metrics-reader.ts'
import { createOtlpMeasurements } from '../../metrics/otlp.ts'
import { createTopCallers } from '../../metrics/top-callers.ts'
import { withReservations } from '../../script/reservation-wire.ts'
import type { ScriptsOf } from '../../script/rule-set-shape.ts'
import { compileScripts } from '../../script/scripts.ts'
import { syncScript } from '../../script/sync-text.ts'
import type { Store } from '../../store/store.ts'
import { ALL_NUMBERS } from './all-numbers.ts'
import {
  createGuardableLimiter,
  type GuardableLimiter,
  type Limiter,
  type LimiterConfig,
  type LimiterSettings,
} from './limiter.ts'
import { createGiveNumbers } from './numbers.ts'
import { createReserving } from './reserve.ts'

export interface StoreLimiterSettings extends LimiterSettings {
  /**
   * The scripts that `npx sluicegate build` has compiled (src/built/limits.generated.ts). Absent: each script is
   * compiled when it is first needed.
   */
  scriptsOf?: ScriptsOf
}

/**
 * Creates a limiter on a store.
 *
 *     const limiter = createLimiterOnStore(config, store, { scriptsOf })
 *     const { allowed, delayMs, retryAfterMs } = await limiter.limit('zendesk', { account: '42' }, { cost: 1 })
 *
 * @throws Error if `scriptsOf` was built for other limits than those of the config
 */
export function createLimiterOnStore(
  config: LimiterConfig,
  store: Store,
  settings?: StoreLimiterSettings,
): Limiter {
  return createGuardableLimiterOnStore(config, store, settings)()
}

/** Creates a limiter as `createLimiterOnStore`, for calls with and without a guard. */
export function createGuardableLimiterOnStore(
  config: LimiterConfig,
  store: Store,
  { scriptsOf = compileScripts, ...settings }: StoreLimiterSettings = {},
): GuardableLimiter {
  const parts = {
    ...{ scriptsOf: withReservations(scriptsOf), syncScript, evaluateOnCluster, prepareReset, preparePause },
    ...{ createStatsRecorder, createTopCallers },
    ...{
      createHoldingsKeeper,
      createLeases,
      createLocalLimiter,
      createRefusalMemory,
      createEngine: createEngineWithReservations,
    },
    createReserving,
    createGiveNumbers,
    ...{ ruleNumbers: ALL_NUMBERS, mistakesOfSettlement },
    ...{ createMeasurements, createOtlpMeasurements, createMetricsReader },
  }
  return createGuardableLimiter(config, store, parts, settings)
}
