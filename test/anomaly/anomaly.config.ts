/** The config of the Worker in the anomaly suite. */
import { defineConfig } from '../../src/config/define.ts'
import { LIMIT, SLOT_TTL_MS, SOAK_LIMIT, SOAK_PERIOD_MS, STORE } from './modes.ts'
import { inEachMode, inFlightInEachMode } from './rules.ts'

export default defineConfig({
  origin: 'https://origin.invalid',
  // Long, so that only an origin that hangs reaches it, even on a busy machine.
  originDeadline: '5s',
  // Keys that are not signed pass only if the isolate knows them.
  credentials: { accept: ['api-key', 'anonymous'], onStoreFailure: 'signed' },
  store: STORE,
  rules: [
    // A long period, so that no units come back while a scenario runs.
    ...inEachMode('', '', LIMIT, '300d'),
    ...inFlightInEachMode,
    ...inEachMode('soak-', '/soak', SOAK_LIMIT, `${SOAK_PERIOD_MS}ms`),
    {
      name: 'guesses',
      by: 'address',
      on: 'auth-failure',
      algorithm: 'fixed-window',
      limit: 100,
      period: '300d',
    },
    {
      name: 'held',
      by: 'address',
      algorithm: 'leaky-bucket',
      limit: 5,
      period: '1s',
      queue: 5,
      match: { path: '/held/*' },
    },
  ],
  // No request is shed. But the Worker reports the measured utilization of the origin with its calls to the store, which the faults affect.
  shedding: {
    classes: [{ name: 'critical', match: { path: '/critical/*' } }, { name: 'other' }],
    fleetUsage: { capacity: 10_000, ttl: `${SLOT_TTL_MS}ms`, onStoreFailure: 'open' },
    workerUtilization: { signals: ['header', 'in-flight'] },
  },
})
