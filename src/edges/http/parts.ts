/** Parts that a Worker carries only if its config uses them. src/built/worker.generated.ts selects them. */
import type { Config } from '../../config/compile.ts'
import type { createOpaqueKeyFinder } from '../../credentials/opaque-key.ts'
import type { createTokenFinder } from '../../credentials/tokens.ts'
import type { EvaluateOnCluster } from '../../limiter/evaluate.ts'
import type { createHoldingsKeeper } from '../../limiter/keep-holdings.ts'
import type { createLeases } from '../../limiter/leases.ts'
import type { createLocalLimiter } from '../../limiter/local.ts'
import type { createRefusalMemory } from '../../limiter/refusals.ts'
import type { createStatsRecorder } from '../../metrics/keep-stats.ts'
import type { ScriptsOf } from '../../script/policy-shape.ts'
import type { Script } from '../../store/store.ts'
import type { addressBehindProxies } from './behind-proxies.ts'
import type { answerPreflight, setAllowedOrigin } from './cors.ts'
import type { observeEnd } from './ending.ts'
import type { createHookRunner } from './hooks.ts'
import type { createMatchByRequest } from './match-by-request.ts'
import type { createOriginLoad, OriginLoadParts } from './origin-load.ts'
import type { classOfRequest } from './traffic-class.ts'
import type { createClientAddressReader } from './trusted-worker.ts'
import type { createPushReceiver } from './utilization.ts'
import type { withWebSocketKeys } from './web-socket-key.ts'
import type { createXRateLimit } from './x-rate-limit.ts'

export interface Parts extends OriginLoadParts {
  scriptsOf: ScriptsOf
  /** With `store.cluster`. */
  evaluateOnCluster: EvaluateOnCluster
  /** Unless all rules are `closed` while the store fails. */
  createLocalLimiter: typeof createLocalLimiter
  /** Unless refusals are not remembered (`refusals: { rememberFor: 0 }`). */
  createRefusalMemory: typeof createRefusalMemory
  /** With `lease`. */
  createLeases: typeof createLeases
  /** Unless statistics are off (`stats: { keep: false }`). */
  createStatsRecorder: typeof createStatsRecorder
  /** With rules that count requests in flight. */
  createHoldingsKeeper: typeof createHoldingsKeeper
  syncScript: () => Script
  observeEnd: typeof observeEnd
  /** With `hooks`. */
  createHookRunner: typeof createHookRunner
  /** With `headers: { xRateLimit }`. */
  createXRateLimit: typeof createXRateLimit
  /** With `credentials: { webSocketKeys: true }`. */
  withWebSocketKeys: typeof withWebSocketKeys
  /** With `shedding`. */
  classOfRequest: typeof classOfRequest
  /** With `credentials.opaqueKeys`. */
  createOpaqueKeyFinder: typeof createOpaqueKeyFinder
  /** With `credentials.jwt`. */
  createTokenFinder: typeof createTokenFinder
  /** With routes, or with rules or traffic classes that depend on method, host or path. */
  createMatchByRequest: typeof createMatchByRequest
  /** With `shedding.workerUtilization` or `adaptive`. */
  createOriginLoad: typeof createOriginLoad
  /** With `shedding: { workerUtilization: { signals: ['push'] } }`. */
  createPushReceiver: typeof createPushReceiver
  /** With `address: { from: … }` and a header that proxies append to. */
  addressBehindProxies: typeof addressBehindProxies
  /** With `address: { trustedWorkers }`. */
  createClientAddressReader: typeof createClientAddressReader
  /** With `cors`. */
  answerPreflight: typeof answerPreflight
  setAllowedOrigin: typeof setAllowedOrigin
}

/** Whether a limit depends on measurements of the origin. */
export const followsOrigin = ({ shedding, adaptive }: Pick<Config, 'shedding' | 'adaptive'>) =>
  shedding?.workerUtilization !== undefined || adaptive !== undefined
