/** All parts of the gateway. Scripts are compiled when they are first needed. */
import { createSignatureCheck } from '../../credentials/key-signature.ts'
import { createOpaqueKeyFinder } from '../../credentials/opaque-key.ts'
import { createTokenFinder } from '../../credentials/tokens.ts'
import { createLeases } from '../../limiter/answers/leases.ts'
import { createRefusalMemory } from '../../limiter/answers/refusals.ts'
import { evaluateOnCluster } from '../../limiter/cluster.ts'
import { createGuesses } from '../../limiter/guesses.ts'
import { createLocalLimiter } from '../../limiter/outage/local.ts'
import { createEngineWithReservations } from '../../limiter/reservations/engine-with-reservations.ts'
import { createJobs } from '../../limiter/reservations/jobs.ts'
import { createHoldingsKeeper } from '../../limiter/units/keep-holdings.ts'
import { createStatsRecorder } from '../../metrics/flush.ts'
import { createMeasurements } from '../../metrics/measurements.ts'
import { createOtlpMeasurements } from '../../metrics/otlp.ts'
import { createTopCallers } from '../../metrics/top-callers.ts'
import { compileScripts } from '../../script/scripts.ts'
import { signalScript } from '../../script/signal-text.ts'
import { syncScript } from '../../script/sync-text.ts'
import { createAdaptiveLimit } from '../../shedding/adaptive-limit.ts'
import { createProcessPressure } from '../../shedding/process-pressure.ts'
import { createUtilizationShedderAndBoard } from '../../shedding/worker-utilization.ts'
import { withActualHook } from '../../usage/actual-hook.ts'
import { createUsageReader } from '../../usage/usage-reader.ts'
import { createDecideRequestWithAmounts } from './amounts.ts'
import { addressBehindProxies } from './behind-proxies.ts'
import { createFieldReader } from './body-fields.ts'
import { answerPreflight, setAllowedOrigin } from './cors.ts'
import { observeEnd } from './ending.ts'
import { createErrorShapes } from './error-shapes.ts'
import { createEstimateAmounts } from './estimate-amounts.ts'
import { createHookRunner } from './hooks.ts'
import { createMatchByRequest } from './match-by-request.ts'
import { createOriginLoad } from './origin-load.ts'
import type { Parts } from './parts.ts'
import { classOfRequest } from './traffic-class.ts'
import { createClientAddressReader } from './trusted-worker.ts'
import { createPushReceiver } from './utilization.ts'
import { withWebSocketKeys } from './web-socket-key.ts'
import { createXRateLimit } from './x-rate-limit.ts'

export const ALL_PARTS: Parts = {
  scriptsOf: compileScripts,
  evaluateOnCluster,
  createHoldingsKeeper,
  createEngine: createEngineWithReservations,
  createLocalLimiter,
  createLeases,
  createRefusalMemory,
  createGuesses,
  createStatsRecorder,
  createTopCallers,
  createMeasurements,
  createOtlpMeasurements,
  syncScript,
  observeEnd,
  createDecideRequest: createDecideRequestWithAmounts,
  createUsageReader,
  createJobs,
  withActualHook,
  createEstimateAmounts,
  createErrorShapes,
  createHookRunner,
  createXRateLimit,
  withWebSocketKeys,
  classOfRequest,
  createMatchByRequest,
  createSignatureCheck,
  createOpaqueKeyFinder,
  createTokenFinder,
  createOriginLoad,
  createUtilizationShedderAndBoard,
  createFieldReader,
  createProcessPressure,
  createAdaptiveLimit,
  signalScript,
  createPushReceiver,
  addressBehindProxies,
  createClientAddressReader,
  answerPreflight,
  setAllowedOrigin,
}
