/** The config of the Worker in the anomaly suite. */
import { defineConfig } from '../../src/config/define.ts'
import type { Duration } from '../../src/config/duration.ts'
import { AT_ONCE, LIMIT, MODES, SLOT_TTL_MS, SOAK_LIMIT, SOAK_PERIOD_MS, STORE } from './policy.ts'

/** For each mode, a rule for consumers and a rule for callers without a key. */
const inEachMode = (name: string, path: string, limit: number, period: Duration) =>
  MODES.flatMap(mode =>
    (['consumer', 'address'] as const).map(by => ({
      name: `${name}${mode}-${by}`,
      by,
      algorithm: 'fixed-window' as const,
      limit,
      period,
      match: { path: `${path}/${mode}/*`, authenticated: by === 'consumer' },
      onStoreFailure: mode,
    })),
  )

/** The same for requests in flight. No caller has more than one request at once, so none of these rules may refuse. */
const inFlightInEachMode = MODES.flatMap(mode =>
  (['consumer', 'address'] as const).map(by => ({
    name: `in-flight-${mode}-${by}`,
    by,
    algorithm: 'concurrency' as const,
    limit: AT_ONCE,
    ttl: `${SLOT_TTL_MS}ms` as const,
    match: { path: `/${mode}/*`, authenticated: by === 'consumer' },
    onStoreFailure: mode,
  })),
)

export default defineConfig({
  origin: 'https://origin.invalid',
  // Long, so that only an origin that hangs reaches it, even on a busy machine.
  originDeadline: '5s',
  credentials: { accept: ['api-key', 'anonymous'] },
  store: STORE,
  rules: [
    // A long period, so that no units come back while a scenario runs.
    ...inEachMode('', '', LIMIT, '300d'),
    ...inFlightInEachMode,
    ...inEachMode('soak-', '/soak', SOAK_LIMIT, `${SOAK_PERIOD_MS}ms`),
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
  // No request is shed. But the Worker reports its utilization in the HTTP requests to the store, which the faults affect.
  shedding: {
    classes: [{ name: 'critical', match: { path: '/critical/*' } }, { name: 'other' }],
    fleetUsage: { capacity: 10_000, ttl: `${SLOT_TTL_MS}ms`, onStoreFailure: 'open' },
    workerUtilization: { signals: ['header', 'in-flight'] },
  },
})
