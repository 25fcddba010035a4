/** What the Worker of the anomaly suite runs with. */
import { defineConfig } from '../../src/config/define.ts'
import type { Duration } from '../../src/config/duration.ts'
import { AT_ONCE, LIMIT, MODES, SLOT_TTL_MS, SOAK_LIMIT, SOAK_PERIOD_MS, STORE } from './policy.ts'

/** In each mode one for consumers, and one for those without a key. */
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

/** The same of what is in flight: no caller here has more than one request at once, so none of these may refuse. */
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
  // Only an origin that hangs is to reach it, also on a busy machine.
  originDeadline: '5s',
  credentials: { accept: ['api-key', 'anonymous'] },
  store: STORE,
  rules: [
    // Long, so that what is spent stays spent while a scenario runs.
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
  // The reports of its signal ride on the requests that fail, and nothing is shed.
  shedding: {
    classes: [{ name: 'critical', match: { path: '/critical/*' } }, { name: 'other' }],
    fleetUsage: { capacity: 10_000, ttl: `${SLOT_TTL_MS}ms`, onStoreFailure: 'open' },
    workerUtilization: { signals: ['header', 'in-flight'] },
  },
})
