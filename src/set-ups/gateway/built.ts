/**
 * The imports of src/built/worker.generated.ts. `npx sluicegate build` imports the parts that a config uses, and a
 * bundler drops the others. Do not import from this file by hand.
 */
// First: in a bundle, modules have the order in which they are imported. Compression looks back only 32 kB, so a good order makes Workers smaller.
import '@upstash/redis/cloudflare'
import 'hono/tiny'
import 'valibot'
import '@noble/hashes/sha2.js'
import 'structured-headers'

export * as moduleOrder from '../module-order.generated.ts'

// The parts.

export { compileAdaptive, compileFleetRules, compileShedding } from '../../config/compile-shedding.ts'
export { createSignatureCheck } from '../../credentials/key-signature.ts'
export { createOpaqueKeyFinder } from '../../credentials/opaque-key.ts'
export { createTokenFinder } from '../../credentials/tokens.ts'
export { createGuesses } from '../../limiter/guesses.ts'
export { createJobs } from '../../limiter/reservations/jobs.ts'
export { prepareAdaptive, prepareFleet, prepareUtilization } from '../../metrics/current-load.ts'
export { createScriptFinder } from '../../script/built-scripts.ts'
export { createAdaptiveLimit } from '../../shedding/adaptive-limit.ts'
export { createUtilizationShedderAndBoard } from '../../shedding/worker-utilization.ts'
export { withActualHook } from '../../usage/actual-hook.ts'
export { createUsageReader } from '../../usage/usage-reader.ts'
export * from '../api/built.ts'
export * from '../built-parts.ts'
export { createDecideRequestWithAmounts } from '../http/amounts.ts'
export { addressBehindProxies } from '../http/behind-proxies.ts'
export { createFieldReader } from '../http/body-fields.ts'
export { answerPreflight, setAllowedOrigin } from '../http/cors.ts'
export { createDecideRequest } from '../http/decide-request.ts'
export { observeEnd } from '../http/ending.ts'
export { createErrorShapes } from '../http/error-shapes.ts'
export { createEstimateAmounts } from '../http/estimate-amounts.ts'
export { createHookRunner } from '../http/hooks.ts'
export { createMatchByRequest } from '../http/match-by-request.ts'
export { createOriginLoad } from '../http/origin-load.ts'
export { classOfRequest } from '../http/traffic-class.ts'
export { createClientAddressReader } from '../http/trusted-worker.ts'
export { createPushReceiver } from '../http/utilization.ts'
export { withWebSocketKeys } from '../http/web-socket-key.ts'
export { createXRateLimit } from '../http/x-rate-limit.ts'
export { createMetricsEndpoint } from './metrics.ts'
export { createWorker } from './worker.ts'
