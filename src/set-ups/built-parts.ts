/** The parts that the generated modules in src/built/ import, both for the gateway and for limits by name. */
export { windowEnds } from '../algorithms/calendar.ts'
export {
  counting as concurrency,
  numbers as concurrencyNumbers,
} from '../algorithms/concurrency.descriptor.ts'
export {
  counting as fixedWindow,
  numbers as fixedWindowNumbers,
} from '../algorithms/fixed-window.descriptor.ts'
export { counting as gcra, numbers as gcraNumbers } from '../algorithms/gcra.descriptor.ts'
export {
  counting as leakyBucket,
  numbers as leakyBucketNumbers,
} from '../algorithms/leaky-bucket.descriptor.ts'
export { counting as slidingLog, numbers as slidingLogNumbers } from '../algorithms/sliding-log.descriptor.ts'
export {
  counting as slidingWindow,
  numbers as slidingWindowNumbers,
} from '../algorithms/sliding-window.descriptor.ts'
export {
  counting as tokenBucket,
  numbers as tokenBucketNumbers,
} from '../algorithms/token-bucket.descriptor.ts'
export { mistakesOfSettlement } from '../config/check/mistakes-of-settlement.ts'
export { compileUnits } from '../config/compile-units.ts'
export { createLeases } from '../limiter/answers/leases.ts'
export { createRefusalMemory } from '../limiter/answers/refusals.ts'
export { evaluateOnCluster } from '../limiter/cluster.ts'
export { createEngine } from '../limiter/engine.ts'
export { createLocalLimiter } from '../limiter/outage/local.ts'
export { createEngineWithReservations } from '../limiter/reservations/engine-with-reservations.ts'
export { createHoldingsKeeper } from '../limiter/units/keep-holdings.ts'
export { createStatsRecorder } from '../metrics/flush.ts'
export { createMeasurements } from '../metrics/measurements.ts'
export { createOtlpMeasurements } from '../metrics/otlp.ts'
export { createTopCallers } from '../metrics/top-callers.ts'
export { withMissingParts } from '../not-built.ts'
export { restoreScript } from '../script/built-scripts.ts'
export { withReservations } from '../script/reservation-wire.ts'
export { createGiveNumbers } from './limits/numbers.ts'
