/** Parts that a Worker carries only if its config uses them. src/built/worker.generated.ts selects them. */
import type { Config } from '../../config/compile.ts'
import type { createSignatureCheck } from '../../credentials/key-signature.ts'
import type { createOpaqueKeyFinder } from '../../credentials/opaque-key.ts'
import type { createTokenFinder } from '../../credentials/tokens.ts'
import type { EngineParts } from '../../limiter/engine-with-parts.ts'
import type { MeasurementParts } from '../../metrics/create-metrics.ts'
import type { createStatsRecorder } from '../../metrics/flush.ts'
import type { createTopCallers } from '../../metrics/top-callers.ts'
import type { AmountParts, AmountsPlatform } from './amounts.ts'
import type { addressBehindProxies } from './behind-proxies.ts'
import type { createFieldReader } from './body-fields.ts'
import type { answerPreflight, setAllowedOrigin } from './cors.ts'
import type { DecideRequest, DecideRequestParts } from './decide-request.ts'
import type { observeEnd } from './ending.ts'
import type { createErrorShapes } from './error-shapes.ts'
import type { createHookRunner } from './hooks.ts'
import type { createMatchByRequest } from './match-by-request.ts'
import type { createOriginLoad, OriginLoadParts } from './origin-load.ts'
import type { classOfRequest } from './traffic-class.ts'
import type { createClientAddressReader } from './trusted-worker.ts'
import type { createPushReceiver } from './utilization.ts'
import type { withWebSocketKeys } from './web-socket-key.ts'
import type { createXRateLimit } from './x-rate-limit.ts'

export interface Parts extends Required<EngineParts>, OriginLoadParts, AmountParts, MeasurementParts {
  /** Unless statistics are off (`stats: { keep: false }`). */
  createStatsRecorder: typeof createStatsRecorder
  /** Unless `stats: { topCallers: 'off' }`. */
  createTopCallers: typeof createTopCallers
  /** With rules that count requests in flight, or that reserve units. */
  observeEnd: typeof observeEnd
  /** `createDecideRequest`; with `units` or `countIf`, `createDecideRequestWithAmounts`. */
  createDecideRequest(config: Config, parts: DecideRequestParts & AmountsPlatform): DecideRequest
  /** With units whose errors have the shape of another API. */
  createErrorShapes: typeof createErrorShapes
  /** With rules that count by a field of the body. */
  createFieldReader: typeof createFieldReader
  /** With `hooks`. */
  createHookRunner: typeof createHookRunner
  /** With `headers: { xRateLimit }`. */
  createXRateLimit: typeof createXRateLimit
  /** With `credentials: { webSocketKeys: true }`. */
  withWebSocketKeys: typeof withWebSocketKeys
  /** With `shedding`. */
  classOfRequest: typeof classOfRequest
  /** With `credentials.apiKeys.signature`. */
  createSignatureCheck: typeof createSignatureCheck
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

/** Whether replies of the gateway itself can have the shape of another API. */
export const hasErrorShapes = ({ units }: Pick<Config, 'units'>) =>
  units !== undefined && [...units.values()].some(({ errors }) => errors !== undefined)
